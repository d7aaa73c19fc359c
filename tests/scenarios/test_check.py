"""Names and figures that a schema cannot judge."""

from pathlib import Path

import pytest

from dispatch.errors import InputError
from scenarios import history
from scenarios.load import load
from tests.scenarios.small import small


def told(*overrides: str, scenario: str = "migration-2023q3") -> list[str]:
    with pytest.raises(InputError) as caught:
        load(scenario, overrides)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("override", "near"),
    [
        ("fleet.pools.0.gpu=V100-32", "unknown gpu 'V100-32'; did you mean V100-32G?"),
        ("model.name=llama2-13", "unknown model 'llama2-13'; did you mean llama-2-13b?"),
        ("arms.direct.policy.name=topologie", "unknown policy 'topologie'; did you mean topology?"),
        ("arms.legacy.door.settings.retrys=3", "unknown key; did you mean retries?"),
        (
            "traffic.kernel_hint.latency_optimised=1",
            "unknown kernel_hint 'latency_optimised'; did you mean latency_optimized?",
        ),
        ("traffic.precision.fp15=1", "unknown precision 'fp15'; did you mean fp16?"),
        (
            "arms.direct.policy.params.b_bin=0.1",
            "unknown parameter 'b_bin'; did you mean b_bin_ratio?",
        ),
    ],
)
def test_an_unknown_name_is_told_with_the_one_that_was_meant(override: str, near: str) -> None:
    (problem,) = told(override)
    assert problem.startswith(f"--set {override}: ")
    assert problem.endswith(near)


def test_wrong_names_and_wrong_shapes_are_told_together() -> None:
    found = told("fleet.pools.0.gpu=V99", "seed=x", "arms.direct.policy.name=topologie")
    assert len(found) == 3


def test_a_model_that_fits_no_gpu_says_how_much_it_takes() -> None:
    found = told("model.name=llama-2-70b")
    assert len(found) == 3
    assert "llama-2-70b in fp16 fits no replica of 1 x V100-32G: it takes" in found[0]
    assert "raise tp" in found[0]


def test_a_pool_without_replicas_need_not_fit() -> None:
    overrides = [
        "model.name=llama-2-70b",
        "fleet.pools.v100.count=0",
        "fleet.pools.a100-40g.count=0",
    ]
    assert load("migration-2023q3", [*overrides, "fleet.pools.a100-80g.tp=4"]).name


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["arms.direct.telemetry.interval_ms=6000"], "samples are up to 6005 ms old"),
        (["arms.direct.telemetry.signals.ring.interval_ms=9000"], "samples are up to 9005 ms old"),
        (["fleet.pools.1.name=v100"], "pool name 'v100' repeats"),
        (["fleet.pools.0.tp=16"], "a replica of 16 GPUs on nodes of 8"),
        (["fleet.pools.0.tp=3"], "40 heads of llama-2-13b do not divide by 3; use one of 1, 2, 4"),
        (
            ["fleet.pools.2.model={name='llama-3.1-8b'}", "fleet.pools.2.tp=5"],
            "32 heads of llama-3.1-8b do not divide by 5",
        ),
        (["fleet.pools.*.count=0"], "the fleet has no replica"),
        (["faults.0.kind=gpu_lost"], "needs at_s or rate_per_h"),
        (
            ["faults.0={kind='gpu_lost', at_s=1.0, pool='v10'}"],
            "unknown pool 'v10'; did you mean v100?",
        ),
        (
            ["faults.0={kind='gpu_lost', at_s=1.0, pool='v100', replica=2}"],
            "found 2; expected an index below 2",
        ),
        (["story_inputs=['fleet.pols']"], "no key 'fleet.pols'"),
        (["traffic.precision={fp16=-1.0}"], "expected a share of 0 or more"),
        (["traffic.precision={fp16=0.0}"], "no share is above 0"),
    ],
)
def test_what_does_not_fit_together_is_told(overrides: list[str], part: str) -> None:
    assert any(part in problem for problem in told(*overrides))


def test_a_trace_is_not_cut_into_more_blocks_than_memory_holds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trace.block_s: 1e-09 s cut .* at most 1,000,000"):
        history.load(load(small(tmp_path), ["trace.block_s=1e-9"]))


@pytest.mark.parametrize(
    ("override", "way_out"),
    [
        ("max_tokens_default=99999999999999999999", "expected at most 1,000,000,000"),
        ("utilisation_window_s=1e-9", "expected at least 0.001"),
        ("arms.direct.telemetry.interval_ms=1e-6", "expected at least 0.01"),
        ("arms.legacy.door.handling_cv=1e300", "expected at most 100"),
        ("arms.legacy.door.handling_cv=1e-300", "expected at least 1e-06"),
        ("trace.prompt_scale=1e12", "expected at most 1,000,000"),
    ],
)
def test_a_figure_that_no_run_comes_to_an_end_with_is_told(override: str, way_out: str) -> None:
    (problem,) = told(override)
    assert problem.startswith(f"--set {override}: ")
    assert problem.endswith(way_out)
