"""The clock of a source: origins that are mixed, order of arrival, restarts, and coarse ticks."""

import itertools
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dispatch import keyed
from dispatch.errors import InputError, Problem
from traces.rows import NO_TIME, SHOWN, Raw
from traces.trace import Quirk, counted

EPOCH_NS: Final = 900_000_000 * 10**9  # later than this is a date, not a time since the start
RELATIVE_NS: Final = 200_000_000 * 10**9  # earlier than this is a time since the start
LATEST_NS: Final = 4_200_000_000 * 10**9  # the year 2103


@dataclass(slots=True)
class Placed:
    """Arrival times, the order of rows where it changed, and whether they count from 1970."""

    arrival_ns: NDArray[np.int64]
    rows: NDArray[np.int64] | None
    epoch: bool
    quirks: list[Quirk] = field(default_factory=list)


def place(place: str, raw: Raw, expected: str, wanted: str | None) -> Placed:
    """Check origin and order of *raw*; sort, append or refuse as *wanted* or the format says."""
    arrival = raw.arrival_ns
    assert not (arrival == NO_TIME).any(), "a reader let a missing time through"
    epoch = _one_origin(place, raw)
    falls = np.flatnonzero(np.diff(arrival) < 0) + 1
    if not len(falls):
        return Placed(arrival, None, epoch)
    restarts = falls[_is_restart(arrival, falls)]
    if wanted == "append" and len(restarts):
        return _appended(arrival, restarts, epoch)
    if wanted is None and len(restarts) and not epoch:
        raise InputError(_restarted(place, raw, restarts))
    if wanted == "strict" or (wanted is None and expected == "arrival"):
        raise InputError(_unordered(place, raw, falls))
    order = np.argsort(arrival, kind="stable").astype(np.int64)
    text = f"{len(falls)} rows stand before an earlier arrival (completion order?); sorted"
    return Placed(arrival, order, epoch, [Quirk("unordered", text, len(falls))])


def _one_origin(place: str, raw: Raw) -> bool:
    """Return whether times are dates; refuse a mixture of dates and times since a start."""
    arrival = raw.arrival_ns
    late = arrival > LATEST_NS
    if late.any():
        rows = raw.number[late][:SHOWN].tolist()
        raise InputError.at(
            f"{place}: {raw.unit} {rows[0]}",
            f"arrives after the year 2100, as do {int(late.sum()) - 1} more",
            "the unit is finer than was taken; give --unit",
        )
    date, since = arrival >= EPOCH_NS, arrival < RELATIVE_NS
    if date.any() and since.any():
        few = date if date.sum() <= since.sum() else since
        rows = ", ".join(str(n) for n in raw.number[few][:SHOWN].tolist())
        raise InputError.at(
            place,
            f"mixes times since 1970 ({int(date.sum())} rows) with times since a start or in "
            f"another unit ({int(since.sum())} rows); the fewer are {raw.unit}s {rows}",
            "use one origin and one unit",
        )
    return bool(date.any())


def _is_restart(arrival: NDArray[np.int64], falls: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which falls go back most of the way: a clock that began again, not a late line."""
    latest = np.maximum.accumulate(arrival)[falls - 1]
    start = arrival[0]
    fallen = latest - arrival[falls]
    restart: NDArray[np.bool_] = (fallen > (latest - start) * 0.5) & (fallen > 10**9)
    return restart


def _appended(arrival: NDArray[np.int64], restarts: NDArray[np.int64], epoch: bool) -> Placed:
    """Lay the runs between restarts one after another, a mean gap of the run before between."""
    new = arrival.copy()
    borders = [0, *restarts.tolist(), len(arrival)]
    end = 0
    for first, last in itertools.pairwise(borders):
        run = arrival[first:last]
        start = int(run.min())
        new[first:last] = run - start + end
        length = int(run.max()) - start
        end += length + max(1, length // max(1, len(run) - 1))
    order = np.argsort(new, kind="stable").astype(np.int64)
    text = (
        f"the clock starts again {len(restarts)} times; the parts are laid one after another, "
        "a mean gap between them"
    )
    return Placed(new, order, False, [Quirk("restarted_clock", text, len(restarts))])


def _restarted(place: str, raw: Raw, restarts: NDArray[np.int64]) -> list[Problem]:
    return [
        Problem(
            f"{place}: {raw.unit} {raw.number[i]}",
            f"the clock starts again: {_s(raw.arrival_ns[i])} s after {_s(raw.arrival_ns[i - 1])}",
            "`zerolayer trace convert` with --order append lays the parts one after another, with "
            "--order sort over each other",
        )
        for i in restarts[:SHOWN].tolist()
    ]


def _unordered(place: str, raw: Raw, falls: NDArray[np.int64]) -> list[Problem]:
    problems = [
        Problem(
            f"{place}: {raw.unit} {raw.number[i]}",
            f"arrives {_s(raw.arrival_ns[i - 1] - raw.arrival_ns[i])} s before the one above it",
        )
        for i in falls[:SHOWN].tolist()
    ]
    text = f"{len(falls)} rows are out of order, in a format that is written in arrival order"
    return [
        *problems,
        Problem(
            place,
            text,
            "`zerolayer trace convert` with --order sort puts them right, if that is meant",
        ),
    ]


def _s(ns: int) -> str:
    return f"{ns / 1e9:.9g}"


@dataclass(frozen=True, slots=True)
class Spread:
    """Arrivals parted inside the ticks of a coarse clock."""

    arrival_s: NDArray[np.float64]
    ties: "Ties"


_FINEST_NS: Final = 50_000_000  # ties on a finer clock are too close to matter
_GAPS_KEPT: Final = 1_000_000
_LEAST_TICKS: Final = 10


def spread(arrival_ns: NDArray[np.int64], tick_s: float, seed: int) -> Spread | None:
    """Return arrivals spread uniformly over the tick that bunched them; None where none did.

    Rows of one tick keep their order; what the tick is, :meth:`Clock.tick_ns` says.
    """
    clock = Clock()
    clock.add(arrival_ns)
    tick_ns = clock.tick_ns(tick_s)
    if tick_ns is None:
        return None
    distinct, counts = np.unique(arrival_ns, return_counts=True)
    room = np.minimum(np.append(np.diff(distinct), tick_ns), tick_ns)
    owner = np.repeat(np.arange(len(distinct)), counts)
    ids = np.arange(len(arrival_ns), dtype=np.int64)
    draws = keyed.uniforms(keyed.stream(seed, "ties"), ids)
    draws = draws[np.lexsort((draws, owner))]
    arrival = (distinct[owner] + np.floor(draws * room[owner])) / 1e9
    found = ties(clock.ties, tick_ns)
    return Spread(arrival - arrival[0], found)


@dataclass(frozen=True, slots=True)
class Ties:
    """Arrivals that share a tick of a coarse clock, and what is said of it."""

    tick_s: float
    quirk: Quirk
    cannot_tell: str


def ties(rows: int, tick_ns: int) -> Ties:
    """Return what is said of *rows* that share their time with another on a clock of *tick_ns*."""
    tick = tick_ns / 1e9
    text = (
        f"{counted(rows, 'arrival')} at the same time as another, times {tick:.3g} s apart: a "
        f"coarse clock, not bursts; a replay spreads them inside their {tick:.3g} s by seed"
    )
    limit = f"when inside {tick:.3g} s a request came: its clock is no finer"
    return Ties(tick, Quirk("ties", text, rows), limit)


@dataclass(slots=True)
class Clock:
    """How coarse the clock of ordered arrivals is, from chunk after chunk in bounded memory."""

    rows: int = 0
    ties: int = 0
    _last: int | None = None
    _common_ns: int = 0  # greatest common divisor of all gaps, as long as that is coarse
    _gaps: list[NDArray[np.int64]] = field(default_factory=list)  # the first of them
    _kept: int = 0

    def add(self, arrival_ns: NDArray[np.int64]) -> None:
        """Take in the next arrivals."""
        if not len(arrival_ns):
            return
        before = arrival_ns[0] if self._last is None else self._last
        gaps = np.diff(arrival_ns, prepend=before)
        self.rows += len(arrival_ns)
        self.ties += int(np.count_nonzero(gaps == 0)) - (self._last is None)
        self._last = int(arrival_ns[-1])
        gaps = gaps[gaps > 0]
        if self._common_ns == 0 or self._common_ns >= _FINEST_NS:
            self._common_ns = int(np.gcd.reduce(gaps, initial=self._common_ns))
        if self._kept < _GAPS_KEPT:
            self._gaps.append(gaps[: _GAPS_KEPT - self._kept].copy())
            self._kept += len(self._gaps[-1])

    def tick_ns(self, documented_s: float = 0.0) -> int | None:
        """Return the tick that bunched arrivals, None where none did.

        It is what the format documents, else the common divisor of the gaps, else their median
        where nearly all of the first million are alike.
        """
        if not self.ties:
            return None
        tick = round(documented_s * 1e9) or self._found()
        return tick if tick is not None and tick >= _FINEST_NS else None

    def _found(self) -> int | None:
        if self._kept < _LEAST_TICKS - 1 or self.ties * 20 < self.rows:
            return None
        if self._common_ns >= _FINEST_NS:
            return self._common_ns
        low, middle, high = np.percentile(np.concatenate(self._gaps), [5, 50, 95])
        return round(float(middle)) if high - low <= 0.1 * middle else None
