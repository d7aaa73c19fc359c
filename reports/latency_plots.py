"""The pictures of latency: distribution with band, tail, and the shift of every quantile."""

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from reports import draw
from reports import metrics as m
from reports.compare import ratio_at, series, short
from reports.document import Plot
from reports.intervals import Interval
from reports.student import t_quantile
from reports.tables import Floats, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GRID: Final = np.concatenate([np.linspace(0.005, 0.99, 90), [0.992, 0.995, 0.998]])


def latency_plots(run: Run) -> list[Plot]:
    """Return the quantile shift, both distributions and the tail of *run*."""
    return [_shift(run), *[_ecdf(run, m.METRICS[k]) for k in ("e2e_s", "ttft_s")], _tail(run)]


def _at(samples: Floats, shares: Floats) -> Floats:
    ranks = np.maximum(np.ceil(shares * len(samples) - 1e-9).astype(int), 1) - 1
    values: Floats = samples[np.minimum(ranks, len(samples) - 1)]
    return values


def _ecdf(run: Run, metric: m.Metric) -> Plot:
    curves = []
    for style, arm in series(run):
        cells = [m.ordered(c, metric) for c in run.of(arm)]
        cells = [c for c in cells if len(c)]
        if not cells:
            continue
        grid = np.array([_at(c, _GRID) for c in cells])
        middle, low, high = _band(grid, run.confidence)
        curves.append((style, arm, middle, low, high))

    def paint(axes: "Axes") -> None:
        for style, arm, middle, low, high in curves:
            ok = np.isfinite(middle)
            colour = draw.SERIES[style % 6]
            axes.plot(
                middle[ok], _GRID[ok] * 100, color=colour, ls=draw.DASHES[style % 6], label=arm
            )
            fine = np.isfinite(low) & np.isfinite(high)
            axes.fill_betweenx(
                _GRID[fine] * 100, low[fine], high[fine], color=colour, alpha=0.2, linewidth=0
            )
        _time_axis(axes, f"{short(metric.name)}, s (log scale)")
        shown = np.concatenate([c[2][np.isfinite(c[2])] for c in curves]) if curves else _GRID
        if len(shown):  # a band may run wild where a curve ends; the curves set the scale
            axes.set_xlim(max(shown.min(), 1e-6) * 0.7, shown.max() * 1.4)
        axes.set_ylabel("requests served within it, %")
        axes.set_ylim(0, 100)
        axes.legend(loc="upper left")

    lost = ", ".join(f"{a} {_lost_share(run, a)}" for _, a in series(run))
    return Plot(
        f"ecdf-{metric.name[:-2]}",
        f"{short(metric.name)}: share of requests within x",
        f"{metric.title}: empirical distribution over all servable requests; the band is the "
        f"interval of each quantile over {len(run.replicates)} replicates. A curve ends below "
        f"100 % where requests failed ({lost}).",
        paint,
    )


def _band(grid: Floats, confidence: float) -> tuple[Floats, Floats, Floats]:
    """Return the middle and the t band of log quantiles over replicates (rows)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.maximum(grid, 1e-9))
        middle = logs.mean(axis=0)
        if len(grid) < 2:
            return np.exp(middle), np.exp(middle), np.exp(middle)
        half = t_quantile(0.5 + confidence / 2, len(grid) - 1) * logs.std(axis=0, ddof=1)
        half = half / math.sqrt(len(grid))
        return np.exp(middle), np.exp(middle - half), np.exp(middle + half)


def _lost_share(run: Run, arm: str) -> str:
    cells = run.of(arm)
    n = int(m.offered(cells).sum())
    return f"{100 * m.counts(cells, m.unfinished).sum() / n:.2f} %" if n else "n/a"


def _time_axis(axes: "Axes", label: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log")
    axes.set_xlabel(label)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _tail(run: Run) -> Plot:
    metric = m.METRICS["e2e_s"]
    curves: list[tuple[int, str, Floats, Floats]] = []
    for style, arm in series(run):
        x = m.pooled(run, arm, metric)
        if not len(x):
            continue
        ranks = np.unique(np.round(np.logspace(0, math.log10(len(x)), 160)).astype(int))
        curves.append((style, arm, x[len(x) - ranks], ranks / len(x) * 100))

    def paint(axes: "Axes") -> None:
        for style, arm, x, share in curves:
            ok = np.isfinite(x) & (x > 0)
            axes.plot(
                x[ok],
                share[ok],
                color=draw.SERIES[style % 6],
                ls=draw.DASHES[style % 6],
                label=arm,
            )
        _time_axis(axes, "e2e latency, s (log scale)")
        axes.set_yscale("log")
        axes.set_ylabel("requests slower than x, %")
        _plain_percent(axes)
        axes.legend(loc="lower left")

    return Plot(
        "tail",
        "The tail: share of requests slower than x",
        "Both axes logarithmic. A curve that levels out before it ends does so at the share of "
        "requests that never finished: ∞ of the failure-aware percentiles.",
        paint,
    )


def _plain_percent(axes: "Axes") -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _shift(run: Run) -> Plot:
    shifts: dict[str, list[tuple[float, Interval]]] = {}
    for name in ("e2e_s", "ttft_s"):
        found = [(p, ratio_at(run, m.METRICS[name], p)) for p in m.SHIFT_PERCENTS]
        shifts[name] = [(p, i) for p, i in found if i.known]
    missing = sorted({p for p in m.SHIFT_PERCENTS if all(p != q for q, _ in shifts["e2e_s"])})
    names = [f"p{p:g}" for p in m.SHIFT_PERCENTS]

    def paint(axes: "Axes") -> None:
        axes.axhline(0, color=draw.INK, lw=0.9)
        for k, (name, rows) in enumerate(shifts.items()):
            if rows:
                _shift_line(axes, k, short(name), rows)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylabel(f"change vs {run.baseline}, %")
        axes.set_xlabel("percentile (failure-aware)")
        if any(shifts.values()):
            axes.legend(loc="best")

    gone = (
        f" No ratio at {', '.join(f'p{p:g}' for p in missing)} of e2e: failures or too few \
samples."
        if missing
        else ""
    )
    return Plot(
        "shift",
        "Quantile shift: who gains and who loses",
        f"Change of each percentile from `{run.baseline}` to `{run.candidate}` with its interval; "
        f"below zero is faster. Typical and worst requests can move apart.{gone}",
        paint,
    )


def _shift_line(axes: "Axes", k: int, label: str, rows: list[tuple[float, Interval]]) -> None:
    x = np.array([m.SHIFT_PERCENTS.index(p) for p, _ in rows]) + (k - 0.5) * 0.22
    y = np.array([(i.mean - 1) * 100 for _, i in rows])
    low = y - np.array([(i.low - 1) * 100 for _, i in rows])
    high = np.array([(i.high - 1) * 100 for _, i in rows]) - y
    axes.errorbar(
        x,
        y,
        yerr=[low, high],
        fmt="os"[k],
        ms=4,
        lw=1.3,
        capsize=2.5,
        color=draw.SERIES[k + 1],
        label=label,
    )
