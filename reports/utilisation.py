"""Two different spreads that are both called utilisation variance, each with its window."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reports.document import Paragraph, Plot, Section, Table
from reports.intervals import Interval, paired, t_interval
from reports.numbers import number, percent, span
from reports.tables import DeviceSeries, Floats, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MEASURES: Final = {
    "mean_points": "mean busy share, %",
    "over_time_points": "spread over time within a GPU (sd over windows), points",
    "across_sd_points": "spread across GPUs (sd of time means), points",
    "across_range_points": "across GPUs, max − min, points",
    "across_cv": "across GPUs, CV (1 = 100 %)",
    "jain": "across GPUs, Jain's index (1 = even)",
}
_MAP_ROWS: Final = 48
_MAP_COLUMNS: Final = 160


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Every measure of every arm, one value a replicate, and the window that they share."""

    window_s: float
    values: dict[str, dict[str, Floats]]
    """arm -> measure -> one value a replicate."""
    differences: dict[str, Interval]

    def of(self, arm: str, measure: str, confidence: float) -> Interval:
        """Return one measure of one arm with its interval over replicates."""
        return t_interval(self.values[arm][measure], confidence)

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        arms = {
            arm: {k: [round(float(x), 12) for x in v] for k, v in measures.items()}
            for arm, measures in self.values.items()
        }
        found = {k: v.as_dict() for k, v in self.differences.items()}
        window = None if math.isnan(self.window_s) else self.window_s
        return {"window_s": window, "arms": arms, "differences": found}


def measures(busy: Floats) -> dict[str, float]:
    """Return every measure of a (GPU, window) matrix of busy shares; an idle GPU counts."""
    means = busy.mean(axis=1)
    mean = float(means.mean())
    squares = float((means**2).sum())
    return {
        "mean_points": 100 * mean,
        "over_time_points": 100 * float(busy.std(axis=1).mean()),
        "across_sd_points": 100 * float(means.std()),
        "across_range_points": 100 * float(means.max() - means.min()),
        "across_cv": float(means.std() / mean) if mean else math.nan,
        "jain": float(means.sum() ** 2 / (len(means) * squares)) if squares else math.nan,
    }


def matrix(
    series: DeviceSeries, devices: int, until_s: float, from_s: float = 0.0
) -> tuple[Floats, float]:
    """Return busy shares as (device, window) up to *until_s*, and the window; no row means idle.

    Windows that begin before *from_s* are left out.
    """
    if not len(series.window_s):
        return np.zeros((0, 0)), math.nan
    window = float(np.median(series.window_s))
    columns = max(1, math.floor(until_s / window))
    slot = np.round(series.time_s / window).astype(np.int64)
    keep = (slot >= 0) & (slot < columns)
    rows = max(devices, int(series.device.max()) + 1)
    busy = np.zeros((rows, columns))
    busy[series.device[keep], slot[keep]] = series.busy_ratio[keep]
    return busy[:, min(math.ceil(from_s / window - 1e-9), columns - 1) :], window


def analyse(run: Run, table: dict[tuple[str, int], DeviceSeries]) -> Utilisation:
    """Return the measures of every arm over the windows up to the last arrival, alike for all."""
    values: dict[str, dict[str, list[float]]] = {}
    window = math.nan
    for (arm, rep), series in table.items():
        until = float(run.cells[arm, rep]["arrival_s"][-1])
        busy, window = matrix(series, len(run.devices(arm)), until, run.warmup_s)
        for key, value in measures(busy).items():
            values.setdefault(arm, {}).setdefault(key, []).append(value)
    arrays = {a: {k: np.array(v) for k, v in found.items()} for a, found in values.items()}
    differences = {}
    if run.baseline in arrays and run.candidate in arrays:
        for key in MEASURES:
            pair = arrays[run.candidate][key], arrays[run.baseline][key]
            differences[key] = paired(*pair, run.confidence)
    return Utilisation(window, arrays, differences)


def section(run: Run, data: Utilisation, table: dict[tuple[str, int], DeviceSeries]) -> Section:
    """Return the utilisation section."""
    made = Section("utilisation", "GPU utilisation and its spread")
    if not data.values:
        return made.add(Paragraph("Not measured: the run folder holds no device series.", "warn"))
    made.add(
        Paragraph(
            "Two quantities go by the name of utilisation variance. **Over time**: how the busy "
            f"share of one GPU swings between windows of {number(data.window_s)} s (mean over "
            "GPUs; claim C2 is judged on it). **Across GPUs**: how unlike the GPUs are in their "
            "time means. All arms share one window of measurement, from 0 to the last arrival. A "
            "small spread is not a proxy for low latency: over unlike GPUs the fastest weights "
            "leave it above zero."
        )
    )
    arms = [a for a in run.arms if a in data.values]
    rows = []
    for key, title in MEASURES.items():
        cells = [span(data.of(a, key, run.confidence), plus=False) for a in arms]
        change = span(data.differences[key]) if key in data.differences else "n/a"
        rows.append((title, *cells, change))
    head = ("Measure", *arms, f"difference, {run.candidate} − {run.baseline}")
    made.add(Table(f"Utilisation over windows of {number(data.window_s)} s", head, rows))
    made.add(*_placements(run))
    for style, arm in enumerate((run.baseline, run.candidate)):
        if (arm, run.replicates[0]) in table:
            made.add(_heat(run, arm, table[arm, run.replicates[0]], style))
    return made


def _placements(run: Run) -> list[Table | Paragraph]:
    """Return where each arm's requests went by GPU kind, and any device that draws a crowd."""
    kinds = sorted({str(d.get("gpu", "?")) for a in run.arms for d in run.devices(a)})
    if not kinds:
        return []
    shares: dict[str, dict[str, float]] = {}
    made: list[Table | Paragraph] = []
    for arm in run.arms:
        share = _shares(run, arm)
        names = [str(d.get("gpu", "?")) for d in run.devices(arm)]
        for name, part in zip(names, share.tolist(), strict=False):
            shares.setdefault(arm, {}).setdefault(name, 0.0)
            shares[arm][name] += part
        if text := crowd(run, arm):
            made.append(Paragraph(text, "warn"))
    rows = [(k, *(percent(shares[a].get(k, 0.0)) for a in run.arms)) for k in kinds]
    return [Table("Where requests went, by GPU kind", ("GPU kind", *run.arms), rows), *made]


def _shares(run: Run, arm: str) -> Floats:
    """Return each device's share of the requests of *arm* that ended on some device."""
    devices = np.concatenate([c["device"] for c in run.of(arm)])
    counts = np.bincount(devices[devices >= 0], minlength=len(run.devices(arm)))
    shares: Floats = counts / max(counts.sum(), 1)
    return shares


def crowd(run: Run, arm: str) -> str:
    """Say which replica draws far more than its share of *arm*'s requests; empty where none."""
    share = _shares(run, arm)
    if len(share) <= 2 or share.max() <= max(3 / len(share), 0.3):
        return ""
    top, about = int(share.argmax()), run.devices(arm)
    named = about[top] if top < len(about) else {"name": f"device {top}"}
    return (
        f"`{arm}` sends **{percent(float(share[top]))}** of its requests to one of {len(share)} "
        f"replicas, {named['name']} ({named.get('gpu', '?')})."
    )


def _heat(run: Run, arm: str, series: DeviceSeries, style: int) -> Plot:
    until = float(run.cells[arm, run.replicates[0]]["arrival_s"][-1])
    busy, window = matrix(series, len(run.devices(arm)), until)
    devices = run.devices(arm)
    labels = [str(d.get("gpu", "")) for d in devices] + [""] * (len(busy) - len(devices))
    shown = busy[:_MAP_ROWS]
    step = max(1, math.ceil(shown.shape[1] / _MAP_COLUMNS))
    columns = shown.shape[1] // step
    small = shown[:, : columns * step].reshape(len(shown), columns, step).mean(axis=2) * 100

    def paint(axes: "Axes") -> None:
        extent = (0.0, columns * step * window / 60, len(small) - 0.5, -0.5)
        image = axes.imshow(
            small,
            aspect="auto",
            cmap="cividis",
            vmin=0,
            vmax=100,
            extent=extent,
            interpolation="nearest",
        )
        axes.grid(False)
        axes.set_xlabel("time, min")
        _kind_ticks(axes, labels[: len(small)])
        bar = axes.inset_axes((1.02, 0.0, 0.025, 1.0))
        axes.figure.colorbar(image, cax=bar)
        bar.set_title("%", fontsize=8)

    cut = f" The first {_MAP_ROWS} of {len(busy)} replicas." if len(busy) > _MAP_ROWS else ""
    return Plot(
        f"heat-{style}",
        f"Busy share by replica and time: {arm}",
        f"Replicate {run.replicates[0]}, means of {number(step * window)} s; dark is idle, bright "
        f"is busy.{cut}",
        paint,
        left_in=0.9,
        right_in=0.5,
    )


def _kind_ticks(axes: "Axes", labels: list[str]) -> None:
    starts = [i for i, x in enumerate(labels) if not i or labels[i - 1] != x]
    ends = [*starts[1:], len(labels)]
    middles = [(a + b - 1) / 2 for a, b in zip(starts, ends, strict=True)]
    axes.set_yticks(middles, [labels[a] for a in starts])
    for edge in starts[1:]:
        axes.axhline(edge - 0.5, color="white", lw=0.8)
