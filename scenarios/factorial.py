"""Which part did what: every combination of the scenario's switches, on the same replicates."""

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from dispatch.errors import InputError
from reports.shadow import STATELESS
from scenarios import arms
from scenarios.check import found_in
from scenarios.document import merge
from scenarios.overrides import show
from scenarios.problems import findings
from scenarios.schema import ArmConfig, FactorConfig, Scenario
from scenarios.sweep import Outcome, Sweep, SweepCell

_MOST = 8
_BARE: Final[dict[str, Any]] = {
    "baseline": "", "candidate": "", "factors": (), "story_inputs": (),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Combination:
    """One setting of all switches (False old, True new) and the arm that it makes."""

    levels: tuple[bool, ...]
    arm: ArmConfig
    flag: str = ""


def combinations(scenario: Scenario, variant: Mapping[str, str] | None = None) -> list[Combination]:
    """Return all 2^n arms of the scenario's factors; *variant* names another ``new`` by factor.

    Raises InputError where a factor's parts make no sound arm.
    """
    factors = scenario.factors
    if not factors:
        raise InputError.at(
            scenario.name, "has no factors", "add [[factors]] with name, old and new"
        )
    if len(factors) > _MOST:
        raise InputError.at("factors", f"{len(factors)} switches", f"expected at most {_MOST}")
    found = []
    for levels in itertools.product((False, True), repeat=len(factors)):
        parts = [_part(f, new, variant or {}) for f, new in zip(factors, levels, strict=True)]
        found.append(Combination(levels, *_arm(scenario, levels, parts)))
    arm_set = tuple(combination.arm for combination in found)
    whole = scenario.model_copy(update={**_BARE, "arms": arm_set})
    if problems := list(found_in(whole)):
        raise InputError.at(f"factors: {show(problems[0][0])}", problems[0][1], problems[0][2])
    return found


def _part(factor: FactorConfig, new: bool, variant: Mapping[str, str]) -> dict[str, Any]:
    if not new:
        return factor.old
    named = variant.get(factor.name)
    return factor.new if named is None else factor.variants[named]


def _arm(
    scenario: Scenario, levels: Sequence[bool], parts: Sequence[dict[str, Any]]
) -> tuple[ArmConfig, str]:
    raw: dict[str, Any] = {}
    for part in parts:
        raw = merge(raw, part)
    bits = "".join("1" if new else "0" for new in levels)
    try:
        arm = ArmConfig.model_validate({**raw, "name": f"f-{bits}"})
    except ValidationError as error:
        loc, what, way_out = findings(error)[0]
        raise InputError.at(f"factors, combination {bits}: {show(loc)}", what, way_out) from None
    return _possible(scenario, arm)


def _possible(scenario: Scenario, arm: ArmConfig) -> tuple[ArmConfig, str]:
    """Fall back where the hardware cannot do what the switches ask for, and say so.

    The fused kernel is written for Ampere and later (compute capability 8.0): a fleet with older
    cards keeps three-stage kernels, as one engine build serves the whole fleet.
    """
    from dispatch import hardware

    old_cards = sorted(
        {
            pool.gpu
            for pool in arms.fleet(scenario, arm).pools
            if pool.count and hardware.gpu(pool.gpu).compute_capability < 8.0
        }
    )
    if not old_cards or arm.engine.kernel_plan not in ("fused", "split5"):
        return arm, ""
    engine = arm.engine.model_copy(update={"kernel_plan": "three_stage"})
    flag = (
        f"fused kernels do not run on {', '.join(old_cards)}: combinations of new kernels with "
        "that fleet fall back to three-stage kernels"
    )
    return arm.model_copy(update={"engine": engine}), flag


def designs(scenario: Scenario, sweep: Sweep) -> dict[str, Any]:
    """Run the design as written, and once more with every variant; return manifest entries."""
    found: dict[str, Any] = {"factorial": run(scenario, sweep)}
    others = [(f.name, name) for f in scenario.factors for name in f.variants]
    if others:
        found["factorial_variants"] = {
            f"{factor}={name}": run(scenario, sweep, {factor: name}) for factor, name in others
        }
    return found


def run(
    scenario: Scenario, sweep: Sweep, variant: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Run the whole design and return it as ``reports.factorial`` takes it.

    The value is SLO attainment in percent of servable offered requests. A cell that failed is left
    out and told.
    """
    made = combinations(scenario, variant)
    alike = [_content(combination.arm) for combination in made]
    unique = {key: combination.arm for key, combination in zip(alike, made, strict=True)}
    cells = [
        SweepCell(_alone(scenario, arm), arm.name, replicate)
        for arm in unique.values()
        for replicate in range(scenario.replicates)
    ]
    ran = sweep.run(cells, f"factorial {scenario.name}")
    places = {key: number * scenario.replicates for number, key in enumerate(unique)}
    outcomes = [o for key in alike for o in ran[places[key] : places[key] + scenario.replicates]]
    names = [factor.name for factor in scenario.factors]
    return {
        "switches": names,
        "titles": {factor.name: factor.title or factor.name for factor in scenario.factors},
        "variant": dict(variant or {}),
        "metric": "SLO attainment",
        "unit": "points",
        "larger_is_better": True,
        "cells": list(_rows(names, made, outcomes, scenario.replicates)),
        "ran": len(unique),
        "failures": sorted({o.failure for o in outcomes if o.failure}),
    }


def _content(arm: ArmConfig) -> str:
    """Return what the outcomes of *arm* hang on: combinations alike in it are run once.

    A kernel plan that fell back is the old one, and a policy that looks at no telemetry places
    alike whatever its age.
    """
    about = arm.model_dump(mode="json", exclude={"name", "title"})
    if arm.policy.name in STATELESS:
        del about["telemetry"]
    return json.dumps(about, sort_keys=True)


def _alone(scenario: Scenario, arm: ArmConfig) -> Scenario:
    return scenario.model_copy(update={**_BARE, "arms": (arm,)})


def _rows(
    names: Sequence[str],
    made: Sequence[Combination],
    outcomes: Sequence[Outcome],
    replicates: int,
) -> Iterator[dict[str, Any]]:
    for number, combination in enumerate(made):
        for outcome in outcomes[number * replicates : (number + 1) * replicates]:
            value = outcome.figures.get("attainment", math.nan)
            if math.isnan(value):
                continue
            yield {
                **{name: int(new) for name, new in zip(names, combination.levels, strict=True)},
                "replicate": outcome.cell.replicate,
                "value": 100.0 * value,
                "e2e_mean_s": _or_none(outcome.figures.get("e2e_mean_s")),
                "stable": outcome.figures.get("unfinished_rate", 1.0) <= 0.01,
                **({"flag": combination.flag} if combination.flag else {}),
            }


def _or_none(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value
