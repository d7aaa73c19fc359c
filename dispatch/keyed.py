"""Random numbers that are keyed, not drawn in event order.

A value hangs only on (seed, concern, ids), so arms whose paths differ still share arrivals,
lengths, handling times and faults. The mixer is splitmix64's finaliser (Steele et al., OOPSLA'14).
"""

import math
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

_MASK: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def stream(seed: int, concern: str) -> int:
    """Return the 64-bit key of one *concern* under *seed*; compute it once, not per draw."""
    return _mix((seed * _GOLDEN + zlib.crc32(concern.encode())) & _MASK)


def bits(key: int, *ids: int) -> int:
    """Return 64 uniform bits for *ids* under a key from :func:`stream`."""
    z = key
    for i in ids:  # _mix, written out: a draw is worth sparing a call an id
        z = (z + (i + 1) * _GOLDEN) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
    return z


def uniform(key: int, *ids: int) -> float:
    """Return a uniform number in [0, 1) for *ids*."""
    return (bits(key, *ids) >> 11) * 2.0**-53


def exponential(key: int, *ids: int) -> float:
    """Return an exponential number of mean 1 for *ids*."""
    return -math.log1p(-uniform(key, *ids))


def many_bits(keys: NDArray[np.uint64], ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return :func:`bits` for many pairs of a key and a single id at once, equal bit for bit."""
    with np.errstate(over="ignore"):
        z = keys + (ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def uniforms(key: int, ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return :func:`uniform` for many single *ids* at once, equal to it bit for bit."""
    z = many_bits(np.full(1, key, dtype=np.uint64), ids)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def generator(seed: int, concern: str) -> np.random.Generator:
    """Return a numpy generator for bulk draws of one *concern* (trace synthesis, resampling)."""
    return np.random.Generator(np.random.PCG64(stream(seed, concern)))
