"""The columnar trace: what was asked, when, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
IntColumn = NDArray[np.int64]
SmallColumn = NDArray[np.int32]

MOST_REQUESTS: Final = 200_000_000  # of a trace that is made: what a large memory holds

OK, FAILED, CACHED = 0, 1, 2
PROMPT_ESTIMATED, OUTPUT_ESTIMATED = 1, 2


def counted(number: int, noun: str) -> str:
    """Return "1 request", "12,031 requests"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


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
    the source: 0 ok, 1 failed, 2 cached (never reached a GPU). ``source_row`` is the line of a text
    file that a request stands on (a header is line 1), else the row or item of the source, from 1.
    ``estimated`` holds PROMPT_ESTIMATED, OUTPUT_ESTIMATED or both where a length was missing in the
    source. ``duration_s`` and ``ttft_s`` are what the source observed, NaN where it did not.
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
    estimated: NDArray[np.int8] | None = None
    duration_s: FloatColumn | None = None
    ttft_s: FloatColumn | None = None
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

    def joined(self, others: "Sequence[Trace]") -> "Trace":
        """Return the rows of this trace and of *others*, one after another and not sorted.

        A column that only some of them have is filled with "not given". All must have blocks of one
        size, or none.
        """
        parts = [self, *others]
        names = list(dict.fromkeys(name for part in parts for name in part.names))
        new: dict[str, Any] = {"names": tuple(names)}
        for f in fields(self):
            if f.name in ("block_hashes", "block_offsets"):
                continue
            columns = [getattr(part, f.name) for part in parts]
            if not any(isinstance(column, np.ndarray) for column in columns):
                continue
            if f.name in ("model", "precision", "kernel_hint"):
                columns = [_renamed(c, p, names) for c, p in zip(columns, parts, strict=True)]
            new[f.name] = np.concatenate(
                [_filled(c, f.name, len(p)) for c, p in zip(columns, parts, strict=True)]
            )
        if any(part.block_hashes is not None for part in parts):
            sizes = [part._block_counts() for part in parts]
            hashes = [p.block_hashes for p in parts if p.block_hashes is not None]
            new["block_hashes"] = np.concatenate(hashes)
            new["block_offsets"] = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
            new["block_tokens"] = max(part.block_tokens for part in parts)
        new["quirks"] = tuple(dict.fromkeys(q for part in parts for q in part.quirks))
        new["cannot_tell"] = tuple(dict.fromkeys(t for part in parts for t in part.cannot_tell))
        return replace(self, **new)

    def _block_counts(self) -> IntColumn:
        if self.block_offsets is None:
            return np.zeros(len(self), np.int64)
        return np.diff(self.block_offsets)

    def blocks(self, row: int) -> tuple[int, ...]:
        """Return the prefix-block hashes of one *row*, head first; empty where there are none."""
        if self.block_hashes is None or self.block_offsets is None:
            return ()
        span = self.block_hashes[self.block_offsets[row] : self.block_offsets[row + 1]]
        return tuple(span.tolist())


_NOT_GIVEN: Final = {
    "session": -1, "model": -1, "precision": -1, "kernel_hint": -1, "priority": 0,
    "max_tokens": -1, "status": OK, "estimated": 0, "duration_s": float("nan"),
    "ttft_s": float("nan"), "source_row": 0,
}  # fmt: skip
_TYPES: Final = {
    "session": np.int64, "status": np.int8, "estimated": np.int8, "duration_s": np.float64,
    "ttft_s": np.float64, "source_row": np.int64,
}  # fmt: skip


def _filled(column: Any, name: str, rows: int) -> NDArray[Any]:
    if isinstance(column, np.ndarray):
        return column
    return np.full(rows, _NOT_GIVEN[name], dtype=_TYPES.get(name, np.int32))


def _renamed(column: Any, part: Trace, names: list[str]) -> Any:
    """Return indices into the names of *part* as indices into *names*; -1 stays."""
    if column is None:
        return None
    moved = np.array([*(names.index(name) for name in part.names), -1], dtype=np.int32)
    return moved[column]
