"""One rule of reservation: what a scenario is checked by is what its engines run with."""

from pathlib import Path

import pytest

from dispatch import hardware
from dispatch.errors import InputError
from dispatch.hardware import MemoryPlan
from scenarios.load import load
from scenarios.run import run
from tests.scenarios.small import small

EACH = "arms.*.engine.memory_utilization_ratio"


def plan(ratio: float) -> MemoryPlan:
    card, model = hardware.gpu("A100-40G"), hardware.model("llama-2-13b")
    return hardware.memory_plan(card, model, "fp16", None, 1, ratio, "three_stage", 2048)


@pytest.mark.parametrize("ratio", [0.8, 0.9])
def test_engines_hold_what_the_planned_share_of_the_card_leaves(
    tmp_path: Path, ratio: float
) -> None:
    scenario = load(small(tmp_path, limit=20), [f"{EACH}={ratio}", "replicates=1"])
    done = run(scenario, None, jobs=1, quiet=True)
    for arm in done.manifest["arms"].values():
        device = arm["facts"][0]["devices"][0]
        assert device["gpu"] == "A100-40G"
        assert device["capacity_tokens"] == plan(ratio).capacity_tokens
    card = hardware.gpu("A100-40G")
    assert plan(ratio).budget_bytes == pytest.approx(ratio * card.memory_bytes)


def test_a_share_that_leaves_no_room_for_the_cache_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    with pytest.raises(InputError, match="leaves no block of KV cache"):
        load(small(tmp_path), [f"{EACH}=0.6"])
