"""What a trace may leave a company with: times, lengths and keyed numbers, and nothing else."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispatch.errors import InputError
from traces.trace import IntColumn, Trace


def anonymise(trace: Trace, key: str, *, keep_models: bool = False) -> Trace:
    """Return *trace* without anything that names a person, a machine, a moment or a text.

    No reader keeps text. Sessions and prefix blocks become keyed BLAKE2b numbers: equal where they
    were equal, and not to be traced back without *key*. Times start at 0 and the date is dropped.
    Model names become ``model-1`` and so on unless *keep_models*. File name and digest go too. What
    stays can still be telling: arrival times and lengths of a rare request may be recognised.
    """
    if len(key) < 8:
        raise InputError.at("--key", "is shorter than 8 characters", "use a long random key")
    names = trace.names
    if not keep_models:
        names = tuple(f"model-{number}" for number in range(1, len(names) + 1))
        hints = (
            {int(c) for c in np.unique(trace.kernel_hint)}
            if trace.kernel_hint is not None
            else set()
        )
        hints |= (
            {int(c) for c in np.unique(trace.precision)} if trace.precision is not None else set()
        )
        names = tuple(trace.names[i] if i in hints else name for i, name in enumerate(names))
    source: dict[str, Any] = {k: v for k, v in trace.source.items() if k in ("unknown", "recorded")}
    return replace(
        trace,
        arrival_s=trace.arrival_s - (trace.arrival_s[0] if len(trace) else 0.0),
        session=_hashed(trace.session, key, "session"),
        block_hashes=_hashed(trace.block_hashes, key, "block"),
        source_row=None,
        names=names,
        name="anonymous",
        sha256="",
        source=source,
    )


def _hashed(ids: IntColumn | None, key: str, what: str) -> IntColumn | None:
    """Return ids as positive 62-bit numbers; negative sessions, which mean none, stay."""
    if ids is None:
        return None
    distinct, where = np.unique(ids, return_inverse=True)
    secret = hashlib.blake2b(key.encode(), digest_size=32).digest()
    new: NDArray[np.int64] = np.empty(len(distinct), np.int64)
    for place, value in enumerate(distinct.tolist()):
        if what == "session" and value < 0:
            new[place] = -1
            continue
        text = f"{what} {value}".encode()
        digest = hashlib.blake2b(text, key=secret, digest_size=8).digest()
        new[place] = int.from_bytes(digest, "little") >> 2
    return new[where]
