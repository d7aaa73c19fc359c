"""The paired processes: which code they run, and what they say when it cannot run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dispatch.errors import InputError, NotMeasurable
from live.gpus import gpus
from scenarios.gate.pairs import Profile, Side, Worker, run_pairs
from scenarios.gate.worker import beside


@pytest.fixture
def foreign(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a maker of repositories that declare a policy of their own."""

    def make(name: str, body: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "pyproject.toml").write_text(
            '[project]\nname = "theirs"\n'
            '[project.entry-points."zerolayer.policies"]\nmine = "theirs:Mine"\n'
        )
        (folder / "theirs.py").write_text(body)
        return folder

    return make


THEIRS = """
from dispatch.policies.round_robin import RoundRobin


class Mine(RoundRobin):
    name = "mine"
"""
HELLO = "\nimport sys\nprint(__file__, file=sys.stderr)\n"


def test_each_side_runs_its_own_tree_of_a_foreign_repository(
    foreign: Callable[[str, str], Path],
) -> None:
    for side in (Side(foreign(name, THEIRS + HELLO), "mine") for name in ("old", "new")):
        worker = Worker(side, "base")
        worker.ask("ready")
        assert str(side.folder) in worker.close()


def test_a_pair_times_every_decision_of_both_sides(foreign: Callable[[str, str], Path]) -> None:
    side = Side(foreign("tree", THEIRS), "mine")
    (pair,) = run_pairs(side, side, 1, controls=1, rounds=2)
    assert pair.again is not None
    for profile in (pair.base, pair.head, pair.again):
        assert len(profile.least_ns) == 500
        assert len(profile.cpu_ns) == 1


def test_a_base_that_cannot_be_imported_is_not_measurable(
    foreign: Callable[[str, str], Path],
) -> None:
    good, bad = foreign("good", THEIRS), foreign("bad", "import nothing_of_this_name\n")
    with pytest.raises(NotMeasurable, match="nothing_of_this_name"):
        run_pairs(Side(bad, "mine"), Side(good, "mine"), 1, rounds=1)


def test_a_head_that_cannot_be_imported_is_bad_input(foreign: Callable[[str, str], Path]) -> None:
    good, bad = foreign("good", THEIRS), foreign("bad", "import nothing_of_this_name\n")
    with pytest.raises(InputError, match="nothing_of_this_name"):
        run_pairs(Side(good, "mine"), Side(bad, "mine"), 1, rounds=1)


def test_counters_count_candidates_and_do_not_depend_on_the_process(
    foreign: Callable[[str, str], Path],
) -> None:
    side = Side(foreign("tree", THEIRS), "mine")
    found = []
    for _ in range(2):
        with Worker(side, "head") as worker:
            worker.ask("warm")
            found.append(worker.ask("counters")["candidates"])
    assert found == [64, 64]


def test_a_profile_keeps_the_least_time_of_each_decision() -> None:
    profile = Profile()
    for times in ([5, 9], [7, 3]):
        profile.add(times)
    assert profile.least_ns == [5, 3]


def test_the_quantile_of_a_profile_is_the_nearest_rank() -> None:
    profile = Profile(list(range(1, 101)))
    assert (profile.quantile(0.5), profile.quantile(0.99)) == (50.0, 99.0)


def test_the_door_path_times_whole_requests() -> None:
    root = Path(__file__).parents[2]
    with Worker(Side(root, "topology", path="door"), "head") as worker:
        worker.ask("ready")
        assert len(worker.ask("profile")["ns"]) == 64


def test_the_launch_stream_is_the_same_every_pass() -> None:
    pytest.importorskip("torch")
    path = beside("worker_gpu").GpuPath("cpu")
    first, second = path.run()[0], path.run()[0]
    assert len(first) == len(second) > 20
    assert min(first) > 0


def test_without_a_gpu_the_gpu_path_is_refused_with_the_way_out() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(InputError, match=r"--path gpu.*no CUDA device"):
        gpus()
