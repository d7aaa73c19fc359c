"""When does a claim hold: a map over two conditions, with the border where it flips.

``manifest["maps"]`` holds one mapping per map: ``claim``, ``title``, ``unit``, ``figure`` (what the
claim asks for), ``at_most`` (whether lower is better), ``x`` and ``y`` (axis labels), and
``cells``: rows of ``x``, ``y``, ``replicate`` and ``value``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dispatch.errors import InputError
from reports import draw
from reports.document import Paragraph, Plot, Section, Table
from reports.intervals import Interval, t_interval
from reports.numbers import number, span
from reports.tables import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOLDS: Final = "holds"
FAILS: Final = "does not hold"
OPEN: Final = "not enough evidence"
_LOOKS: Final = {HOLDS: ("s", draw.GOOD), FAILS: ("x", draw.BAD), OPEN: ("o", draw.SOFT)}


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
    for row in table["cells"]:
        values.setdefault((float(row["x"]), float(row["y"])), []).append(float(row["value"]))
    points = {at: t_interval(v, confidence) for at, v in sorted(values.items())}
    at_most = bool(table.get("at_most", True))
    figure = float(table["figure"])
    statuses = {at: _status(i, figure, at_most) for at, i in points.items()}
    return ClaimMap(
        str(table["claim"]), str(table["title"]), str(table.get("unit", "")), figure,
        str(table["x"]), str(table["y"]), points, statuses,
    )  # fmt: skip


def _status(interval: Interval, figure: float, at_most: bool) -> str:
    if not interval.known:
        return OPEN
    if at_most:
        return HOLDS if interval.high <= figure else FAILS if interval.low > figure else OPEN
    return HOLDS if interval.low >= figure else FAILS if interval.high < figure else OPEN


def section(maps: tuple[ClaimMap, ...]) -> Section | None:
    """Return the section on when claims hold; None without any map."""
    if not maps:
        return None
    made = Section("maps", "When does each claim hold")
    made.add(
        Paragraph(
            "Every point is a comparison of its own, judged as in the claims table. Filled squares "
            "hold, crosses do not, rings are open."
        )
    )
    made.add(*(_plot(m, i) for i, m in enumerate(maps)))
    for m in maps:
        for y, good, bad in m.borders():
            made.add(
                Paragraph(
                    f"{m.claim} at {m.y} = {number(y)}: holds to {m.x} = {number(good)}, no longer "
                    f"at {number(bad)}."
                )
            )
        rows = [
            (f"{m.x} {number(x)}, {m.y} {number(y)}", span(i, m.unit), m.statuses[x, y])
            for (x, y), i in m.points.items()
        ]
        head = ("Point", "value [interval]", "status")
        made.add(Table(f"{m.claim}: {m.title}", head, rows, status=2, folded=True))
    return made


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
        f"{m.claim}: {m.title}",
        f"Asked for: {number(m.figure)} {m.unit}. Numbers are means over replicates.",
        paint,
    )
