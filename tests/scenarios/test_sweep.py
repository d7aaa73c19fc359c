"""Many cells: each run once, kept by content, whatever became of a worker."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import InputError
from dispatch.outcomes import Outcome
from reports.intervals import nearest_rank
from scenarios import history, share
from scenarios.load import load
from scenarios.schema import Scenario
from scenarios.store import Store, code, key
from scenarios.summary import Collector, Hopeful, HopelessError
from scenarios.sweep import Sweep, SweepCell, cells_of, content
from tests.scenarios.small import small


def sweep(folder: Path, **options: object) -> Sweep:
    return Sweep(1, store=Store(folder / "cache"), quiet=True, **options)  # type: ignore[arg-type]


def test_cells_come_back_in_order_with_their_figures(tmp_path: Path) -> None:
    scenario = load(small(tmp_path))
    with sweep(tmp_path) as runner:
        outcomes = runner.run(cells_of(scenario))
    order = [(o.cell.arm, o.cell.replicate) for o in outcomes]
    assert order == [("legacy", 0), ("direct", 0), ("legacy", 1), ("direct", 1)]
    for outcome in outcomes:
        assert not outcome.failure
        parts = ("finished", "oom", "timed_out", "rejected", "rejected_context", "failed",
                 "cancelled", "in_flight")  # fmt: skip
        assert outcome.figures["offered"] == sum(outcome.figures[part] for part in parts)


def test_a_second_sweep_runs_nothing_and_says_the_same(tmp_path: Path) -> None:
    cells = cells_of(load(small(tmp_path)))
    with sweep(tmp_path) as first:
        before = first.run(cells)
    with sweep(tmp_path) as second:
        after = second.run(cells)
    assert (first.ran, second.ran, second.reused) == (4, 0, 4)
    assert json.dumps([dict(o.figures) for o in before], sort_keys=True) == json.dumps(
        [dict(o.figures) for o in after], sort_keys=True
    )


def test_a_sweep_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    cells = cells_of(load(small(tmp_path)))
    with sweep(tmp_path) as first:
        first.run(cells[:3])
    with sweep(tmp_path) as second:
        second.run(cells)
    assert (second.ran, second.reused) == (1, 3)


@pytest.mark.parametrize(
    "override", ["seed=8", "trace.limit=151", "arms.direct.door.decision_us=51"]
)
def test_another_input_is_another_cell(tmp_path: Path, override: str) -> None:
    path = small(tmp_path)
    with sweep(tmp_path) as runner:
        runner.run(cells_of(load(path, ["replicates=1"])))
        ran = runner.ran
        runner.run(cells_of(load(path, ["replicates=1", override])))
    assert runner.ran > ran


def test_labels_and_titles_are_no_part_of_a_cells_content(tmp_path: Path) -> None:
    path = small(tmp_path)
    with sweep(tmp_path) as runner:
        runner.run(cells_of(load(path, ["replicates=1"]), {"x": "1"}))
        runner.run(cells_of(load(path, ["replicates=1", "title=other"]), {"x": "2"}))
    assert runner.ran == 2


def test_a_damaged_entry_of_the_store_counts_as_absent(tmp_path: Path) -> None:
    store = Store(tmp_path)
    name = key({"cell": 1})
    store.put(name, {"a": 1.5, "b": math.inf})
    assert store.get(name) == {"a": 1.5, "b": math.inf}
    next(tmp_path.rglob("*.json")).write_text("{")
    assert store.get(name) is None


def test_a_cell_that_fails_is_a_row_and_is_tried_again_next_time(tmp_path: Path) -> None:
    wrong = ["arms.direct.door.decision_us=none", "arms.direct.door.decision_calibration=no.toml"]
    cells = cells_of(load(small(tmp_path), ["replicates=1", *wrong]))
    with sweep(tmp_path) as runner:
        legacy, direct = runner.run(cells)
        runner.run(cells)
    assert not legacy.failure
    assert "no.toml" in direct.failure
    assert (runner.ran, runner.reused) == (3, 1)


def test_one_and_two_workers_say_the_same(tmp_path: Path) -> None:
    cells = cells_of(load(small(tmp_path)))
    found = []
    for jobs in (1, 2):
        with Sweep(jobs, store=Store(tmp_path / str(jobs)), quiet=True) as runner:
            found.append([dict(o.figures) for o in runner.run(cells)])
    assert json.dumps(found[0], sort_keys=True) == json.dumps(found[1], sort_keys=True)


def test_the_trace_of_an_arm_is_read_once_for_all_cells(tmp_path: Path) -> None:
    scenario = load(small(tmp_path))
    with sweep(tmp_path) as runner:
        runner.run(cells_of(scenario))
        assert runner.requests(scenario) == 150
        assert len(runner._traces) == 1


def test_a_missing_trace_is_bad_input_and_no_failure_row(tmp_path: Path) -> None:
    scenario = load(small(tmp_path), ["trace.source=nowhere.csv"])
    with sweep(tmp_path) as runner, pytest.raises(InputError, match="nowhere"):
        runner.run(cells_of(scenario))


def test_other_calibrations_of_the_users_own_are_other_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration = tmp_path / "decisions.toml"
    calibration.write_text("a = 1\n")
    own = [
        "arms.direct.door.decision_us=none",
        f"arms.direct.door.decision_calibration={calibration}",
    ]
    cell = cells_of(load(small(tmp_path), own))[1]
    names = [key(content(cell, "trace"))]
    calibration.write_text("a = 2\n")
    names.append(key(content(cell, "trace")))
    (tmp_path / "hw" / "calibration").mkdir(parents=True)
    (tmp_path / "hw" / "calibration" / "h100-80g.vllm.toml").write_text("")
    monkeypatch.setenv("ZEROLAYER_HARDWARE", str(tmp_path / "hw"))
    code.cache_clear()
    names.append(key(content(cell, "trace")))
    monkeypatch.undo()
    code.cache_clear()
    assert len(set(names)) == 3


def test_two_cells_of_the_same_content_are_one_run(tmp_path: Path) -> None:
    cells = cells_of(load(small(tmp_path)))[:1]
    with sweep(tmp_path) as runner:
        one, other = runner.run([*cells, *cells])
    assert runner.ran == 1
    assert json.dumps(dict(one.figures)) == json.dumps(dict(other.figures))


def test_a_cache_that_takes_nothing_costs_the_cache_and_not_the_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with sweep(tmp_path) as runner:
        outcomes = runner.run(cells_of(load(small(tmp_path))))
    assert all(outcome.figures for outcome in outcomes)
    said = capsys.readouterr().err
    assert said.count("not kept") == 1


def test_cells_that_are_added_while_others_run_are_run_too(tmp_path: Path) -> None:
    cells = cells_of(load(small(tmp_path)))
    growing = cells[:1]
    with Sweep(2, store=Store(tmp_path / "cache"), quiet=True) as runner:
        for place, outcome in runner.as_completed(growing):
            assert outcome.cell is growing[place]
            if place == 0:
                growing += cells[1:]
    assert runner.ran == len(cells)


def brief(scenario: Scenario, arm: str) -> list[SweepCell]:
    return [SweepCell(scenario, arm, 0, brief=True), SweepCell(scenario, arm, 0)]


def test_a_brief_cell_ends_once_its_p99s_must_be_infinite_and_only_then(tmp_path: Path) -> None:
    path = small(tmp_path, limit=700)
    with sweep(tmp_path) as runner:
        lost = load(path, ["wait.deadline_s=1"])
        cut, whole = runner.run(brief(lost, "direct"))
        assert cut.figures["cut"]
        for name in ("ttft_p99_s", "tpot_p99_s", "e2e_p99_s"):
            assert cut.figures[name] == whole.figures[name] == math.inf
        light = load(path, ["trace.scale=0.1", "wait.deadline_s=600"])
        full, same = runner.run(brief(light, "direct"))
        assert not full.figures.get("cut")
        assert json.dumps(dict(full.figures)) == json.dumps(dict(same.figures))


def test_a_brief_cell_of_few_requests_may_end_at_its_last(tmp_path: Path) -> None:
    lost = load(small(tmp_path, limit=100), ["wait.deadline_s=1"])
    with sweep(tmp_path) as runner:
        (outcome,) = runner.run(brief(lost, "direct")[:1])
    assert (outcome.failure, outcome.figures["ttft_p99_s"]) == ("", math.inf)


def test_what_a_brief_cell_found_to_its_end_is_known_to_a_whole_one(tmp_path: Path) -> None:
    light = load(small(tmp_path), ["trace.scale=0.1", "wait.deadline_s=600"])
    short, whole = brief(light, "direct")
    with sweep(tmp_path) as runner:
        runner.run([short])
        runner.run([whole])
        assert (runner.ran, runner.reused) == (1, 1)
        runner.run([short])
        assert runner.ran == 1


@given(st.integers(1, 700), st.integers(0, 60), st.data())
def test_a_collector_gives_up_only_where_no_p99_can_be_finite(
    offered: int, failed: int, data: st.DataObject
) -> None:
    failed = min(failed, offered)
    rows = Hopeful(offered)
    columns = {name: np.zeros(failed) for name in Collector._WANTED["requests"]}
    columns["outcome"] = np.full(failed, Outcome.oom)
    finished = data.draw(st.integers(0, offered - failed))
    samples = np.concatenate([np.ones(finished), np.full(failed, np.inf)])
    try:
        rows("requests", columns)
    except HopelessError:
        assert nearest_rank(samples, 99.0) == math.inf
    else:
        assert (
            nearest_rank(np.concatenate([np.ones(offered - failed), samples[finished:]]), 99) == 1
        )


def test_a_folder_without_room_for_the_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(InputError, match="no room for the trace"):
        share.save(history.load(load(small(tmp_path))), tmp_path / "file" / "trace")
