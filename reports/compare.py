"""Small things that every comparison section shares."""

import math

import numpy as np

from reports import metrics as m
from reports.intervals import Interval, paired_ratio
from reports.tables import Run


def ratio_at(run: Run, metric: m.Metric, percent: float) -> Interval:
    """Return candidate / baseline of one failure-aware percentile, paired over replicates."""
    return ratio_at_level(run, metric, percent, run.confidence)


def ratio_at_level(run: Run, metric: m.Metric, percent: float, confidence: float) -> Interval:
    """Return :func:`ratio_at` at another level; NaN where a percentile is ∞ or n/a."""
    base = m.percentiles(run, run.baseline, metric, percent)
    cand = m.percentiles(run, run.candidate, metric, percent)
    if not (np.isfinite(base) & np.isfinite(cand)).all():
        return Interval(math.nan, math.nan, math.nan, len(base))
    return paired_ratio(cand, base, confidence)


def short(metric: str) -> str:
    """Return the field's short name of a metric."""
    names = {
        "ttft_s": "TTFT",
        "tpot_s": "TPOT",
        "e2e_s": "e2e",
        "ntpot_s": "NTPOT",
        "dispatch_wait_s": "dispatch wait",
        "kernel_dispatch_s": "kernel dispatch",
    }
    return names[metric]


def series(run: Run) -> list[tuple[int, str]]:
    """Return (style number, arm): baseline 0, candidate 1, then the others, drawn in this order."""
    rest = [a for a in run.arms if a not in (run.baseline, run.candidate)]
    return list(enumerate(dict.fromkeys([run.baseline, run.candidate, *rest])))
