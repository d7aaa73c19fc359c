"""From raw columns to a Trace: order, origin, duplicates, ties, and lengths that are missing."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dispatch.errors import InputError
from traces import guess, order
from traces.block_size import BlockSize, block_size
from traces.rows import MISSING, Raw
from traces.trace import CACHED, FAILED, Quirk, Trace, counted


@dataclass(frozen=True, slots=True)
class Facts:
    """What a format says of its files.

    ``order``: "arrival" where rows must stand in arrival order, "any" where they are sorted.
    ``block_tokens``: the block size that the format documents. ``tick_s``: resolution of its clock,
    where that is coarse. ``arrivals``: "made" where the source has none and they were drawn.
    """

    name: str
    order: Literal["arrival", "any"] = "any"
    block_tokens: int = 0
    tick_s: float = 0.0
    arrivals: Literal["recorded", "made"] = "recorded"
    quirks: tuple[Quirk, ...] = ()
    cannot_tell: tuple[str, ...] = ()
    guess_from: str = "bytes"
    output_error: str = ""  # how wrong output lengths from bytes may be, where that is known worse
    pieces: bool = False  # blocks are pieces of text of any length, not blocks of one size


@dataclass(frozen=True, slots=True)
class Choices:
    """What the caller wants done where the file leaves it open.

    ``order`` None: by format; "sort" sorts; "append" lays restarted clocks one after another.
    ``spread``: part arrivals that a coarse clock bunched, by *seed*. ``cached``: keep answers that
    never reached a GPU. ``partial``: accept a trace whose lengths or times are unknown.
    """

    order: Literal["strict", "sort", "append"] | None = None
    spread: bool = True
    cached: bool = False
    partial: bool = False
    seed: int = 0


@dataclass(slots=True)
class _Work:
    """A trace in the making."""

    place: str
    raw: Raw
    facts: Facts
    choices: Choices
    quirks: list[Quirk] = field(default_factory=list)
    cannot_tell: list[str] = field(default_factory=list)
    source: dict[str, Any] = field(default_factory=dict)

    def note(self, code: str, text: str, rows: int = 0) -> None:
        self.quirks.append(Quirk(code, text, int(rows)))

    def keep(self, rows: NDArray[Any]) -> None:
        """Keep only the given *rows*, in that order."""
        raw = self.raw
        kept = Raw(raw.arrival_ns[rows], raw.prompt[rows], raw.output[rows], raw.number[rows])
        kept.unit = raw.unit
        kept.status = None if raw.status is None else raw.status[rows]
        kept.extra = {name: column[rows] for name, column in raw.extra.items()}
        kept.words = raw.words
        if raw.block_hashes is not None and raw.block_offsets is not None:
            where = np.arange(len(raw))[rows]
            sizes = np.diff(raw.block_offsets)[where]
            offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
            starts = np.repeat(raw.block_offsets[:-1][where] - offsets[:-1], sizes)
            kept.block_offsets = offsets
            kept.block_hashes = raw.block_hashes[starts + np.arange(int(offsets[-1]))]
        self.raw = kept


def assemble(place: str, raw: Raw, facts: Facts, choices: Choices) -> Trace:
    """Return *raw* as a Trace, with every quirk that was found and what was done about it."""
    if not len(raw):
        raise InputError.at(place, "holds no request", "a trace needs at least one request")
    work = _Work(place, raw, facts, choices, list(facts.quirks), list(facts.cannot_tell))
    _drop_duplicates(work)
    _drop_cached(work)
    _put_in_order(work)
    _note_failures(work)
    return _build(work)


def _drop_duplicates(work: _Work) -> None:
    ids = work.raw.extra.get("request")
    if ids is None:
        return
    given = np.flatnonzero(ids != MISSING)
    first = np.unique(ids[given], return_index=True)[1]
    extra = len(given) - len(first)
    if extra:
        keep = np.ones(len(ids), bool)
        keep[given] = False
        keep[given[first]] = True
        work.keep(np.flatnonzero(keep))
        work.note(
            "duplicates",
            f"{counted(extra, 'row')} with the id of an earlier request: left out",
            extra,
        )


def _drop_cached(work: _Work) -> None:
    status = work.raw.status
    if status is None:
        return
    cached = int(np.count_nonzero(status == CACHED))
    if not cached:
        return
    if work.choices.cached:
        work.note(
            "cached_answers", f"{counted(cached, 'answer')} from a cache, not from a GPU", cached
        )
        return
    if cached == len(status):
        raise InputError.at(
            work.place, "holds only answers from a cache; none reached a GPU", "keep them if meant"
        )
    work.keep(np.flatnonzero(status != CACHED))
    work.note(
        "cached_answers",
        f"{counted(cached, 'answer')} from a cache, which never reached a GPU: left out",
        cached,
    )


def _put_in_order(work: _Work) -> None:
    """Check or make the order of arrival; then part what a coarse clock bunched."""
    if work.facts.arrivals == "made":
        # Conversations overlap: their turns are put in the order of the drawn times.
        work.keep(np.argsort(work.raw.arrival_ns, kind="stable"))
        return
    placed = order.place(work.place, work.raw, work.facts.order, work.choices.order)
    work.quirks += placed.quirks
    work.raw.arrival_ns = placed.arrival_ns
    if placed.rows is not None:
        work.keep(placed.rows)
    arrival = work.raw.arrival_ns
    work.source["epoch_ns"] = int(arrival[0]) if placed.epoch else None
    work.raw.arrival_ns = arrival - arrival[0]


def _note_failures(work: _Work) -> None:
    raw = work.raw
    failed = 0 if raw.status is None else int(np.count_nonzero(raw.status == FAILED))
    if failed:
        work.note("failures", f"{counted(failed, 'request')} failed at the source; kept", failed)
        work.cannot_tell.append(
            f"what {counted(failed, 'failed request')} would have needed: the output is estimated"
        )
    tries = raw.extra.get("tries")
    if tries is not None and (tries > 1).any():
        again = int((tries > 1).sum())
        work.note("retries", f"{counted(again, 'request')} took several tries; counted once", again)


def _build(work: _Work) -> Trace:
    raw, facts, choices = work.raw, work.facts, work.choices
    filled = guess.fill(
        work.place, raw, choices.seed, choices.partial, facts.guess_from, facts.output_error
    )
    work.quirks += filled.quirks
    work.cannot_tell += filled.cannot_tell
    unknown = list(filled.unknown)
    arrival_s = raw.arrival_ns / 1e9
    if facts.arrivals == "made":
        if "no_rate" in {q.code for q in facts.quirks}:
            if not choices.partial:
                raise _no_times(work)
            unknown += ["arrival_s"]
        arrival_s = arrival_s - arrival_s[0]
    else:
        spread = order.spread(raw.arrival_ns, facts.tick_s, choices.seed)
        if spread is not None:
            ties = spread.ties
            work.quirks.append(ties.quirk)
            work.source["recorded"] = {"tick_s": ties.tick_s, "ties": ties.quirk.rows}
            work.cannot_tell.append(ties.cannot_tell)
            if choices.spread:
                arrival_s = spread.arrival_s
                work.source["recorded"]["spread"] = True
    if unknown:
        work.source["unknown"] = unknown
    columns = _columns(raw)
    _blocks(work, columns, filled.prompt)
    return Trace(
        arrival_s=arrival_s,
        prompt_tokens=filled.prompt.astype(np.int32),
        output_tokens=filled.output.astype(np.int32),
        format=facts.name,
        source_row=raw.number,
        estimated=filled.estimated,
        quirks=tuple(work.quirks),
        cannot_tell=tuple(dict.fromkeys(work.cannot_tell)),
        source=work.source,
        **columns,
    )


def _no_times(work: _Work) -> InputError:
    return InputError.at(
        work.place,
        "holds no arrival times; a missing time is not 0",
        "`zerolayer trace convert` with --rate R draws Poisson arrivals at R requests/s, by seed",
    )


def _columns(raw: Raw) -> dict[str, Any]:
    """Return the optional columns that carry anything."""
    columns: dict[str, Any] = {}
    names: list[str] = []
    for name in ("model", "precision", "kernel_hint"):
        if name in raw.extra:
            words = raw.words[name]
            names += [word for word in words if word not in names]
            where = np.array([*(names.index(word) for word in words), -1], np.int32)
            columns[name] = where[raw.extra[name]]
    columns["names"] = tuple(names)
    for name in ("priority", "max_tokens"):
        if name in raw.extra:
            columns[name] = raw.extra[name].astype(np.int32)
    for name in ("session", "duration_s", "ttft_s"):
        if name in raw.extra and not _empty(raw.extra[name]):
            columns[name] = raw.extra[name]
    if raw.status is not None and raw.status.any():
        columns["status"] = raw.status
    return columns


def _empty(column: NDArray[Any]) -> bool:
    """Return whether no row of a column is given."""
    return bool(np.all(np.isnan(column) if column.dtype.kind == "f" else column == MISSING))


def _blocks(work: _Work, columns: dict[str, Any], prompt: NDArray[np.int64]) -> None:
    """Carry prefix blocks, with the block size that the lengths bear out."""
    raw = work.raw
    if raw.block_hashes is None or raw.block_offsets is None or not len(raw.block_hashes):
        return
    sizes = np.diff(raw.block_offsets)
    with_blocks = sizes > 0
    lengths, counts = prompt[with_blocks], sizes[with_blocks]
    if work.facts.pieces:
        tokens = BlockSize(max(1, round(float(np.median(lengths / counts)))), True)
    else:
        tokens = block_size(lengths, counts, work.facts.block_tokens)
    off = int(np.count_nonzero(-(-prompt[with_blocks] // tokens.size) != sizes[with_blocks]))
    if tokens.estimated:
        work.note(
            "block_size",
            f"prefix blocks fit no fixed size; taken as {tokens.size} tokens each, the median",
            int(with_blocks.sum()),
        )
        work.cannot_tell.append("how many tokens a prefix block holds: the size is a median")
    elif off:
        work.note(
            "block_count",
            f"{off:,} rows have another number of blocks than their length at {tokens.size} tokens "
            "a block asks for",
            off,
        )
    columns["block_hashes"] = raw.block_hashes
    columns["block_offsets"] = raw.block_offsets
    columns["block_tokens"] = tokens.size
