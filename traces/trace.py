"""The columnar trace: what was asked, when, and what came of it."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]
SmallColumn = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Quirk:
    """Something about the source that a reader must know: a stable *code* and a sentence."""

    code: str
    text: str
    rows: int = 0


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in arrival order, one row each.

    ``arrival_s`` starts at 0 and never falls; token counts are at least 1. ``model``, ``precision``
    and ``kernel_hint`` hold indices into ``names`` (-1: not given). Prefix blocks are a ragged
    array: row i owns ``block_hashes[block_offsets[i]:block_offsets[i + 1]]``. ``status`` follows
    the source: 0 ok, 1 failed, 2 cached (never reached a GPU). ``source_row`` counts from 1.
    """

    arrival_s: FloatColumn
    prompt_tokens: SmallColumn
    output_tokens: SmallColumn
    name: str = ""
    format: str = ""
    sha256: str = ""
    session: IntColumn | None = None
    model: SmallColumn | None = None
    precision: SmallColumn | None = None
    kernel_hint: SmallColumn | None = None
    priority: SmallColumn | None = None
    max_tokens: SmallColumn | None = None
    status: NDArray[np.int8] | None = None
    source_row: IntColumn | None = None
    block_hashes: IntColumn | None = None
    block_offsets: IntColumn | None = None
    block_tokens: int = 0
    names: tuple[str, ...] = ()
    quirks: tuple[Quirk, ...] = ()
    cannot_tell: tuple[str, ...] = ()
    source: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.arrival_s)

    @property
    def span_s(self) -> float:
        """Time from the first arrival to the last."""
        return float(self.arrival_s[-1] - self.arrival_s[0]) if len(self) else 0.0

    def take(self, rows: IntColumn, arrival_s: FloatColumn | None = None) -> "Trace":
        """Return the given *rows* in that order, optionally at new arrival times."""
        new: dict[str, Any] = {}
        for f in fields(self):
            column = getattr(self, f.name)
            ragged = f.name in ("block_hashes", "block_offsets")
            if isinstance(column, np.ndarray) and not ragged:
                new[f.name] = column[rows]
        if arrival_s is not None:
            new["arrival_s"] = arrival_s
        if self.block_hashes is not None and self.block_offsets is not None:
            lengths = np.diff(self.block_offsets)[rows]
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            starts = np.repeat(self.block_offsets[:-1][rows] - offsets[:-1], lengths)
            new["block_offsets"] = offsets
            new["block_hashes"] = self.block_hashes[starts + np.arange(offsets[-1])]
        return replace(self, **new)

    def blocks(self, row: int) -> tuple[int, ...]:
        """Return the prefix-block hashes of one *row*, head first; empty where there are none."""
        if self.block_hashes is None or self.block_offsets is None:
            return ()
        span = self.block_hashes[self.block_offsets[row] : self.block_offsets[row + 1]]
        return tuple(span.tolist())
