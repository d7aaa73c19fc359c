"""Rows on their way from a file to columns: what was found, what was missing, what was bad."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

MISSING: Final = -1
NO_TIME: Final = -(1 << 63)  # no arrival found; never the same as 0
SHOWN: Final = 10  # bad rows that an error lists


class BadRow(ValueError):
    """A row that cannot be used, with the reason as its text."""


@dataclass(slots=True)
class Row:
    """One request as a reader found it; lengths below 0 are missing.

    ``arrival_ns`` counts from the source's own origin. ``request`` and ``session`` are the source's
    ids. ``status``: 0 ok, 1 failed, 2 cached. ``tries`` is how often the source tried it.
    """

    arrival_ns: int = NO_TIME
    prompt: int = MISSING
    output: int = MISSING
    status: int = 0
    request: str | None = None
    session: str | None = None
    model: str = ""
    max_tokens: int = MISSING
    priority: int = 0
    precision: str = ""
    kernel_hint: str = ""
    duration_s: float = float("nan")
    ttft_s: float = float("nan")
    prompt_guess: int = MISSING  # from bytes or the like, where the length itself is missing
    output_guess: int = MISSING
    tries: int = 1
    blocks: Sequence[int] | None = None
    number: int = 0  # where in the file: its line, row or item, from 1; 0 where not told yet


@dataclass(slots=True)
class Raw:
    """Columns as found, in file order: the input of :func:`traces.assemble.assemble`.

    ``number`` counts in ``unit``: lines of a text file (its header is line 1), rows of a Parquet
    table, items of a JSON array.
    """

    arrival_ns: NDArray[np.int64]
    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    number: NDArray[np.int64]
    status: NDArray[np.int8] | None = None
    extra: dict[str, NDArray[Any]] = field(default_factory=dict)
    words: dict[str, list[str]] = field(default_factory=dict)
    block_hashes: NDArray[np.int64] | None = None
    block_offsets: NDArray[np.int64] | None = None
    unit: str = "line"

    def __len__(self) -> int:
        return len(self.arrival_ns)


_MAIN: Final = ("arrival_ns", "prompt", "output", "number")
_TEXTS: Final = ("request", "session", "model", "precision", "kernel_hint")
_NUMBERS: Final = (
    "max_tokens", "priority", "duration_s", "ttft_s", "prompt_guess", "output_guess", "tries"
)  # fmt: skip
_OPTIONAL: Final = (*_TEXTS, *_NUMBERS)
_optional: Final = attrgetter(*_OPTIONAL)
# One object stands for NaN in every row that has none, so that tuples compare by identity.
_DEFAULTS: Final[tuple[Any, ...]] = _optional(Row())


class Builder:
    """Appends rows to packed columns; a column that no row fills costs nothing."""

    def __init__(self) -> None:
        self._main = {name: array("q") for name in _MAIN}
        self._status = array("b")
        self._unused = set(range(len(_OPTIONAL)))
        self._texts: dict[int, tuple[array[int], dict[str, int]]] = {}
        self._numbers: dict[int, array[Any]] = {}
        self._blocks = array("q")
        self._offsets = array("q", [0])
        self._any_blocks = False

    def __len__(self) -> int:
        return len(self._status)

    def add(self, row: Row) -> None:
        """Append *row*."""
        main = self._main
        main["arrival_ns"].append(row.arrival_ns)
        main["prompt"].append(row.prompt)
        main["output"].append(row.output)
        main["number"].append(row.number)
        values = _optional(row)
        if values != _DEFAULTS and self._unused:
            self._open(values)
        self._status.append(row.status)
        for place, (column, codes) in self._texts.items():
            text = values[place]
            column.append(codes.setdefault(text, len(codes)) if text else MISSING)
        for place, numbers in self._numbers.items():
            numbers.append(values[place])
        if row.blocks is not None:
            self._any_blocks = True
            self._blocks.extend(row.blocks)
        self._offsets.append(len(self._blocks))

    def _open(self, values: tuple[Any, ...]) -> None:
        """Begin the columns that *values* fill first, with what the rows before had."""
        before = len(self)
        for place in sorted(self._unused):
            value, default = values[place], _DEFAULTS[place]
            if not value if place < len(_TEXTS) else value == default or value != value:
                continue
            self._unused.discard(place)
            if place < len(_TEXTS):
                self._texts[place] = (array("q", [MISSING]) * before, {})
            else:
                kind = "d" if isinstance(default, float) else "q"
                self._numbers[place] = array(kind, [default]) * before

    def take(self) -> Raw:
        """Return the rows so far as columns."""
        arrival, prompt, output, number = (np.array(self._main[name], np.int64) for name in _MAIN)
        raw = Raw(arrival, prompt, output, number, np.array(self._status, np.int8))
        for place, numbers in self._numbers.items():
            raw.extra[_OPTIONAL[place]] = np.array(numbers)
        for place, (codes, words) in self._texts.items():
            raw.extra[_OPTIONAL[place]] = np.array(codes, np.int64)
            raw.words[_OPTIONAL[place]] = list(words)
        if self._any_blocks:
            raw.block_hashes = np.array(self._blocks, np.int64)
            raw.block_offsets = np.array(self._offsets, np.int64)
        return raw


@dataclass(slots=True)
class BadRows:
    """Bad rows of a file: the first ten in full for the error, every one for the side file."""

    unit: str = "line"
    keep_lines: bool = False
    first: list[tuple[int, str]] = field(default_factory=list)
    lines: list[tuple[int, str, bytes]] = field(default_factory=list)
    count: int = 0

    def add(self, number: int, reason: str, line: bytes = b"") -> None:
        """Record that the line, row or item *number* is unusable."""
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append((number, reason))
        if self.keep_lines:
            self.lines.append((number, reason, line))
