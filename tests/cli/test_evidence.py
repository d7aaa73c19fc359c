"""The main command from end to end, as users run it."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.program import hashes, left_after, living, start
from tests.scenarios.small import small


@pytest.mark.slow
def test_two_hash_seeds_and_any_number_of_workers_give_the_same_bytes(tmp_path: Path) -> None:
    scenario = small(tmp_path, limit=800)
    runs = [
        start("evidence", str(scenario), "-o", str(tmp_path / name), "-j", jobs, "--quiet",
              PYTHONHASHSEED=seed)
        for name, jobs, seed in (("a", "1", "0"), ("b", "2", "4242"))
    ]  # fmt: skip
    for run in runs:
        out, err = run.communicate(timeout=300)
        assert run.returncode in (0, 1, 3), err
        assert "report.html" in out
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    assert {"report.html", "report.pdf", "report.md", "summary.json"} <= set(hashes(tmp_path / "a"))


@pytest.mark.slow
def test_a_run_verifies_and_a_changed_figure_does_not(tmp_path: Path) -> None:
    scenario = small(tmp_path, limit=700)
    made = start("evidence", str(scenario), "-o", str(tmp_path / "run"), "-j", "2", "--quiet")
    made.communicate(timeout=300)
    assert made.returncode in (0, 1, 3)
    good = start("verify", str(tmp_path / "run"), "--quiet", "--json")
    said, err = good.communicate(timeout=300)
    assert good.returncode == 0, err
    assert json.loads(said)["other_bytes"] == []
    path = tmp_path / "run" / "summary.json"
    path.write_text(path.read_text().replace('"confidence": 0.95', '"confidence": 0.99'))
    bad = start("verify", str(tmp_path / "run"), "--quiet", "--json")
    said, err = bad.communicate(timeout=300)
    assert bad.returncode == 1, err
    told = json.loads(said)
    assert told["damaged"] == ["summary.json is not the file that the manifest names"]
    assert told["figures"] == [["confidence", 0.99, 0.95]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_leaves_no_folder_and_no_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    scenario = small(tmp_path, limit=15_000)
    run = start("evidence", str(scenario), "-o", str(tmp_path / "deep" / "run"), "-j", "2")
    assert run.stderr is not None
    while "requests/s" not in run.stderr.readline():
        assert run.poll() is None
    assert len(living(run.pid)) >= 3
    os.killpg(run.pid, number)
    run.communicate(timeout=60)
    assert run.returncode == 128 + number
    assert [path.name for path in tmp_path.iterdir()] == [scenario.name]
    assert not left_after(run.pid)
