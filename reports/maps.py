"""When does a claim hold: a map over two conditions, with the border where it flips.

``manifest["maps"]`` holds one mapping per map: ``claim``, ``title``, ``unit``, ``figure`` (what the
claim asks for), ``at_most`` (whether lower is better) or ``within`` (how precise an interval around
the figure must be), ``kind`` (``rate``: per cent of requests; ``difference``: of two rates, in
points), ``x`` and ``y`` (axis labels), and
``cells``: rows of ``x``, ``y``, ``replicate``, ``requests`` and ``value`` (None: not measured).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dispatch.errors import InputError
from reports import draw
from reports.claim import ABSENT, FAILS, HOLDS, OPEN, ZERO_NEEDS
from reports.document import Paragraph, Plot, Section, Table
from reports.intervals import Interval, t_interval
from reports.numbers import count, number, span
from reports.student import binomial_bounds
from reports.tables import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOOKS: Final = {
    HOLDS: ("s", draw.GOOD),
    FAILS: ("x", draw.BAD),
    OPEN: ("o", draw.SOFT),
    ABSENT: (".", draw.SOFT),
}
_HEAD: Final = (
    "Claim", "over load and", "points that hold", "that do not", "open", "not measured", "border",
)  # fmt: skip
_NOTHING: Final = Interval(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True, slots=True)
class ClaimMap:
    """One claim over two conditions: an interval and a status per grid point."""

    claim: str
    title: str
    unit: str
    figure: float
    x: str
    y: str
    points: Mapping[tuple[float, float], Interval]
    statuses: Mapping[tuple[float, float], str]
    most_requests: int = 0
    """Requests that a point replays at load 1 at most; 0: not said."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        points = [
            {"x": x, "y": y, "status": self.statuses[x, y]} | interval.as_dict()
            for (x, y), interval in self.points.items()
        ]
        return {"claim": self.claim, "x": self.x, "y": self.y, "points": points}

    def borders(self) -> list[tuple[float, float, float]]:
        """Return (y, last x that holds, first x that does not) of every row where it flips once."""
        found = []
        for y in sorted({y for _, y in self.points}):
            row = [(x, self.statuses[x, y]) for x in sorted(x for x, z in self.points if z == y)]
            holds = [x for x, status in row if status == HOLDS]
            fails = [x for x, status in row if status == FAILS]
            if holds and fails and (max(holds) < min(fails) or max(fails) < min(holds)):
                edge = (max(holds), min(fails)) if holds[0] < fails[0] else (min(holds), max(fails))
                found.append((y, *edge))
        return found


def analyse(run: Run) -> tuple[ClaimMap, ...]:
    """Return the maps that the manifest carries; raises InputError for a malformed one."""
    return tuple(claim_map(table, run.confidence) for table in run.manifest.get("maps") or ())


def claim_map(table: Mapping[str, Any], confidence: float = 0.95) -> ClaimMap:
    """Return one map from its *table*; see the module for its keys."""
    missing = [k for k in ("claim", "title", "figure", "x", "y", "cells") if k not in table]
    if missing:
        raise InputError.at("maps", f"lacks {', '.join(missing)}", "see reports/maps.py")
    values: dict[tuple[float, float], list[float]] = {}
    requests: dict[tuple[float, float], int] = {}
    for row in table["cells"]:
        at = float(row["x"]), float(row["y"])
        own = values.setdefault(at, [])
        if row["value"] is not None:
            own.append(float(row["value"]))
            requests[at] = requests.get(at, 0) + int(row.get("requests", 0))
    points, statuses = {}, {}
    for at, own in sorted(values.items()):
        interval = t_interval(own, confidence) if own else _NOTHING
        if interval.known and not interval.sd and requests[at]:
            interval = _bounded(interval, str(table.get("kind", "")), requests[at], confidence)
        points[at] = interval
        statuses[at] = _status(interval, table, requests.get(at, 0)) if own else ABSENT
    return ClaimMap(
        str(table["claim"]), str(table["title"]), str(table.get("unit", "")),
        float(table["figure"]), str(table["x"]), str(table["y"]), points, statuses,
        int(table.get("most_requests", 0)),
    )  # fmt: skip


def _bounded(interval: Interval, kind: str, requests: int, confidence: float) -> Interval:
    """Return an interval without spread as wide as what so many requests can hide."""
    low, high = interval.low, interval.high
    if kind == "rate":
        events = round(interval.mean / 100 * requests)
        low, high = (100 * x for x in binomial_bounds(events, requests, confidence))
    elif kind == "difference":
        hidden = 100 * binomial_bounds(0, requests, confidence)[1]
        low, high = interval.mean - hidden, interval.mean + hidden
    return Interval(interval.mean, low, high, interval.n, 0.0)


def _status(interval: Interval, table: Mapping[str, Any], requests: int) -> str:
    """Judge one point as the claims table does: zero asks for enough requests without an event."""
    figure, within = float(table["figure"]), float(table.get("within") or 0.0)
    if not interval.known:
        return OPEN
    if within:
        if not interval.low <= figure <= interval.high:
            return FAILS
        return HOLDS if (interval.high - interval.low) / 2 <= within else OPEN
    if table.get("kind") == "rate" and figure == 0 and not interval.mean:
        return HOLDS if requests >= ZERO_NEEDS else OPEN
    if table.get("at_most", True):
        return HOLDS if interval.high <= figure else FAILS if interval.low > figure else OPEN
    return HOLDS if interval.low >= figure else FAILS if interval.high < figure else OPEN


def section(maps: tuple[ClaimMap, ...]) -> Section | None:
    """Return the section on when claims hold; None without any map."""
    if not maps:
        return None
    made = Section("maps", "When does each claim hold")
    made.add(
        Paragraph(
            "Every point is a comparison of its own, judged as in the claims table: filled squares "
            "hold, crosses do not, rings are open, dots are not measured there." + _size(maps)
        ),
        Table("Where each claim holds", _HEAD, [_row(m) for m in maps], frozenset({0, 1, 6})),
    )
    made.add(*(_plot(m, i) for i, m in enumerate(maps)))
    for m in maps:
        rows = [
            (f"{m.x} {number(x)}, {m.y} {number(y)}", span(i, m.unit), m.statuses[x, y])
            for (x, y), i in m.points.items()
        ]
        head = ("Point", "value [interval]", "status")
        caption = f"{m.claim}: {m.title}, by {m.x}"
        made.add(Table(caption, head, rows, status=2, folded=True))
    return made


def _size(maps: tuple[ClaimMap, ...]) -> str:
    most = max(m.most_requests for m in maps)
    return f" A point replays at most {count(most)} requests at load 1." if most else ""


def _row(m: ClaimMap) -> tuple[str, ...]:
    """Return how many points hold, and between which the claim flips."""
    found = list(m.statuses.values())
    counts = (str(found.count(s)) for s in (HOLDS, FAILS, OPEN, ABSENT))
    edges = "; ".join(
        f"at load {number(y)} between {number(good)} (holds) and {number(bad)}"
        for y, good, bad in m.borders()
    )
    return (f"{m.claim}: {m.title}", m.x, *counts, edges or "no border inside the map")


def _plot(m: ClaimMap, number_of: int) -> Plot:
    xs = sorted({x for x, _ in m.points})
    ys = sorted({y for _, y in m.points})

    def paint(axes: "Axes") -> None:
        for status, (marker, colour) in _LOOKS.items():
            at = [p for p, s in m.statuses.items() if s == status]
            axes.plot(
                [xs.index(x) for x, _ in at],
                [ys.index(y) for _, y in at],
                marker,
                ms=9,
                mew=1.6,
                color=colour,
                fillstyle="none" if status == OPEN else "full",
                label=status,
            )
        for (x, y), i in m.points.items():
            axes.annotate(
                number(i.mean), (xs.index(x), ys.index(y)), xytext=(0, 9),
                textcoords="offset points", ha="center", fontsize=7.5,
            )  # fmt: skip
        axes.set_xticks(range(len(xs)), [number(x) for x in xs])
        axes.set_yticks(range(len(ys)), [number(y) for y in ys])
        axes.set_xlim(-0.6, len(xs) - 0.4)
        axes.set_ylim(-0.6, len(ys) - 0.1)
        axes.set_xlabel(m.x)
        axes.set_ylabel(m.y)

    return Plot(
        f"map-{number_of}",
        f"{m.claim}: {m.title}, by {m.x.split(',')[0]}",
        f"Asked for: {number(m.figure)} {m.unit}. Numbers are means over replicates.",
        paint,
    )
