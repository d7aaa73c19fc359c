"""One copy of a trace for all workers: columns on disk, mapped into memory by each of them."""

import hashlib
import pickle
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from dispatch.errors import InputError
from traces.trace import Trace

_REST = "rest.pickle"


def save(trace: Trace, folder: Path) -> None:
    """Write the columns of *trace* as ``.npy`` files and all else beside them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        rest: dict[str, Any] = {}
        for field in fields(trace):
            value = getattr(trace, field.name)
            if isinstance(value, np.ndarray):
                np.save(folder / f"{field.name}.npy", value)
            else:
                rest[field.name] = value
        (folder / _REST).write_bytes(pickle.dumps(rest))
    except OSError as error:  # numpy's says neither where nor why
        raise InputError.at(
            str(folder.parent), f"has no room for the trace ({error})",
            "make room there, or choose another folder by -o (by TMPDIR where that is none)",
        ) from None  # fmt: skip


def load(folder: Path) -> Trace:
    """Return the trace that :func:`save` wrote; its columns stay on disk until they are read."""
    rest = pickle.loads((folder / _REST).read_bytes())
    columns = {path.stem: np.load(path, mmap_mode="r") for path in folder.glob("*.npy")}
    empty = {key: columns.pop(key) for key in ("arrival_s", "prompt_tokens", "output_tokens")}
    return replace(Trace(**empty), **columns, **rest)


def content_hash(trace: Trace) -> str:
    """Return the sha256 over every column that a run reads."""
    digest = hashlib.sha256()
    for field in fields(trace):
        value = getattr(trace, field.name)
        if isinstance(value, np.ndarray):
            digest.update(f"{field.name} {value.dtype} {value.shape}\0".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        elif field.name in ("names", "block_tokens"):
            digest.update(f"{field.name} {value!r}\0".encode())
    return digest.hexdigest()
