"""Every combination of the switches, and what hardware cannot do."""

from pathlib import Path

import pytest

from dispatch.errors import InputError
from reports.factorial import effects
from scenarios.factorial import combinations, designs, run
from scenarios.load import load
from scenarios.store import Store
from scenarios.sweep import Outcome, Sweep, SweepCell
from tests.scenarios.small import small

FACTORS = """
[[factors]]
name = "layer"
old = {door = {kind = "legacy", decision_us = 50.0}}
new = {door = {kind = "direct", decision_us = 50.0}}
[[factors]]
name = "fleet"
old = {engine = {max_num_batched_tokens = 2048}}
[[factors.new.fleet.pools]]
name = "h"
gpu = "H100-80G"
count = 2
[[factors.variants.one.fleet.pools]]
name = "h"
gpu = "H100-80G"
count = 1
"""


def test_six_switches_are_64_sound_arms() -> None:
    made = combinations(load("migration-2023q3"))
    assert len({c.levels for c in made}) == len({c.arm.name for c in made}) == 64


def test_old_and_new_of_the_bundled_factors_are_the_arms_of_the_story() -> None:
    scenario = load("migration-2023q3")
    old = combinations(scenario)[0].arm
    legacy = scenario.arms[0]
    assert (old.door, old.policy, old.engine) == (legacy.door, legacy.policy, legacy.engine)


def test_fused_kernels_on_a_v100_fall_back_and_say_so() -> None:
    for made in combinations(load("migration-2023q3")):
        _, _, kernels, fleet, _, _ = made.levels
        assert bool(made.flag) == (kernels and not fleet)
        assert made.arm.engine.kernel_plan == ("fused" if kernels and fleet else "three_stage")


def test_combinations_that_are_alike_run_once_and_say_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[SweepCell] = []

    def count(self: Sweep, cells: list[SweepCell], *_: object) -> list[Outcome]:
        asked.extend(cells)
        return [Outcome(cell, {"attainment": float(len(asked))}) for cell in cells]

    monkeypatch.setattr(Sweep, "run", count)
    scenario = load("migration-2023q3")
    with Sweep(1, quiet=True) as sweep:
        found = run(scenario, sweep)
    assert len(found["cells"]) == 64 * 5
    assert found["ran"] == 36  # old fleet: no fused kernels; static weights: no telemetry
    assert len(asked) == 36 * 5


def test_static_weights_fare_alike_whatever_the_age_of_telemetry(tmp_path: Path) -> None:
    scenario = load("migration-2023q3", ["trace.limit=400", "replicates=1"])
    by_levels = {c.levels: c.arm for c in combinations(scenario)}
    levels = (False, False, False, True, False)
    arms = [by_levels[*levels, new] for new in (False, True)]
    assert arms[0].telemetry != arms[1].telemetry
    bare = {"baseline": "", "candidate": "", "factors": (), "story_inputs": ()}
    cells = [
        SweepCell(scenario.model_copy(update={**bare, "arms": (arm,)}), arm.name, 0) for arm in arms
    ]
    with Sweep(1, store=Store(tmp_path), quiet=True) as sweep:
        old, new = (dict(o.figures) for o in sweep.run(cells))
    for figures in (old, new):
        del figures["fact_arrivals_per_window"]
    assert repr(old) == repr(new)


def test_a_design_is_what_the_report_takes(tmp_path: Path) -> None:
    scenario = load(small(tmp_path, more=FACTORS))
    with Sweep(1, store=Store(tmp_path / "cache"), quiet=True) as sweep:
        found = designs(scenario, sweep)
    table = found["factorial"]
    assert len(table["cells"]) == 4 * 2
    made = effects(table["switches"], table["cells"])
    assert sum(e.mean for e in made.effects) == pytest.approx(made.total.mean)
    assert set(found["factorial_variants"]) == {"fleet=one"}


def test_a_factor_that_makes_no_arm_is_told(tmp_path: Path) -> None:
    scenario = load(small(tmp_path, more=FACTORS.replace('kind = "direct"', 'kind = "none"')))
    with pytest.raises(InputError, match=r"door\.kind"):
        combinations(scenario)


def test_a_scenario_without_factors_has_no_design(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no factors"):
        combinations(load(small(tmp_path)))
