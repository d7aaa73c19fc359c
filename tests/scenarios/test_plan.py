"""Fleets that hold the SLOs: the search against the full grid."""

import itertools
import math
from pathlib import Path

import pytest

from dispatch.errors import InputError
from dispatch.hardware.calibration import Calibration, Fit
from scenarios.folder import whole
from scenarios.load import load
from scenarios.plan.answer import answer, as_dict
from scenarios.plan.conduct import conduct
from scenarios.plan.fleets import Kinds, equip, scaled
from scenarios.plan.report import document
from scenarios.plan.run import chosen, plan_arms
from scenarios.plan.search import Search, Trial, evaluate
from scenarios.plan.trust import stated_error, trust
from scenarios.plan.words import beside, sentence
from scenarios.plan.write import write
from scenarios.schema import SloConfig
from scenarios.store import Store
from scenarios.sweep import Sweep
from tests.scenarios.small import small

KINDS = Kinds(("a", "b"), (4.0, 5.0), (2, 1))


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    folder = tmp_path_factory.mktemp("cache")
    return Sweep(1, store=Store(folder), quiet=True)


@pytest.fixture(scope="module")
def search(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Search:
    """One arm, judged by its OOM rate alone, so that few requests suffice."""
    path = small(tmp_path_factory.mktemp("s"), limit=120)
    scenario = chosen(str(path), [], ["oom_rate=0.02"], ["legacy"])
    return Search(scenario, scenario.arms[0], sweep, most=12)


def test_a_mix_is_shared_out_by_largest_remainders() -> None:
    assert [KINDS.in_mix(n) for n in range(1, 7)] == [
        (1, 0), (1, 1), (2, 1), (3, 1), (3, 2), (4, 2),
    ]  # fmt: skip


def test_mixes_come_cheapest_first() -> None:
    fleets = list(KINDS.mixes([2, 2]))
    costs = [KINDS.cost(fleet) for fleet in fleets]
    assert costs == sorted(costs)
    assert len(fleets) == 8


def test_faults_of_replicas_that_a_fleet_lacks_are_left_out() -> None:
    scenario = load("h100-2024")
    arm = scenario.arms[0]
    assert len(equip(scenario, arm, (1, 0, 0)).faults) == 1
    assert len(equip(scenario, arm, (0, 1, 0)).faults) == 0


def test_scaling_multiplies_what_the_scenario_has() -> None:
    assert scaled(load("h100-2024"), scale=0.5).trace.scale == 9.0


def test_the_smallest_fleet_holds_and_the_one_below_does_not(search: Search) -> None:
    found = answer(search, deep=False)
    assert found.fleet is not None
    assert found.fleet.feasible
    assert found.mix_below is not None
    assert not found.mix_below.feasible
    assert found.below is not None
    assert not found.below.feasible


def test_the_cheapest_mix_is_that_of_the_full_grid(search: Search, sweep: Sweep) -> None:
    found = answer(search, deep=False).mix.found
    assert found is not None
    most = max(found.counts) + 1
    trials = [
        Trial(search.scenario, counts)
        for counts in itertools.product(range(most + 1), repeat=2)
        if any(counts) and search.kinds.cost(counts) <= search.kinds.cost(found.counts)
    ]
    tried = conduct([evaluate(trials, search.arm, search.scenario.replicates)], sweep)[0]
    feasible = [search.kinds.cost(t.counts) for t in tried if t.feasible]
    assert min(feasible) == search.kinds.cost(found.counts)


def test_an_slo_that_no_fleet_holds_names_what_binds(sweep: Sweep, tmp_path: Path) -> None:
    path = small(tmp_path, limit=700)
    # Nothing dies of memory, and nothing times out.
    guarded = ["engine.kv=paged", "engine.admission=guarded", "engine.preemption=recompute"]
    light = ["replicates=1", "trace.scale=0.2", "trace.limit=3500"]
    light += ["wait.deadline_s=600", *(f"arms.direct.{setting}" for setting in guarded)]
    scenario = chosen(str(path), light, ["tpot_p99_s=0.001"], ["direct"])
    found = answer(Search(scenario, scenario.arms[0], sweep, most=4), deep=False)
    assert found.best is None
    assert found.binding[0].key == "tpot_p99_s"
    assert "nearest feasible point is tpot_p99_s <=" in sentence(found)
    relaxed = scenario.model_copy(update={"slo": SloConfig(tpot_p99_s=found.binding[0].value)})
    again = Search(relaxed, relaxed.arms[0], sweep, most=4)
    assert conduct([again.full(found.largest.counts)], sweep)[0].feasible  # type: ignore[union-attr]


def test_where_failures_bind_the_nearest_point_is_a_share_of_the_load(
    sweep: Sweep, tmp_path: Path
) -> None:
    path = small(tmp_path, limit=700)
    scenario = chosen(str(path), ["replicates=1"], ["ttft_p99_s=9"], ["direct"])
    found = answer(Search(scenario, scenario.arms[0], sweep, most=1), deep=False)
    assert found.best is None
    assert "of this load on" in sentence(found)


def test_too_few_requests_for_a_p99_are_told(sweep: Sweep, tmp_path: Path) -> None:
    scenario = chosen(
        str(small(tmp_path, limit=50)), ["replicates=1"], ["ttft_p99_s=9"], ["direct"]
    )
    found = answer(Search(scenario, scenario.arms[0], sweep, most=2), deep=False)
    assert found.unknown
    assert "can be shown to hold" in sentence(found)
    assert "too few requests" in sentence(found)


def test_a_plan_in_depth_is_written_the_same_twice(search: Search, tmp_path: Path) -> None:
    found = answer(search)
    assert found.around.headroom is not None
    assert found.around.n_minus_1
    assert set(found.around.calibration) == {"slower", "faster"}
    assert found.error > 0
    said_beside = " ".join(beside(found))
    for word in ("Holds in", "One replica fewer", "Headroom", "N-1", "slower", "faster"):
        assert word in said_beside
    said = as_dict(found)
    assert said["smallest_in_mix"]["probability"] == 1.0
    text = [document([found]) for _ in range(2)]
    assert text[0].title == text[1].title
    for name in ("one", "two"):
        with whole(tmp_path / name) as place:
            write(place, search.scenario, [found])
    one, two = ((tmp_path / name / "report.html").read_bytes() for name in ("one", "two"))
    assert one == two


def test_slos_given_replace_those_of_the_scenario(tmp_path: Path) -> None:
    scenario = chosen(str(small(tmp_path)), [], ["e2e_p99_s=20"], [])
    asked = {k: v for k, v in scenario.slo.model_dump().items() if v is not None}
    assert asked == {"e2e_p99_s": 20.0}


def test_a_plan_without_an_objective_is_refused(sweep: Sweep, tmp_path: Path) -> None:
    path = small(tmp_path)
    scenario = load(path, ["slo.ttft_p99_s=none", "slo.oom_rate=none"])
    with pytest.raises(InputError, match="no objective"):
        Search(scenario, scenario.arms[0], sweep, most=2)


def constants(assumed: tuple[str, ...] = (), **fits: Fit) -> Calibration:
    return Calibration("X", "eager-2023", "three_stage", fits=fits, assumed=assumed)


def test_the_error_of_whole_iterations_on_a_gpu_that_was_left_out_judges_first() -> None:
    host = Fit(held_out_error=0.01, left_out={"prompt": 0.09, "token": 0.04})
    gemm = Fit(held_out_error=0.2)
    assert stated_error(constants(host=host, gemm=gemm), tp=1) == 0.09
    assert stated_error(constants(("gemm",), host=host), tp=1) == 0.09
    assert math.isnan(stated_error(constants(("host",), host=host), tp=1))


def test_else_the_worst_operator_on_rows_that_the_fit_did_not_see() -> None:
    fits = {"gemm": Fit(median_error=0.01, held_out_error=0.05), "host": Fit(median_error=0.03)}
    assert stated_error(constants(**fits), tp=1) == 0.05


@pytest.mark.parametrize(("assumed", "tp", "known"), [
    (("gemm",), 1, False), (("collective",), 4, False), (("collective",), 1, True),
])  # fmt: skip
def test_constants_that_were_assumed_state_no_error(
    assumed: tuple[str, ...], tp: int, known: bool
) -> None:
    error = stated_error(constants(assumed, host=Fit(held_out_error=0.02)), tp)
    assert (error == error) is known


def test_the_trust_in_an_arm_names_its_gpus() -> None:
    scenario = load("migration-2023q3")
    found = trust(scenario, scenario.arms[0])
    assert 0 < found.error < 1
    assert all(name in found.text for name in ("V100-32G", "A100-40G", "A100-80G"))


def test_the_trust_in_a_fleet_is_that_in_the_gpus_that_it_has() -> None:
    scenario = load("migration-2023q3")
    arm = scenario.arms[0]
    alone = trust(scenario, arm, (0, 0, 3))
    assert "A100-80G" in alone.text
    assert "V100" not in alone.text
    assert alone.stated
    assert alone.error < trust(scenario, arm, (1, 0, 3)).error


@pytest.mark.parametrize("most", [0, -1, 10_001, 10**23])
def test_a_largest_fleet_that_nobody_could_run_is_refused(
    most: int, sweep: Sweep, tmp_path: Path
) -> None:
    scenario = chosen(str(small(tmp_path)), [], ["ttft_p99_s=9"], ["direct"])
    with pytest.raises(InputError, match=r"--most.*10,000"):
        plan_arms(scenario, sweep, most=most, quiet=True)
