"""When does a claim hold: small runs over load, age of telemetry and share of H100.

C4 has no map: the handling time is an input of a simulation. C6 and C7 have theirs in the kernels.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dispatch import hardware
from reports.claim import CLAIMED_RATIO, CLAIMED_SHARE, CLAIMED_SPREAD_POINTS, PRECISE_ENOUGH
from reports.pressure import ENOUGH_ARRIVALS
from scenarios.check import found_in
from scenarios.schema import ArmConfig, Scenario
from scenarios.sweep import Sweep, SweepCell
from sim.config import FleetConfig, PoolConfig

LOADS: Final = (0.5, 1.0, 1.5)
AGES_MS: Final = (50.0, 500.0, 5000.0)
SHARES: Final = (0.0, 0.5, 0.83)
REPLICATES: Final = 3
MOST: Final = 20_000
"""Requests of a point at load 1, at most."""
_STALE_AFTER_S: Final = 30.0
_NEW: Final = "H100-80G"

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _Claim:
    """A figure of a claim at one point, from the figures of its baseline, candidate and alone."""

    id: str
    title: str
    unit: str
    figure: float
    value: Callable[[Figures, Figures], float]
    at_most: bool = True
    within: float = 0.0
    kind: str = ""
    """``rate`` (per cent of requests), ``difference`` (of two rates, points), or neither."""
    needs_arrivals: float = 0.0


def _lost_to(figures: Figures) -> float:
    return (
        100 * figures["lost_misjudged"] / figures["servable"] if figures["servable"] else math.nan
    )


def _misjudged(base: Figures, _: Figures) -> float:
    return 100 * base["lost_misjudged"] / base["lost"] if base["lost"] else math.nan


def _median(base: Figures, cand: Figures) -> float:
    return 100 * (cand["e2e_p50_s"] / base["e2e_p50_s"] - 1)


def claims(margin_points: float) -> tuple[_Claim, ...]:
    """Return the claims that two arms can be mapped by."""
    return (
        _Claim("C1", "change of e2e p50, failure-aware", "%", 100 * (CLAIMED_RATIO - 1), _median),
        _Claim(
            "C2", "utilisation spread within a GPU, 1 s windows", "points", CLAIMED_SPREAD_POINTS,
            lambda _, cand: cand.get("busy_over_time_points", math.nan),
        ),
        _Claim(
            "C3", "error rate", "%", 0.0, lambda _, cand: 100 * cand["error_rate"], kind="rate"
        ),
        _Claim(
            "C5", "time-outs rooted in misjudged memory under the layer", "%",
            100 * CLAIMED_SHARE, _misjudged, within=100 * PRECISE_ENOUGH,
        ),
        _Claim(
            "C8", "requests lost to misjudged memory", "%", margin_points,
            lambda _, cand: _lost_to(cand), kind="rate", needs_arrivals=ENOUGH_ARRIVALS,
        ),
    )  # fmt: skip


def study(scenario: Scenario, sweep: Sweep) -> dict[str, Any]:
    """Run both grids and return the manifest's ``maps``."""
    base = _short(scenario)
    margin = scenario.margins.oom_rate_points
    baseline, candidate, alone = _roles(scenario)
    points: dict[tuple[str, float, float], Scenario] = {}
    for load in LOADS:
        for age in AGES_MS:
            points["age", age, load] = _aged(_loaded(base, load), candidate.name, age)
        for share in SHARES:
            fleet = _loaded(_converged(base, share), load)
            if not list(found_in(fleet)):
                points["share", round(100 * real_share(fleet.fleet)), load] = fleet
    names = [a.name for a in (baseline, candidate, alone) if a is not None]
    found = _run(points, names, sweep)
    both = (baseline.name, candidate.name)
    tables = [
        _table(c, "telemetry interval, ms", "age", points, found, both) for c in claims(margin)
    ]
    tables += [
        _table(c, "H100 share of the fleet, %", "share", points, found, both)
        for c in claims(margin)
        if c.id in ("C1", "C2", "C3", "C5")
    ]
    if alone is not None:
        effect = _Claim(
            "C10", "change of SLO attainment by deleting the layer alone", "points", -margin,
            lambda old, new: 100 * (new["attainment"] - old["attainment"]), at_most=False,
            kind="difference",
        )  # fmt: skip
        pair = (baseline.name, alone.name)
        tables.append(_table(effect, "H100 share of the fleet, %", "share", points, found, pair))
    return {"maps": [t for t in tables if t["cells"]]}


def _roles(scenario: Scenario) -> tuple[ArmConfig, ArmConfig, ArmConfig | None]:
    by_name = {arm.name: arm for arm in scenario.arms}
    baseline = by_name[scenario.baseline or scenario.arms[0].name]
    others = [arm for arm in scenario.arms if arm is not baseline] or [baseline]
    candidate = by_name[scenario.candidate or others[0].name]
    same = {"name", "title", "door"}
    alone = next(
        (
            arm
            for arm in others
            if arm.door != baseline.door
            and arm.model_dump(exclude=same) == baseline.model_dump(exclude=same)
        ),
        None,
    )
    return baseline, candidate, alone


def _short(scenario: Scenario) -> Scenario:
    trace = scenario.trace
    limit = max(1, int(MOST / max(trace.scale, 1.0)))
    trace = trace.model_copy(update={"limit": min(limit, trace.limit or limit)})
    replicates = min(REPLICATES, scenario.replicates)
    return scenario.model_copy(update={"trace": trace, "replicates": replicates, "factors": ()})


def _loaded(scenario: Scenario, load: float) -> Scenario:
    trace = scenario.trace.model_copy(update={"scale": scenario.trace.scale * load})
    return scenario.model_copy(update={"trace": trace})


def _aged(scenario: Scenario, name: str, age_ms: float) -> Scenario:
    changes = {"interval_ms": age_ms, "stale_after_s": _STALE_AFTER_S}
    arms = tuple(
        arm.model_copy(update={"telemetry": arm.telemetry.model_copy(update=changes)})
        if arm.name == name
        else arm
        for arm in scenario.arms
    )
    return scenario.model_copy(update={"arms": arms})


def _converged(scenario: Scenario, share: float) -> Scenario:
    """Return *scenario* with that share of replicas on H100, the slowest cards replaced first."""
    pools = scenario.fleet.pools
    speed = {p.name: hardware.gpu(p.gpu).bandwidth_bytes_per_s for p in pools}
    total = sum(p.count for p in pools)
    had = sum(p.count for p in pools if p.gpu == _NEW)
    wanted = max(0, min(total, math.ceil(share * total - 1e-9)) - had)
    if not wanted:
        return scenario
    kept, left = [], wanted
    for pool in sorted(pools, key=lambda p: (speed[p.name], p.name)):
        take = 0 if pool.gpu == _NEW else min(left, pool.count)
        left -= take
        if pool.count > take:
            kept.append(pool.model_copy(update={"count": pool.count - take}))
    order = {p.name: at for at, p in enumerate(pools)}
    kept.sort(key=lambda p: order[p.name])
    best = max(pools, key=lambda p: speed[p.name])
    by = hardware.gpu(_NEW).bandwidth_bytes_per_s / speed[best.name]
    new = PoolConfig(
        name="map-h100", gpu=_NEW, count=wanted, tp=best.tp, weight=max(1, round(best.weight * by))
    )
    fleet = FleetConfig(**{**scenario.fleet.model_dump(), "pools": (*kept, new)})
    return scenario.model_copy(update={"fleet": fleet})


def real_share(fleet: FleetConfig) -> float:
    """Return the share of replicas that run on H100."""
    total = sum(p.count for p in fleet.pools)
    return sum(p.count for p in fleet.pools if p.gpu == _NEW) / total


def _run(
    points: Mapping[tuple[str, float, float], Scenario], names: Sequence[str], sweep: Sweep
) -> dict[tuple[str, float, float, str, int], Figures]:
    """Return figures by point, arm and replicate; cells that are alike run once."""
    unique: dict[str, SweepCell] = {}
    where: dict[tuple[str, float, float, str, int], str] = {}
    for at, scenario in points.items():
        for name in names:
            arm = next(a for a in scenario.arms if a.name == name)
            alone = scenario.model_copy(
                update={"arms": (arm,), "baseline": "", "candidate": "", "story_inputs": ()}
            )
            for replicate in range(scenario.replicates):
                key = f"{alone.model_dump_json()} {replicate}"
                unique.setdefault(key, SweepCell(alone, name, replicate))
                where[*at, name, replicate] = key
    outcomes = sweep.run(list(unique.values()), "maps")
    figures = dict(zip(unique, (o.figures for o in outcomes), strict=True))
    return {at: figures[key] for at, key in where.items() if figures[key]}


def _table(
    claim: _Claim,
    x: str,
    grid: str,
    points: Mapping[tuple[str, float, float], Scenario],
    found: Mapping[tuple[str, float, float, str, int], Figures],
    pair: tuple[str, str],
) -> dict[str, Any]:
    return {
        "claim": claim.id, "title": claim.title, "unit": claim.unit, "figure": claim.figure,
        "at_most": claim.at_most, "kind": claim.kind, "within": claim.within,
        "x": x, "y": "load, times the scenario's",
        "most_requests": MOST, "cells": list(_cells(claim, grid, points, found, pair)),
    }  # fmt: skip


def _cells(
    claim: _Claim,
    grid: str,
    points: Mapping[tuple[str, float, float], Scenario],
    found: Mapping[tuple[str, float, float, str, int], Figures],
    pair: tuple[str, str],
) -> Iterator[dict[str, Any]]:
    for at, scenario in points.items():
        if at[0] != grid:
            continue
        for replicate in range(scenario.replicates):
            old, new = (found.get((*at, name, replicate)) for name in pair)
            if old is None or new is None:
                continue
            value = claim.value(old, new)
            window = new.get("fact_arrivals_per_window", math.nan)
            tried = not claim.needs_arrivals or window >= claim.needs_arrivals
            yield {
                "x": at[1],
                "y": at[2],
                "replicate": replicate,
                "requests": int(new["servable"]),
                "value": value if tried and math.isfinite(value) else None,
            }
