"""How long requests took: quantiles with intervals, and the three pictures that show the tail."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reports import metrics as m
from reports.compare import ratio_at, short
from reports.document import Paragraph, Section, Table
from reports.intervals import Interval, holm, nearest_rank, p_worse, paired_ratio, sample_floor
from reports.latency_plots import latency_plots
from reports.numbers import change_span, count, seconds
from reports.tables import Run

SHOWN: Final = ("ttft_s", "tpot_s", "e2e_s", "ntpot_s", "dispatch_wait_s", "kernel_dispatch_s")


@dataclass(frozen=True, slots=True)
class Row:
    """One percentile of one metric: every arm's pooled value and the paired change."""

    metric: str
    percent: float
    values: dict[str, float]
    change: Interval
    needs: int
    """Samples needed where an arm has fewer, else 0."""


@dataclass(frozen=True, slots=True)
class Latency:
    """All percentile rows, and the mean change on requests that finished in both arms."""

    rows: tuple[Row, ...]
    survivors: Interval
    survivor_count: int

    def row(self, metric: str, percent: float) -> Row:
        """Return the row of one percentile."""
        return next(r for r in self.rows if (r.metric, r.percent) == (metric, percent))

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures; an infinite percentile becomes the text "inf"."""
        rows = [
            {
                "metric": r.metric,
                "percent": r.percent,
                "arms": {a: _json(v) for a, v in r.values.items()},
                "ratio": r.change.as_dict(),
                "needs": r.needs,
            }
            for r in self.rows
        ]
        return {
            "percentiles": rows,
            "survivors_mean_e2e_ratio": self.survivors.as_dict(),
            "survivors": self.survivor_count,
        }


def _json(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return "inf" if math.isinf(value) else value


def analyse(run: Run) -> Latency:
    """Return every percentile of every metric, and the survivors' mean change of e2e."""
    rows = []
    for name in SHOWN:
        metric = m.METRICS[name]
        whole = {arm: m.pooled(run, arm, metric) for arm in run.arms}
        for percent in m.PERCENTS:
            floor = sample_floor(percent)
            values = {
                arm: nearest_rank(x, percent) if len(x) >= floor else math.nan
                for arm, x in whole.items()
            }
            needs = floor if any(len(x) < floor for x in whole.values()) else 0
            rows.append(Row(name, percent, values, ratio_at(run, metric, percent), needs))
    return Latency(tuple(rows), *survivors(run))


def survivors(run: Run) -> tuple[Interval, int]:
    """Return candidate / baseline of the mean e2e over requests that finished in both arms."""
    return survivors_between(run, run.baseline, run.candidate)


def survivors_between(
    run: Run, a: str, b: str, confidence: float | None = None
) -> tuple[Interval, int]:
    """Return b / a of the mean e2e over requests that finished in both, and how many did."""
    compute = m.METRICS["e2e_s"].compute
    means: list[tuple[float, float]] = []
    total = 0
    for rep in run.replicates:
        first, second = run.cells[a, rep], run.cells[b, rep]
        both = first.finished & second.finished
        total += int(both.sum())
        if both.any():
            pair = (float(compute(c)[both].mean()) for c in (first, second))
            means.append((next(pair), next(pair)))
    if not means:
        return Interval(math.nan, math.nan, math.nan, 0), 0
    base, cand = np.array(means).T
    return paired_ratio(cand, base, confidence or run.confidence), total


def slower(run: Run, data: Latency) -> str:
    """Say which typical latencies are shown to get worse: the price of what the SLOs gain.

    Holm's correction runs over every percentile looked at (p50 and p90 of TTFT, TPOT and e2e).
    """
    rows = [r for r in data.rows if r.metric in SHOWN[:3] and r.percent in (50.0, 90.0)]
    logs = [_logs(r.change) for r in rows]
    adjusted = holm([p_worse(x) for x in logs])
    alpha = (1 - run.confidence) / 2
    worse = [r for r, p in zip(rows, adjusted, strict=True) if p <= alpha]
    if not worse:
        return ""
    told = ", ".join(f"{short(r.metric)} p{r.percent:g} {change_span(r.change)}" for r in worse)
    return f"**What got slower**: {told}."


def _logs(ratio: Interval) -> Interval:
    if not ratio.known:
        return ratio
    low, mean, high = (math.log(x) for x in (ratio.low, ratio.mean, ratio.high))
    return Interval(mean, low, high, ratio.n, ratio.sd)


def section(run: Run, data: Latency) -> Section:
    """Return the latency section."""
    made = Section("latency", "Latency")
    made.add(
        Paragraph(
            "All percentiles are failure-aware: a request that failed is a sample of infinite "
            "latency, so dropping slow work cannot flatter an arm. Changes compare "
            f"`{run.candidate}` with `{run.baseline}` on the same resampled traces."
        )
    )
    made.add(*latency_plots(run))
    made.add(_table(run, data))
    if data.survivor_count:
        made.add(
            Paragraph(
                f"On the {count(data.survivor_count)} requests that finished in both arms the mean "
                f"e2e latency changes by **{change_span(data.survivors)}**. Survivors alone "
                "flatter an arm that loses its large requests; that is why both figures stand here."
            )
        )
    return made


def _why_none(run: Run, r: Row) -> str:
    """Say why a change has no figure although both pooled percentiles have one."""
    metric = m.METRICS[r.metric]
    found = [m.percentiles(run, a, metric, r.percent) for a in (run.baseline, run.candidate)]
    if any(np.isinf(x).any() for x in found):
        return "no ratio: ∞ in some replicates"
    return f"n/a (needs ≥ {sample_floor(r.percent):,} a replicate)"


def _table(run: Run, data: Latency) -> Table:
    rows = []
    lost = {a: int(m.counts(run.of(a), m.unfinished).sum()) for a in run.arms}
    for r in data.rows:
        cells = [
            f"n/a (needs ≥ {r.needs:,})"
            if math.isnan(v) and r.needs
            else f"∞ ({lost[a]:,} failed)"
            if math.isinf(v)
            else seconds(v)
            for a, v in r.values.items()
        ]
        change = "no ratio: ∞" if any(map(math.isinf, r.values.values())) else "n/a"
        if 0.0 in r.values.values():
            change = "no ratio: 0"
        if not math.isnan(r.change.mean):
            change = change_span(r.change)
        elif change == "n/a":
            change = _why_none(run, r)
        rows.append((f"{short(r.metric)} p{r.percent:g}", *cells, change))
    level = f"{run.confidence:.0%}".replace("%", " %")
    head = ("Percentile", *run.arms, f"change, {run.candidate} vs {run.baseline} [{level}]")
    return Table("Failure-aware percentiles, pooled over replicates", head, rows, folded=True)
