"""What is measured of a request, with the formula that stands beside every figure.

a planned arrival, d start of the first decision, e end of the last decision, s first kernel,
f first token, l last token, n output tokens. Failures are +inf samples of failure-aware figures.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dispatch.outcomes import Outcome
from reports.intervals import nearest_rank, sample_floor
from reports.tables import Bools, Floats, Requests, Run

PERCENTS: Final = (50.0, 90.0, 95.0, 99.0, 99.9)
SHIFT_PERCENTS: Final = (10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
ERRORS: Final = (Outcome.oom, Outcome.timed_out, Outcome.rejected, Outcome.failed)


def minus(later: str, earlier: str) -> Callable[[Requests], Floats]:
    """Return the difference of two time columns as a function of the requests."""

    def difference(cell: Requests) -> Floats:
        value: Floats = np.round(cell[later] - cell[earlier], 9)  # a run's clock ticks in ns
        return value

    return difference


def time_per_output_token(cell: Requests) -> Floats:
    """Return (l - f) / (n - 1); NaN for fewer than two tokens."""
    n = cell["output_tokens"].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = (cell["end_s"] - cell["first_token_s"]) / (n - 1.0)
    value[n < 2] = np.nan
    result: Floats = value
    return result


def per_output_token(cell: Requests) -> Floats:
    """Return (l - a) / n, the normalised latency."""
    n = np.maximum(cell["output_tokens"].astype(np.float64), 1.0)
    value: Floats = (cell["end_s"] - cell["arrival_s"]) / n
    return value


@dataclass(frozen=True, slots=True)
class Metric:
    """One quantity of a request: formula, unit and population; lower is better."""

    name: str
    title: str
    formula: str
    note: str
    compute: Callable[[Requests], Floats]
    unit: str = "s"


METRICS: Final = {
    m.name: m
    for m in (
        Metric(
            "ttft_s",
            "Time to first token (TTFT)",
            "f − a",
            "From the planned arrival, not from the send (some tools start at the send).",
            minus("first_token_s", "arrival_s"),
        ),
        Metric(
            "tpot_s",
            "Time per output token (TPOT)",
            "(l − f) / (n − 1), n ≥ 2",
            "Undefined for one token and then left out. The first token is not counted: tools "
            "that divide the latency by n give another figure.",
            time_per_output_token,
        ),
        Metric(
            "e2e_s",
            "End-to-end latency (e2e)",
            "l − a",
            "From the planned arrival, waiting included; attempts that were thrown away too.",
            minus("end_s", "arrival_s"),
        ),
        Metric(
            "ntpot_s",
            "Normalised latency (NTPOT)",
            "(l − a) / n",
            "End-to-end latency per output token, first token and waiting included.",
            per_output_token,
        ),
        Metric(
            "dispatch_wait_s",
            "Dispatch wait",
            "d − a",
            "From the planned arrival to the start of the first decision: the door's queue.",
            minus("decision_start_s", "arrival_s"),
        ),
        Metric(
            "kernel_dispatch_s",
            "Kernel dispatch time (GPU queue)",
            "s − e",
            "From the end of the decision to the first kernel; kernel_dispatch_time_ms of usage.",
            minus("started_s", "decision_end_s"),
        ),
    )
}

OTHER_DEFINITIONS: Final = (
    (
        "Failure-aware percentile",
        "nearest rank ⌈p·N⌉ on all servable requests, a failure = +∞",
        "Never interpolated, never averaged over replicates: an arm's figure is the percentile of "
        "the pooled raw samples. Where failures reach it, it is printed as ∞ (n failed).",
    ),
    (
        "Servable requests",
        "offered − (rejected_context or cancelled in every arm)",
        "A prompt beyond the model's context can be served by no arm, and a client that leaves in "
        "every arm says nothing of an arm: both are counted apart.",
    ),
    (
        "Sample floor",
        "least n with P(X ≤ 1) ≤ 1 %, X ~ Binomial(n, 1 − p); p99.9: P(X = 0) ≤ 1 %",
        "Below it a percentile prints n/a and how many samples it needs: p90 64, p95 130, p99 662, "
        "p99.9 4,603.",
    ),
    (
        "Goodput and attainment",
        "good ⇔ finished ∧ every SLO threshold met; attainment = good / servable offered",
        "OOM, rejected, timed out and unfinished count as missed. Goodput = good / span of "
        "arrivals. A percentile SLO becomes the threshold of each request.",
    ),
    (
        "OOM rate, error rate",
        "outcome oom / servable offered; (oom + timed out + rejected + failed) / servable offered",
        "Requests, not attempts. OOM events and retries of attempts are counted apart.",
    ),
    (
        "Interval of a difference",
        "mean(d) ± t(1 − α/2, n − 1) · sd(d) / √n over replicates",
        "d pairs the arms by replicate (the same resampled trace); ratios on logarithms. Equal "
        "counts in all replicates take the exact binomial bounds of the pooled counts instead.",
    ),
    (
        "Utilisation spread over time",
        "mean over GPUs of sd over windows of the busy share, in points",
        "Within a GPU, sd over N (not N − 1); a last window that is cut short is left out. The "
        "window is printed with it. Claim C2 is judged on this one.",
    ),
    (
        "Utilisation spread across GPUs",
        "sd, max − min, CV and Jain's (Σu)² / (N Σu²) over GPUs of the time-mean busy share",
        "Another quantity than the one above; sd over N. A small spread is no proxy for low "
        "latency: optimal weights over unlike servers leave the spread above zero.",
    ),
)


def unfinished(cell: Requests) -> Bools:
    """Return True for servable requests without an answer in full."""
    lost: Bools = cell.servable & ~cell.finished
    return lost


def ordered(cell: Requests, metric: Metric) -> Floats:
    """Return the failure-aware samples of one cell, ascending, failures as +inf; cached."""
    key = f"sorted:{metric.name}"
    if key not in cell.cache:
        value = metric.compute(cell)[cell.finished]
        value = np.sort(value[~np.isnan(value)])
        lost = np.full(int(unfinished(cell).sum()), np.inf)
        cell.cache[key] = np.concatenate([value, lost])
    samples: Floats = cell.cache[key]
    return samples


def pooled(run: Run, arm: str, metric: Metric) -> Floats:
    """Return the failure-aware samples of all replicates of an *arm*, ascending."""
    return np.sort(np.concatenate([ordered(c, metric) for c in run.of(arm)]), kind="stable")


def percentiles(run: Run, arm: str, metric: Metric, percent: float) -> Floats:
    """Return one failure-aware percentile per replicate; NaN below the sample floor."""
    floor = sample_floor(percent)
    cells = [ordered(c, metric) for c in run.of(arm)]
    return np.array([nearest_rank(c, percent) if len(c) >= floor else np.nan for c in cells])


def missed(cell: Requests, thresholds: dict[str, float]) -> Bools:
    """Return True for servable requests that failed or miss any of *thresholds* (metric -> s)."""
    bad = unfinished(cell)
    for name, limit in sorted(thresholds.items()):
        value = METRICS[name].compute(cell)
        bad |= cell.servable & cell.finished & (value > limit)
    return bad


def thresholds(run: Run) -> dict[str, float]:
    """Return the latency thresholds of the scenario's SLOs by metric name."""
    slo = run.scenario.get("slo") or {}
    wanted = {"ttft_s": "ttft_p99_s", "tpot_s": "tpot_p99_s", "e2e_s": "e2e_p99_s"}
    return {m: float(slo[key]) for m, key in wanted.items() if slo.get(key) is not None}


def misses(cell: Requests, run: Run) -> Bools:
    """Return :func:`missed` for the scenario's own SLOs; cached, as many sections ask for it."""
    if "missed" not in cell.cache:
        cell.cache["missed"] = missed(cell, thresholds(run))
    bad: Bools = cell.cache["missed"]
    return bad


def errors(cell: Requests) -> Bools:
    """Return True for servable requests that ended in an error (not: in flight, cancelled)."""
    wrong: Bools = cell.servable & np.isin(cell["outcome"], ERRORS)
    return wrong


def ooms(cell: Requests) -> Bools:
    """Return True for requests that died of memory."""
    died: Bools = cell.servable & (cell["outcome"] == Outcome.oom)
    return died


def counts(cells: Iterable[Requests], of: Callable[[Requests], Bools]) -> NDArray[np.int64]:
    """Return how many requests of each cell satisfy *of*."""
    return np.array([int(of(c).sum()) for c in cells], dtype=np.int64)


def offered(cells: Iterable[Requests]) -> NDArray[np.int64]:
    """Return how many servable requests each cell was offered."""
    return np.array([int(c.servable.sum()) for c in cells], dtype=np.int64)
