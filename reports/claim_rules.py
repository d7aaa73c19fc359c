"""The rule of each claim: what is measured, and when the claim holds, fails or stays open."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from dispatch.outcomes import RootCause
from reports import metrics as m
from reports import predicted
from reports.appendix import ledger_rows
from reports.claim import (
    ABSENT,
    BUILT,
    CLAIMED_RATIO,
    CLAIMED_SHARE,
    CLAIMED_SPEED_UP,
    CLAIMED_SPREAD_POINTS,
    FAILS,
    HOLDS,
    INPUT,
    OPEN,
    PRECISE_ENOUGH,
    ZERO_NEEDS,
    Claim,
    Evidence,
    at_most,
    both,
)
from reports.compare import ratio_at_level
from reports.intervals import Interval, t_interval
from reports.latency import survivors_between
from reports.numbers import change_span, number, percent, seconds, span
from reports.pressure import ENOUGH_ARRIVALS, arm_config, hard_enough, section_of
from reports.slo import share_interval
from reports.student import binomial_bounds
from reports.tables import Run


def latency(e: Evidence) -> Claim:
    """Judge C1: end-to-end latency, on survivors and failure-aware."""
    run = e.run
    pairs, n = survivors_between(run, run.baseline, run.candidate, e.level)
    aware = {p: ratio_at_level(run, m.METRICS["e2e_s"], p, e.level) for p in (50.0, 90.0, 99.0)}
    status = both(at_most(pairs, CLAIMED_RATIO), at_most(aware[50.0], CLAIMED_RATIO))
    told = [f"finished in both ({n:,}): mean {change_span(pairs)}"]
    lost = [m.percentiles(run, a, m.METRICS["e2e_s"], 50.0) for a in (run.baseline, run.candidate)]
    if np.isinf(lost[1]).any() and np.isfinite(lost[0]).all():
        status = FAILS  # the candidate loses half of its requests, and the baseline does not
    for p, ratio in aware.items():
        shown = change_span(ratio) if ratio.known else "no ratio (∞ or n/a)"
        told.append(f"failure-aware p{p:g}: {shown}")
    rule = (
        "Judged twice, on the mean over requests that finished in both arms and on the "
        "failure-aware median over all; holds only if both whole intervals reach −37 %."
    )
    return Claim(
        "C1", "end-to-end latency falls", "−37 %", "; ".join(told), status if n else ABSENT, rule
    )


def spread(e: Evidence) -> Claim:
    """Judge C2: spread of utilisation within a GPU over 1 s windows."""
    run, data = e.run, e.utilisation
    row = ("C2", "the spread of GPU utilisation narrows to", "0.8 points")
    rule = "Per-GPU sd over 1 s windows, mean over GPUs; the whole interval at or below 0.8 points."
    if run.candidate not in data.values:
        return Claim(*row, "no device series", ABSENT, rule)
    if not math.isclose(data.window_s, 1.0, rel_tol=1e-6):
        return Claim(*row, f"windows here are {number(data.window_s)} s, not 1 s", ABSENT, rule)
    own = data.of(run.candidate, "over_time_points", e.level)
    before = data.of(run.baseline, "over_time_points", e.level)
    across = data.of(run.candidate, "across_sd_points", e.level)
    told = (
        f"{span(own, 'points', plus=False)} over 1 s windows (baseline {number(before.mean)}); "
        f"across GPUs {span(across, 'points', plus=False)}"
    )
    return Claim(*row, told, at_most(own, CLAIMED_SPREAD_POINTS), rule)


def errors(e: Evidence) -> Claim:
    """Judge C3: the error rate is zero."""
    run = e.run
    n = int(m.offered(run.of(run.candidate)).sum())
    k = int(m.counts(run.of(run.candidate), m.errors).sum())
    before = int(m.counts(run.of(run.baseline), m.errors).sum())
    high = binomial_bounds(k, n, run.confidence)[1]
    status = FAILS if k else HOLDS if n >= ZERO_NEEDS else OPEN
    told = (
        f"{k:,} errors of {n:,} ({percent(k / n if n else math.nan)}, true rate up to "
        f"{percent(high)}); baseline {before:,}"
    )
    rule = (
        "No OOM, time-out, rejection or failure among all servable requests, of which there must "
        f"be {ZERO_NEEDS:,}; contexts too long are counted apart."
    )
    return Claim("C3", "the error rate falls to", "0", told, status, rule)


def handling(e: Evidence) -> Claim:
    """Judge C4: handling time before the GPU; only live runs judge it."""
    run = e.run
    row = ("C4", "handling time before the GPU falls", "8.4 ms → 1.7 ms (×4.9)")
    means = {}
    for arm in (run.baseline, run.candidate):
        times = [c["door_wait_s"] + c["door_service_s"] for c in run.of(arm)]
        means[arm] = np.array([float(np.nanmean(t)) if len(t) else math.nan for t in times])
    old, new = (float(means[a].mean()) for a in (run.baseline, run.candidate))
    factor = t_interval(np.log(means[run.baseline]) - np.log(means[run.candidate]), run.confidence)
    low, high = math.exp(factor.low), math.exp(factor.high)
    told = f"{seconds(old)} → {seconds(new)} (×{number(old / new)})"
    if run.world != "live":
        few = "" if hard_enough(run, e.pressure) else "; " + _few(e)
        rule = "Handling times are inputs of a simulation; only live and bench runs judge this."
        return Claim(*row, told + " as put in" + few, INPUT, rule)
    rule = "Mean wait and handling at the door, both arms live; the whole interval reaches ×4.9."
    if not hard_enough(run, e.pressure):
        return Claim(*row, f"{told}; {_few(e)}", ABSENT, rule)
    status = at_most(Interval(-factor.mean, -high, -low, factor.n), -CLAIMED_SPEED_UP)
    return Claim(*row, f"{told} [{number(low)}, {number(high)}]", status, rule)


def _few(e: Evidence) -> str:
    load = e.pressure[e.run.candidate].arrivals_per_window
    return f"{number(load)} arrivals a telemetry window, below {ENOUGH_ARRIVALS:g}"


def misjudged(e: Evidence) -> Claim:
    """Judge C5: share of P0 time-outs rooted in misjudged memory."""
    run = e.run
    row = ("C5", "share of P0 time-outs rooted in misjudged memory", "63 %")
    rule = (
        "Among the baseline's requests without success within the deadline; holds if the interval "
        "contains 63 % and is no wider than ±10 points, does not if it excludes 63 %."
    )
    total = int(e.causes.timeouts[run.baseline].sum())
    if section_of(arm_config(run, run.baseline), "door").get("kind") != "legacy":
        return Claim(*row, "the baseline has no legacy layer", ABSENT, rule)
    if not total:
        return Claim(*row, "no P0 time-out in the baseline", ABSENT, rule)
    share = e.causes.misjudged(run.baseline, e.level)
    told = f"{span(share.scaled(100), '%', plus=False)} of {total:,} P0 time-outs"
    if not share.known:
        status = OPEN
    elif not share.low <= CLAIMED_SHARE <= share.high:
        status = FAILS
    else:
        status = HOLDS if (share.high - share.low) / 2 <= PRECISE_ENOUGH else OPEN
    return Claim(*row, told, status, rule)


def kernels(run: Run) -> tuple[Claim, Claim]:
    """Return C6 and C7: measurements that the manifest carries, else what the bounds predict."""
    measured: Mapping[str, Any] = run.manifest.get("kernels") or {}
    rows = (
        ("C6", "the fused kernel against the three-stage calls", "×2.3 faster"),
        ("C7", "the fused kernel's memory-bandwidth use", "−41 %"),
    )
    rule = "Judged by measurements on a GPU against a named baseline; a simulated plan is a model."
    claims = []
    bounds = () if measured else predicted.predictions(run)
    for row in rows:
        found = measured.get(row[0])
        if found:
            claims.append(Claim(*row, str(found["measured"]), str(found["status"]), rule))
        else:
            claims.append(Claim(*row, predicted.told(bounds, row[0]), ABSENT, rule))
    return claims[0], claims[1]


def freshness(e: Evidence) -> Claim:
    """Judge C8: the graph is fresh enough, under load only."""
    run = e.run
    config = section_of(arm_config(run, run.candidate), "telemetry")
    row = ("C8", "the topology graph is fresh enough to decide from", "50 ms sampling")
    margin = float((run.scenario.get("margins") or {}).get("oom_rate_points", 0.01)) / 100
    cells = run.of(run.candidate)
    k = m.counts(cells, lambda c: c.servable & (c["root_cause"] == RootCause.memory_misjudged))
    share = share_interval(k, m.offered(cells), run.confidence)
    told = (
        f"sampled every {number(float(config.get('interval_ms', math.nan)))} ms, age at decision "
        f"p99 {seconds(e.age_p99_s)}; misjudged {span(share.scaled(100), '%', plus=False)}"
    )
    rule = (
        "At ten or more arrivals a telemetry window, the candidate loses no more requests to "
        "misjudged memory than the OOM margin."
    )
    if not hard_enough(run, e.pressure):
        return Claim(*row, f"{_few(e)}; {told}", ABSENT, rule)
    return Claim(*row, told, at_most(share, margin), rule)


def keys(run: Run) -> Claim:
    """Judge C9: keys that go away, by construction."""
    ledger = ledger_rows(run)
    rule = "Deleting a layer deletes its keys: a matter of construction, which no run can confirm."
    bound = sum(1 for r in ledger if str(r.get("kind", "")).startswith("hardware"))
    dead = sum(1 for r in ledger if "probe" in str(r.get("kind", "")))
    told = f"{len(ledger)} keys in the ledger ({bound} hardware-bound, {dead} on dead probes)"
    claimed = "47 (19 hardware-bound, 7 on dead probes)"
    told = told if ledger else "no ledger in this run"
    return Claim("C9", "configuration keys that go away", claimed, told, BUILT, rule)


def convergence(run: Run) -> Claim:
    """Judge C10: the layer's effect on both fleets."""
    row = ("C10", "fleet convergence is what makes deletion safe", "V100 0 %, A100 12 %, H100 83 %")
    rule = (
        "Needs the layer's effect on both fleets (a factorial with the switches layer and fleet): "
        "holds if deletion is no worse on the converged fleet and worse on the mixed one."
    )
    effects = layer_by_fleet(run)
    shares = _fleet_shares(run)
    if effects is None:
        return Claim(*row, f"one fleet only: {shares}", ABSENT, rule)
    mixed, converged = effects
    told = (
        f"deleting the layer changes attainment by {span(mixed)} points on the mixed fleet, "
        f"{span(converged)} on the converged"
    )
    margin = float((run.scenario.get("margins") or {}).get("oom_rate_points", 0.01))
    status = OPEN
    if mixed.known and converged.known:
        safe, unsafe = converged.low >= -margin, mixed.high < -margin
        if safe and unsafe:
            status = HOLDS
        elif mixed.low >= -margin or converged.high < -margin:
            status = FAILS
    return Claim(*row, told, status, rule)


def layer_by_fleet(run: Run) -> tuple[Interval, Interval] | None:
    """Return the layer's effect on the value of a factorial, on the mixed and converged fleet."""
    table = run.manifest.get("factorial") or {}
    names = [s for s in table.get("switches") or () if s not in ("layer", "fleet")]
    if not {"layer", "fleet"} <= set(table.get("switches") or ()):
        return None
    found = []
    for fleet in (0, 1):
        sums: dict[tuple[int, ...], dict[int, float]] = {}
        for row in table["cells"]:
            if row["fleet"] == fleet:
                key = (int(row["replicate"]), *(int(row[n]) for n in names))
                sums.setdefault(key, {})[int(row["layer"])] = float(row["value"])
        by_rep: dict[int, list[float]] = {}
        for key, pair in sorted(sums.items()):
            if len(pair) == 2:
                by_rep.setdefault(key[0], []).append(pair[1] - pair[0])
        means = [sum(v) / len(v) for _, v in sorted(by_rep.items())]
        if not means:
            return None
        found.append(_never_certain(t_interval(means, run.confidence), run))
    return found[0], found[1]


def _never_certain(interval: Interval, run: Run) -> Interval:
    """Widen an interval without spread by what as many requests without any event can hide."""
    if interval.sd > 0 or not interval.known:
        return interval
    n = int(m.offered(run.of(run.baseline)).sum())
    hidden = 100 * binomial_bounds(0, n, run.confidence)[1]
    low, high = interval.mean - hidden, interval.mean + hidden
    return Interval(interval.mean, low, high, interval.n, 0.0)


def _fleet_shares(run: Run) -> str:
    gpus: dict[str, int] = {}
    for d in run.devices(run.candidate):
        gpus[str(d.get("gpu"))] = gpus.get(str(d.get("gpu")), 0) + int(d.get("gpus", 1))
    total = sum(gpus.values())
    shares = (f"{g} {100 * n / total:.0f} %" for g, n in sorted(gpus.items()))
    return ", ".join(shares) if total else "unknown"
