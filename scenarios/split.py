"""Which measured rows a fit may see: a rule on what a row is, not on where it stands in a file."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

HELD_OUT_IN: Final = 3
"""One group in so many is kept from the fit."""
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "gemm": ("n", "k"), "elementwise": ("op", "rows"), "prefill_attention": ("heads", "kv_heads"),
    "decode_attention": ("heads", "kv_heads"), "all_reduce": ("n", "bytes"),
    "layer": ("phase", "tokens"), "whole": (),
}  # fmt: skip
"""Rows alike in these columns are held out together: whole shapes, so that none is met before."""


def held_out(kind: str, table: pd.DataFrame) -> NDArray[np.bool_]:
    """Return which rows of a tidy *table* of *kind* a fit must not see.

    Whole-model rows are too few to split: there the fit leaves out one GPU-and-TP group at a time.
    """
    columns = GROUPS[kind]
    if not columns:
        return np.zeros(len(table), dtype=bool)
    keys = [
        "|".join(f"{value:g}" if isinstance(value, float | int) else str(value) for value in row)
        for row in table[list(columns)].itertuples(index=False)
    ]
    chosen = {key: _number(key) % HELD_OUT_IN == 0 for key in set(keys)}
    return np.array([chosen[key] for key in keys], dtype=bool)


def _number(key: str) -> int:
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, by which a calibration names what it was fitted to."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def halves(table: pd.DataFrame, by: str) -> tuple[Any, Any]:
    """Return masks of the first and the second half of *table* in the order of column *by*."""
    rank = table[by].rank(method="first")
    first = (rank <= len(table) / 2).to_numpy()
    return first, ~first
