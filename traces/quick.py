"""Plain numeric CSV read by columns: fast where a file is clean, silent where it is not.

Anything at all that is out of the ordinary (a hole, a zero, a negative, a second time format) makes
this reader give up, and the careful one reads the file again and names the row.
"""

from collections.abc import Iterator
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.detect import header_of
from traces.formats.base import Quick
from traces.rows import MISSING, Raw
from traces.source import Source
from traces.trace import FAILED
from traces.values import MOST_TOKENS, UNITS_NS

BLOCK_BYTES: Final = 8 << 20


class NotPlain(Exception):
    """The file needs the careful reader."""


def chunks(source: Source, quick: Quick, unit: str | None) -> Iterator[Raw]:
    """Yield the columns of a clean CSV, a few megabytes at a time; else raise NotPlain.

    An empty line is not clean unless nothing follows: what does would be counted wrong.
    """
    import pyarrow as pa

    words: dict[str, dict[str, int]] = {"model": {}, "session": {}}
    line = 2  # the header is line 1
    try:
        for batch in _batches(source, quick):
            raw = _chunk(batch, quick, unit, words, line)
            line += batch.num_rows
            yield raw
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError, OverflowError) as error:
        raise NotPlain(str(error)) from None


def _batches(source: Source, quick: Quick) -> Iterator[Any]:
    from pyarrow import csv

    names, delimiter = header_of(source)
    canonical = {name.lower(): name for name in vars_of(quick)}
    columns = [canonical.get(name.lower(), name) for name in names]
    if len(set(columns)) < len(columns):
        raise NotPlain("a column twice")
    wanted = [name for name in vars_of(quick) if name in columns]
    types = {quick.arrival: "string", quick.prompt: "int64", quick.output: "int64"}
    with source.open() as stream:
        watched = _Watched(stream)
        batches = csv.open_csv(
            watched,
            csv.ReadOptions(block_size=BLOCK_BYTES, column_names=columns, skip_rows=1),
            csv.ParseOptions(delimiter=delimiter, ignore_empty_lines=True),
            csv.ConvertOptions(
                include_columns=wanted,
                column_types={name: types.get(name, "string") for name in wanted},
                null_values=[],
            ),
        )
        for batch in batches:
            yield batch
            if watched.gap:
                raise NotPlain("an empty line")


class _Watched:
    """Hands bytes on and notes whether anything follows an empty line."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.gap = False
        self._stream = stream
        self._tail = b""
        self._empty = False

    @property
    def closed(self) -> bool:
        return self._stream.closed

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        chunk = self._stream.read(size)
        text = self._tail + chunk
        self.gap |= self._empty and bool(chunk.strip())
        for mark in (b"\n\n", b"\n\r\n"):
            place = text.find(mark)
            if place >= 0:
                self._empty = True
                self.gap |= bool(text[place:].strip())
        self._tail = text[-2:]
        return chunk


def vars_of(quick: Quick) -> list[str]:
    """Return the column names that *quick* reads."""
    names = (
        quick.arrival, quick.prompt, quick.output, quick.model, quick.session, quick.duration
    )  # fmt: skip
    return [name for name in names if name]


def _chunk(
    batch: Any, quick: Quick, unit: str | None, words: dict[str, dict[str, int]], line: int
) -> Raw:
    arrival = times_ns(batch.column(quick.arrival), unit or quick.unit)
    prompt = _tokens(batch.column(quick.prompt), least=1)
    output = _tokens(batch.column(quick.output), least=0 if quick.zero_output_failed else 1)
    numbers = np.arange(line, line + batch.num_rows, dtype=np.int64)
    raw = Raw(arrival, prompt, output, numbers)
    if quick.zero_output_failed:
        failed = output == 0
        raw.status = np.where(failed, FAILED, 0).astype(np.int8)
        raw.output = np.where(failed, MISSING, output)
    for name, column in (("model", quick.model), ("session", quick.session)):
        if column and column in batch.schema.names:
            raw.extra[name] = _codes(batch.column(column), words[name])
            raw.words[name] = list(words[name])
    if quick.duration and quick.duration in batch.schema.names:
        raw.extra["duration_s"] = _seconds(batch.column(quick.duration))
    return raw


def _seconds(column: Any) -> NDArray[np.float64]:
    """Return a text column of durations; "" is NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
    seconds: NDArray[np.float64] = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)
    if (seconds < 0).any() or np.isinf(seconds).any():
        raise NotPlain("a duration out of range")
    return seconds


def _tokens(column: Any, least: int) -> NDArray[np.int64]:
    if column.null_count:
        raise NotPlain("a hole")
    values: NDArray[np.int64] = column.to_numpy(zero_copy_only=False)
    if len(values) and (values.min() < least or values.max() > MOST_TOKENS):
        raise NotPlain("a token count out of range")
    return values


def _codes(column: Any, words: dict[str, int]) -> NDArray[np.int64]:
    """Return *column* as numbers that stand for its words; "" is MISSING."""
    coded = column.dictionary_encode()
    here = [
        MISSING if not word or word == "-" else words.setdefault(word, len(words))
        for word in coded.dictionary.to_pylist()
    ]
    table = np.array(here, np.int64)
    picked: NDArray[np.int64] = table[coded.indices.to_numpy(zero_copy_only=False)]
    return picked


def times_ns(column: Any, unit: str) -> NDArray[np.int64]:
    """Return a text column of times as nanoseconds, exact to the last digit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.null_count:
        raise NotPlain("a missing time")
    if unit == "iso":
        return _iso_ns(column)
    exact = pc.cast(column, pa.decimal128(38, 9))
    # The unscaled value of decimal(38, 9) in seconds is nanoseconds; its low half is 64 bits.
    low: NDArray[np.int64] = np.frombuffer(exact.buffers()[1], np.int64)
    low = low[2 * exact.offset : 2 * (exact.offset + len(exact))]
    halves = low.reshape(-1, 2)
    if len(halves) and (halves[:, 1].any() or halves[:, 0].min() < 0):
        raise NotPlain("a time out of range")
    parts = 10**9 // UNITS_NS[unit]
    if parts == 1:
        return halves[:, 0].copy()
    return np.rint(halves[:, 0] / parts).astype(np.int64)


def _iso_ns(column: Any) -> NDArray[np.int64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        stamps = pc.cast(column, pa.timestamp("ns"))
    except pa.ArrowInvalid:
        plain = pc.replace_substring_regex(column, r"(\+00:?00|Z)$", "")
        stamps = pc.cast(plain, pa.timestamp("ns"))
    if stamps.null_count:
        raise NotPlain("a missing time")
    ns: NDArray[np.int64] = stamps.cast(pa.int64()).to_numpy(zero_copy_only=False)
    if len(ns) and ns.min() < 0:
        raise NotPlain("a date before 1970")
    return ns


def join(parts: list[Raw]) -> Raw:
    """Return chunks of one file as one; codes of words are shared already."""

    def whole(name: str) -> Any:
        return np.concatenate([getattr(part, name) for part in parts])

    raw = Raw(*(whole(name) for name in ("arrival_ns", "prompt", "output", "number")))
    if parts[0].status is not None:
        raw.status = whole("status")
    for name in parts[0].extra:
        raw.extra[name] = np.concatenate([part.extra[name] for part in parts])
    raw.words = parts[-1].words
    return raw
