"""Honest intervals over replicates, and what they decide.

A replicate is one block-resampled trace that every arm replayed, so arms are compared by the
differences of pairs: mean(d) +- t(1 - alpha/2, n - 1) * sd(d) / sqrt(n).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reports.student import binomial_bounds, t_quantile, t_sf

MAX_SEEDS = 1000  # beyond this "more seeds" is no advice
POWER = 0.9  # chance that the advised number of seeds decides


class Verdict3(StrEnum):
    """The three answers that an interval can give."""

    safe = "safe"
    unsafe = "unsafe"
    unsure = "not enough evidence"


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over *n* replicates with its two-sided interval; NaN limits where n < 2."""

    mean: float
    low: float
    high: float
    n: int
    sd: float = math.nan

    @property
    def known(self) -> bool:
        """Whether both limits are finite."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def scaled(self, factor: float) -> "Interval":
        """Return the interval in another unit; a negative *factor* swaps the limits."""
        low, high = sorted((self.low * factor, self.high * factor))
        return Interval(self.mean * factor, low, high, self.n, self.sd * abs(factor))

    def as_dict(self) -> dict[str, float | int | None]:
        """Return JSON-able figures; what is not finite becomes None."""
        return {
            "mean": _finite(self.mean),
            "low": _finite(self.low),
            "high": _finite(self.high),
            "n": self.n,
        }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def t_interval(values: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the mean of *values* (one a replicate) with its Student interval."""
    x = np.asarray(values, dtype=float)
    if not len(x) or not np.isfinite(x).all():
        return Interval(math.nan, math.nan, math.nan, len(x))
    mean = float(x.mean())
    if len(x) < 2:
        return Interval(mean, math.nan, math.nan, len(x))
    sd = float(x.std(ddof=1))
    half = t_quantile(0.5 + confidence / 2, len(x) - 1) * sd / math.sqrt(len(x))
    return Interval(mean, mean - half, mean + half, len(x), sd)


def paired(candidate: ArrayLike, baseline: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the interval of candidate - baseline over replicates, paired by position."""
    return t_interval(np.asarray(candidate, float) - np.asarray(baseline, float), confidence)


def paired_ratio(candidate: ArrayLike, baseline: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the interval of candidate / baseline, paired on logarithms (geometric mean)."""
    c, b = np.asarray(candidate, float), np.asarray(baseline, float)
    if not ((c > 0) & (b > 0)).all():
        return Interval(math.nan, math.nan, math.nan, len(c))
    logs = t_interval(np.log(c) - np.log(b), confidence)
    return Interval(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high), logs.n, logs.sd)


def fieller(upper: ArrayLike, lower: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return mean(upper) / mean(lower) of paired samples with its interval (Fieller 1954).

    NaN throughout where the sign of the lower mean is not sure at this level: then every ratio is
    compatible with the samples.
    """
    x, y = np.asarray(upper, float), np.asarray(lower, float)
    n = len(x)
    nothing = Interval(math.nan, math.nan, math.nan, n)
    if not n or not y.mean():
        return nothing
    ratio = float(x.mean() / y.mean())
    if n < 2:
        return Interval(ratio, math.nan, math.nan, n)
    spread = np.cov(x, y, ddof=1) * t_quantile(0.5 + confidence / 2, n - 1) ** 2 / n
    a = float(y.mean() ** 2 - spread[1, 1])
    b = float(x.mean() * y.mean() - spread[0, 1])
    c = float(x.mean() ** 2 - spread[0, 0])
    root = b * b - a * c
    if a <= 0 or root < 0:
        return nothing
    low, high = (b - math.sqrt(root)) / a, (b + math.sqrt(root)) / a
    return Interval(ratio, low, high, n)


def welch(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> Interval:
    """Return the interval of mean(b) - mean(a) for unpaired samples (Welch-Satterthwaite df)."""
    x, y = np.asarray(a, float), np.asarray(b, float)
    mean = float(y.mean() - x.mean()) if len(x) and len(y) else math.nan
    if min(len(x), len(y)) < 2 or not math.isfinite(mean):
        return Interval(mean, math.nan, math.nan, min(len(x), len(y)))
    vx, vy = x.var(ddof=1) / len(x), y.var(ddof=1) / len(y)
    if vx + vy == 0:
        return Interval(mean, mean, mean, min(len(x), len(y)), 0.0)
    df = (vx + vy) ** 2 / (vx**2 / (len(x) - 1) + vy**2 / (len(y) - 1))
    half = t_quantile(0.5 + confidence / 2, float(df)) * math.sqrt(vx + vy)
    return Interval(mean, mean - half, mean + half, min(len(x), len(y)), math.sqrt(vx + vy))


def rate_difference(
    candidate: NDArray[np.int64],
    baseline: NDArray[np.int64],
    offered: NDArray[np.int64],
    confidence: float = 0.95,
) -> Interval:
    """Return the interval of the difference of two event rates, counts per replicate.

    Equal counts in every replicate have no spread for t to see (two arms without one failure): then
    the exact binomial bounds of the pooled counts give the width, so that zero of few is no proof.
    """
    if not offered.all():
        return Interval(math.nan, math.nan, math.nan, len(offered))
    interval = paired(candidate / offered, baseline / offered, confidence)
    if interval.n and not (interval.sd or 0.0) > 0.0:
        n = int(offered.sum())
        low_c, high_c = binomial_bounds(int(candidate.sum()), n, confidence)
        low_b, high_b = binomial_bounds(int(baseline.sum()), n, confidence)
        return Interval(interval.mean, low_c - high_b, high_c - low_b, interval.n, 0.0)
    return interval


def no_worse(interval: Interval, margin: float) -> Verdict3:
    """Judge a difference (larger is worse) against a non-inferiority *margin*."""
    if not interval.known:
        return Verdict3.unsure
    if interval.high <= margin:
        return Verdict3.safe
    return Verdict3.unsafe if interval.low > margin else Verdict3.unsure


def p_worse(interval: Interval, margin: float = 0.0) -> float:
    """Return the one-sided p value of "the difference exceeds *margin*"; NaN where unknown."""
    if interval.n < 2 or not interval.known:
        return math.nan
    if not interval.sd > 0:
        return 0.0 if interval.low > margin else 1.0
    return t_sf((interval.mean - margin) / (interval.sd / math.sqrt(interval.n)), interval.n - 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p values; NaN stays NaN and joins no family."""
    adjusted = [math.nan] * len(p_values)
    order = sorted((p, i) for i, p in enumerate(p_values) if not math.isnan(p))
    running = 0.0
    for rank, (p, i) in enumerate(order):
        running = max(running, min(1.0, (len(order) - rank) * p))
        adjusted[i] = running
    return adjusted


def seeds_to_decide(interval: Interval, margin: float, confidence: float = 0.95) -> int | None:
    """Return how many replicates in all would decide with power 0.9; None if over 1,000.

    Mean and spread are taken as they are now: n with (t(1 - alpha/2) + t(0.9)) sd / sqrt(n) at most
    the distance of the mean from the margin.
    """
    distance = abs(interval.mean - margin)
    if interval.n < 2 or not math.isfinite(distance):
        return 2 if interval.n < 2 else None
    if not interval.sd > 0:
        return interval.n

    def decides(n: int) -> bool:
        reach = t_quantile(0.5 + confidence / 2, n - 1) + t_quantile(POWER, n - 1)
        return bool(reach * interval.sd / math.sqrt(n) <= distance)

    low, high = interval.n, MAX_SEEDS
    if not decides(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if decides(middle) else (middle + 1, high)
    return low


def sample_floor(percent: float) -> int:
    """Return the least sample for which a percentile is printed.

    99 % sure of at least two samples beyond it (p90 64, p95 130, p99 662); beyond p99 of at least
    one (p99.9 4,603). Lower percentiles by symmetry.
    """
    tail = min(percent, 100.0 - percent) / 100.0
    spare = 0 if tail < 0.00999 else 1
    n = 1 + spare
    while _at_most(spare, n, tail) > 0.01:
        n += 1
    return n


def _at_most(k: int, n: int, p: float) -> float:
    none = (1.0 - p) ** n
    return none if k == 0 else none + n * p * (1.0 - p) ** (n - 1)


def nearest_rank(ordered: NDArray[np.float64], percent: float) -> float:
    """Return the nearest-rank percentile of *ordered* samples (ceil(p n)-th), inf included."""
    if not len(ordered):
        return math.nan
    # 1e-9 forgives the rounding of p * n, which else lifts an exact rank by one.
    rank = max(1, math.ceil(percent / 100.0 * len(ordered) - 1e-9))
    return float(ordered[rank - 1])
