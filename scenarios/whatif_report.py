"""A what-if in words and pictures: a table of all points, small multiples with intervals."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reports import draw
from reports.document import Document, Paragraph, Plot, Section, Table
from reports.intervals import Interval, t_interval
from reports.numbers import number
from scenarios.whatif import Grid, typed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Rows = Sequence[Mapping[str, Any]]

METRICS: Final[Mapping[str, tuple[str, float]]] = {
    "attainment": ("SLO attainment, %", 100.0),
    "oom_rate": ("OOM rate, %", 100.0),
    "ttft_p99_s": ("TTFT p99, s", 1.0),
    "tpot_p99_s": ("TPOT p99, ms", 1000.0),
    "e2e_p99_s": ("e2e p99, s", 1.0),
}
_DRAWN: Final = ("attainment", "ttft_p99_s")
_MOST_PANELS: Final = 12


def document(made: Grid, rows: Rows) -> Document:
    """Return the report of a grid that has been run."""
    base = made.base
    failed = [row for row in rows if row["failure"]]
    section = Section("grid", "Every point of the grid")
    section.add(
        Paragraph(
            f"{len(made.points)} points, {len(base.arms)} arms, {base.replicates} replicates: "
            f"{len(rows):,} cells. Arms of a replicate share arrivals, lengths, handling times and "
            "faults. Figures are means over replicates with 95 % intervals (Student); a "
            "percentile counts failures as infinite, and ∞ in any replicate makes it ∞. "
            "Uncalibrated unless `zerolayer live validate` says otherwise.",
            "note",
        )
    )
    if failed:
        texts = sorted({str(row["failure"]) for row in failed})
        section.add(Paragraph(f"{len(failed)} cells failed: {'; '.join(texts)}", "warn"))
    section.add(table(made, rows), *panels(made, rows))
    title = f"What if: {base.title or base.name}"
    return Document(title, f"scenario {base.name}, seed {base.seed}", [section])


def label_keys(made: Grid) -> list[str]:
    """Return the columns that say where a cell stands."""
    keys = [axis.key for axis in made.axes]
    return [*keys, "what_if"] if any("what_if" in p.labels for p, _ in made.points) else keys


def figure(rows: Rows, labels: Mapping[str, str], arm: str, metric: str) -> Interval:
    """Return one metric of one arm at one point, over replicates."""
    values = [
        float(row.get(metric, math.nan))
        for row in rows
        if row["arm"] == arm and all(row.get(k) == v for k, v in labels.items())
    ]
    return over_replicates(values)


def over_replicates(values: Sequence[float]) -> Interval:
    """Return the mean with its interval; one infinite replicate makes the mean infinite."""
    if any(math.isinf(value) for value in values):
        return Interval(math.inf, math.nan, math.nan, len(values))
    return t_interval(np.array(values, dtype=np.float64))


def table(made: Grid, rows: Rows) -> Table:
    """Return one row per point and arm."""
    keys = label_keys(made)
    head = (*keys, "arm", *(title for title, _ in METRICS.values()))
    body = []
    for point, scenario in made.points:
        for arm in scenario.arms:
            cells = []
            for metric, (_, scale) in METRICS.items():
                cells.append(as_text(figure(rows, point.labels, arm.name, metric).scaled(scale)))
            labels = [point.labels.get(key, "") for key in keys]
            body.append((*labels, arm.name, *cells))
    return Table("All points", head, body, frozenset(range(len(keys) + 1)))


def as_text(interval: Interval) -> str:
    """Write a mean with the half width of its interval, where it has one."""
    half = (interval.high - interval.low) / 2
    text = number(interval.mean)
    return f"{text} ± {number(half, 2)}" if math.isfinite(half) else text


def panels(made: Grid, rows: Rows) -> list[Plot]:
    """Return small multiples: x is the first axis, a panel for each setting of the others."""
    if not made.axes:
        return []
    first, rest = made.axes[0], made.axes[1:]
    settings: dict[tuple[str, ...], None] = {}
    for point, _ in made.points:
        if point.labels.get("what_if", "base") == "base":
            settings[tuple(point.labels[axis.key] for axis in rest)] = None
    found = []
    for metric in _DRAWN:
        for number_, setting in enumerate(list(settings)[:_MOST_PANELS]):
            labels = dict(zip((axis.key for axis in rest), setting, strict=True))
            found.append(_panel(made, rows, metric, first.key, labels, f"{metric}-{number_}"))
    return found


def _panel(
    made: Grid, rows: Rows, metric: str, key: str, labels: Mapping[str, str], name: str
) -> Plot:
    title, scale = METRICS[metric]
    values = next(axis.values for axis in made.axes if axis.key == key)
    places = [typed(value) for value in values]
    numeric = all(isinstance(place, int | float) for place in places)
    xs = places if numeric else list(range(len(values)))
    arms = [arm.name for arm in made.base.arms]
    lines = {
        arm: [figure(rows, {**labels, key: value}, arm, metric).scaled(scale) for value in values]
        for arm in arms
    }
    where = ", ".join(f"{k} = {v}" for k, v in labels.items())

    def paint(axes: "Axes") -> None:
        for at, (arm, intervals) in enumerate(lines.items()):
            colour, dash = draw.SERIES[at % 6], draw.DASHES[at % 6]
            known = [(x, i) for x, i in zip(xs, intervals, strict=True) if math.isfinite(i.mean)]
            axes.plot(
                [x for x, _ in known], [i.mean for _, i in known], color=colour, ls=dash, lw=1.6,
                marker="o", ms=3.5, label=arm,
            )  # fmt: skip
            for x, i in known:
                if i.known:
                    axes.plot([x, x], [i.low, i.high], color=colour, lw=1.1)
        axes.set_xlabel(key)
        axes.set_ylabel(title)
        if not numeric:
            axes.set_xticks(xs, list(values))
        axes.legend(loc="best")
        axes.margins(x=0.06, y=0.1)

    reading = "; ".join(
        f"{arm}: " + ", ".join(f"{v} {number(i.mean)}" for v, i in zip(values, found, strict=True))
        for arm, found in lines.items()
    )
    return Plot(f"whatif-{name}", f"{title}{' at ' + where if where else ''}", reading, paint)
