"""The bundled scenarios are sound, and their loads are what their files say they are."""

import json
import math

import numpy as np
import pytest

from dispatch import hardware
from scenarios import history
from scenarios.document import BUNDLED, bundled_names, find
from scenarios.json_schema import text
from scenarios.load import load

RATE_PER_S = 19_366 / 3_501.7  # ../reference/traces.md


@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_scenario_is_sound(name: str) -> None:
    scenario = load(name)
    assert scenario.name == name
    assert scenario.reasoning.strip()
    assert scenario.story_inputs


@pytest.mark.parametrize("name", bundled_names())
def test_a_bundled_scenario_names_the_schema_that_editors_complete_from(name: str) -> None:
    first = find(name).read_text().splitlines()[0]
    assert first == "#:schema ./scenario.schema.json"


def test_the_bundled_schema_is_the_one_of_the_code() -> None:
    """Write it anew: `zerolayer scenarios schema -o scenarios/bundled/scenario.schema.json`."""
    assert (BUNDLED / "scenario.schema.json").read_text() == text()


def test_the_schema_knows_the_defaults_and_refuses_other_keys() -> None:
    schema = json.loads(text())
    assert "engine" in schema["properties"]["defaults"]["properties"]
    assert schema["additionalProperties"] is False


def test_the_story_arms_differ_by_one_switch_each() -> None:
    legacy, direct, static = load("migration-2023q3").arms
    assert (legacy.door.kind, direct.door.kind, static.door.kind) == ("legacy", "direct", "direct")
    assert legacy.policy == static.policy
    assert legacy.engine == direct.engine == static.engine


def test_each_arm_of_the_2024_fleet_keeps_what_its_title_says() -> None:
    legacy, direct, static, engine = load("h100-2024").arms
    assert static.engine == engine.engine == legacy.engine != direct.engine
    assert static.policy == legacy.policy
    assert engine.policy == direct.policy
    assert engine.telemetry == direct.telemetry


def capacity_per_s(
    gpu: str, model: str, precision: str, tp: int, *, prompt: float, output: float,
    held: float, batch: float, mfu: float, mbu: float,
) -> float:  # fmt: skip
    """Return requests/s of one replica by the arithmetic of the scenario files."""
    card, shape = hardware.gpu(gpu), hardware.model(model)
    prefill_s = prompt * 2 * shape.parameters / (mfu * tp * card.flops_for(precision))
    kv = shape.kv_bytes_per_token("fp8" if precision == "fp8" else "fp16")
    read = shape.weights_bytes(precision) + batch * held * kv
    iteration_s = read / (mbu * tp * card.bandwidth_bytes_per_s)
    return 1 / (prefill_s + output * iteration_s / batch)


def test_the_migration_fleet_is_the_smallest_below_70_percent() -> None:
    scenario = load("migration-2023q3")
    served = []
    for pool in scenario.fleet.pools:
        plan = hardware.memory_plan(
            hardware.gpu(pool.gpu), hardware.model("llama-2-13b"), "fp16", None, 1, 0.9,
            "three_stage", 2048,
        )  # fmt: skip
        batch = plan.capacity_tokens / 2037
        served.append(
            capacity_per_s(
                pool.gpu, "llama-2-13b", "fp16", 1, prompt=1080, output=211, held=1186,
                batch=batch, mfu=0.5, mbu=0.7,
            )
        )  # fmt: skip
    counts = [pool.count for pool in scenario.fleet.pools]
    sets = math.gcd(*counts)
    one = sum(n // sets * rate for n, rate in zip(counts, served, strict=True))
    load_per_s = 0.979 * RATE_PER_S
    assert load_per_s / (sets * one) < 0.7 < load_per_s / ((sets - 1) * one)
    assert [round(rate / served[0]) for rate in served] == [p.weight for p in scenario.fleet.pools]


def test_the_2024_fleet_runs_at_the_share_that_its_file_states() -> None:
    scenario = load("h100-2024")
    served = [
        capacity_per_s(
            pool.gpu, "llama-3.1-70b", "fp8", 4, prompt=1155, output=211, held=1260,
            batch=64, mfu=0.43, mbu=0.45,
        )
        for pool in scenario.fleet.pools
    ]  # fmt: skip
    counts = [pool.count for pool in scenario.fleet.pools]
    whole = sum(n * rate for n, rate in zip(counts, served, strict=True))
    assert scenario.trace.scale * RATE_PER_S / whole == pytest.approx(0.64, abs=0.01)
    assert [n / sum(counts) for n in counts[:2]] == pytest.approx([0.83, 0.12], abs=0.02)
    smallest = min(served)
    assert [round(rate / smallest) for rate in served] == [p.weight for p in scenario.fleet.pools]


def test_the_story_scale_is_forty_migrations_and_ten_arrivals_a_telemetry_window() -> None:
    scenario, small = load("story-scale"), load("migration-2023q3")
    factor = scenario.trace.scale / small.trace.scale
    assert [p.count for p in scenario.fleet.pools] == [factor * p.count for p in small.fleet.pools]
    assert scenario.trace.scale * RATE_PER_S == pytest.approx(221, abs=0.5)
    window_s = max(arm.telemetry.interval_ms for arm in scenario.arms) / 1e3
    offered = history.load(scenario)
    assert len(offered) * window_s / float(np.ptp(offered.arrival_s)) >= 10
    same = {"arms", "slo", "traffic", "wait", "model", "drain_s", "max_tokens_default"}
    assert scenario.model_dump(include=same) == small.model_dump(include=same)


def test_the_router_of_the_story_scale_is_as_busy_as_its_file_states() -> None:
    scenario = load("story-scale")
    door = scenario.arms[0].door
    busy = scenario.trace.scale * RATE_PER_S * door.handling_mean_ms / 1e3
    assert busy == pytest.approx(1.86, abs=0.01)
    assert busy / door.workers == pytest.approx(0.12, abs=0.005)
    assert 30_000 * door.handling_mean_ms / 1e3 == pytest.approx(252)
