"""The endpoints of the verdict: each SLO of the scenario, both arms, and their difference."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from reports import metrics as m
from reports.intervals import (
    Interval,
    Verdict3,
    nearest_rank,
    no_worse,
    p_worse,
    paired_ratio,
    rate_difference,
    sample_floor,
    seeds_to_decide,
    t_interval,
)
from reports.student import binomial_bounds
from reports.tables import Bools, Floats, Requests, Run


@dataclass(frozen=True, slots=True)
class Figure:
    """One arm's value of an endpoint: pooled figure, failures behind it, and the target's fate."""

    value: float
    failures: int = 0
    needs: int = 0
    """Samples that the percentile needs, where there are too few; else 0."""
    target_met: str = ""
    """met, missed, undecided, or empty where the scenario sets no target."""
    over: Interval | None = None
    """Share of requests over the target."""


class Pair(NamedTuple):
    """The figures of both arms."""

    baseline: Figure
    candidate: Figure


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One SLO of the verdict; *difference* is a ratio or percentage points, see *kind*."""

    key: str
    title: str
    unit: str
    kind: str
    target: float | None
    baseline: Figure
    candidate: Figure
    difference: Interval
    margin: float
    p_worse: float
    verdict: Verdict3
    p_holm: float = math.nan
    seeds: int | None = None
    note: str = ""

    @property
    def slack(self) -> float:
        """How far the interval stays inside the margin, in widths of its half (safe: larger)."""
        scale = self.difference
        half = (scale.high - scale.low) / 2
        gap = self.margin - scale.high
        return gap / half if half > 0 else math.copysign(math.inf, gap) if gap else 0.0


def endpoints_of(run: Run) -> tuple[Endpoint, ...]:
    """Return the endpoints that the scenario's SLOs ask for, unadjusted.

    The OOM rate is always one of them, since its margin is; without any latency SLO so is the
    p99 of e2e.
    """
    slo = run.scenario.get("slo") or {}
    margins = run.scenario.get("margins") or {}
    ratio = float(margins.get("p99_ratio", 1.02))
    points = float(margins.get("oom_rate_points", 0.01))
    found = []
    names = {"ttft_s": "ttft_p99_s", "tpot_s": "tpot_p99_s", "e2e_s": "e2e_p99_s"}
    asked = [metric for metric, key in names.items() if slo.get(key) is not None] or ["e2e_s"]
    for metric in asked:
        target = slo.get(names[metric])
        found.append(_latency(run, m.METRICS[metric], target, ratio, points))
    rates = [("oom_rate", "OOM rate", m.ooms)]
    rates.append(("error_rate", "Error rate", m.errors))
    for key, title, of in rates:
        if key == "oom_rate" or slo.get(key) is not None:
            found.append(_rate(run, key, title, of, slo.get(key), points))
    return tuple(found)


def _latency(
    run: Run, metric: m.Metric, target: float | None, ratio: float, points: float
) -> Endpoint:
    base = m.percentiles(run, run.baseline, metric, 99.0)
    cand = m.percentiles(run, run.candidate, metric, 99.0)
    figures = Pair(*(_p99(run, arm, metric, target) for arm in (run.baseline, run.candidate)))
    short = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "e2e"}[metric.name]
    name = (f"{metric.name[:-2]}_p99", f"{short} p99")
    floor = sample_floor(99.0)
    if np.isnan(base).any() or np.isnan(cand).any():
        fewest = min(len(m.ordered(c, metric)) for c in run.cells.values())
        note = f"n/a: p99 needs {floor} samples a replicate, the smallest has {fewest}"
        nothing = Interval(math.nan, math.nan, math.nan, 0)
        return Endpoint(
            *name,
            "s",
            "ratio",
            target,
            figures.baseline,
            figures.candidate,
            nothing,
            ratio,
            math.nan,
            Verdict3.unsure,
            note=note,
        )  # fmt: skip
    if np.isinf(base).any() or np.isinf(cand).any():
        return _unbounded(run, metric, target, figures, name, points)
    difference = paired_ratio(cand, base, run.confidence)
    logs = t_interval(np.log(cand) - np.log(base), run.confidence)
    return Endpoint(
        *name, "s", "ratio", target, figures.baseline, figures.candidate, difference, ratio,
        p_worse(logs, math.log(ratio)), no_worse(difference, ratio),
        seeds=seeds_to_decide(logs, math.log(ratio), run.confidence),
    )  # fmt: skip


def _unbounded(
    run: Run,
    metric: m.Metric,
    target: float | None,
    figures: Pair,
    name: tuple[str, str],
    points: float,
) -> Endpoint:
    limit = {} if target is None else {metric.name: float(target)}
    what = "failed" if target is None else "failed or over the target"

    def bad(cell: Requests) -> Bools:
        return m.missed(cell, limit)

    rate = _points(run, bad)
    note = (
        "a p99 is ∞ where failures exceed 1 %, so no ratio exists; decided on the share of "
        f"requests that {what}, margin {points:g} points"
    )
    return Endpoint(
        *name, "s", "points", target, figures.baseline, figures.candidate,
        rate, points, p_worse(rate, points), no_worse(rate, points),
        seeds=seeds_to_decide(rate, points, run.confidence), note=note,
    )  # fmt: skip


def _points(run: Run, of: Callable[[Requests], Bools]) -> Interval:
    base, cand = run.of(run.baseline), run.of(run.candidate)
    n = m.offered(base)
    return rate_difference(m.counts(cand, of), m.counts(base, of), n, run.confidence).scaled(100.0)


def _rate(
    run: Run,
    key: str,
    title: str,
    of: Callable[[Requests], Bools],
    target: float | None,
    points: float,
) -> Endpoint:
    figures = []
    for arm in (run.baseline, run.candidate):
        cells = run.of(arm)
        k, n = m.counts(cells, of), m.offered(cells)
        share = float(k.sum() / n.sum()) if n.sum() else math.nan
        over = share_interval(k, n, run.confidence)
        met = _fate(over, target) if target is not None else ""
        if target is not None and not k.sum() and target == 0:
            met = "met"  # no event seen; the interval beside it says how much that proves
        figures.append(Figure(share * 100.0, int(k.sum()), target_met=met, over=over))
    difference = _points(run, of)
    return Endpoint(
        key, title, "%", "points", None if target is None else target * 100.0,
        figures[0], figures[1],
        difference, points, p_worse(difference, points), no_worse(difference, points),
        seeds=seeds_to_decide(difference, points, run.confidence),
    )  # fmt: skip


def share_interval(k: Any, n: Any, confidence: float) -> Interval:
    """Return a share over replicates; exact binomial bounds where all replicates agree."""
    if not len(n) or not n.all():
        return Interval(math.nan, math.nan, math.nan, len(n))
    interval = t_interval(k / n, confidence)
    if not (interval.sd or 0.0) > 0.0:
        low, high = binomial_bounds(int(k.sum()), int(n.sum()), confidence)
        return Interval(interval.mean, low, high, interval.n, 0.0)
    return Interval(
        interval.mean, max(0.0, interval.low), min(1.0, interval.high), interval.n, interval.sd
    )


def _p99(run: Run, arm: str, metric: m.Metric, target: float | None) -> Figure:
    samples: Floats = m.pooled(run, arm, metric)
    lost = int(np.isinf(samples).sum())
    needs = 0 if len(samples) >= sample_floor(99.0) else sample_floor(99.0)
    value = math.nan if needs else nearest_rank(samples, 99.0)
    if target is None:
        return Figure(value, lost, needs)
    cells = run.of(arm)
    over = np.array([int((m.ordered(c, metric) > target).sum()) for c in cells])
    share = share_interval(over, np.array([len(m.ordered(c, metric)) for c in cells]), 0.95)
    return Figure(value, lost, needs, "undecided" if needs else _fate(share, 0.01), share)


def _fate(share: Interval, allowed: float) -> str:
    if not share.known:
        return "undecided"
    if share.high <= allowed:
        return "met"
    return "missed" if share.low > allowed else "undecided"
