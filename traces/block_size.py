"""How many tokens a prefix block of a trace holds, by what the lengths bear out."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCK_SIZES: Final = (512, 16, 64, 256, 128, 32, 1024)


@dataclass(frozen=True, slots=True)
class BlockSize:
    """Tokens a prefix block holds, and whether that is only a median."""

    size: int
    estimated: bool


def block_size(prompt: NDArray[np.int64], blocks: NDArray[np.int64], documented: int) -> BlockSize:
    """Return the block size for which ceil(prompt / size) is the number of blocks most often.

    The last block may be left out where it is not full. *documented* wins a tie.
    """
    best, best_hits = documented, -1
    for size in dict.fromkeys([documented, *BLOCK_SIZES]):
        if size > 0:
            full = prompt // size
            hits = int(np.count_nonzero((-(-prompt // size) == blocks) | (full == blocks)))
            if hits > best_hits:
                best, best_hits = size, hits
    if best_hits * 2 >= len(blocks):
        return BlockSize(best, False)
    if documented:
        return BlockSize(documented, False)
    return BlockSize(max(1, round(float(np.median(prompt / blocks)))), True)
