"""What-ifs and plans as users run them: stopped, gone on with, and the same bytes each time."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from tests.cli.program import hashes, left_after, start
from tests.scenarios.small import small


@pytest.mark.slow
def test_a_sweep_that_is_stopped_keeps_its_cells_and_says_how_to_go_on(tmp_path: Path) -> None:
    scenario = str(small(tmp_path, limit=500))
    cache, out = tmp_path / "cache", tmp_path / "out"
    words = ["whatif", scenario, "--vary", "seed=1,2,3,4", "--seeds", "2", "--cache", str(cache),
             "-o", str(out), "-j", "2"]  # fmt: skip
    first = start(*words)
    while not (kept := list(cache.rglob("*.json"))):
        assert first.poll() is None
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130
    assert f"finished cells are kept in {cache}" in err
    assert "the same command goes on from there" in err
    assert "Traceback" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "small.toml"]
    assert not left_after(first.pid)
    ages = {path: path.stat().st_mtime_ns for path in kept}
    second = start(*words)
    _, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    assert len(list(cache.rglob("*.json"))) == 4 * 2 * 2
    assert {path: path.stat().st_mtime_ns for path in kept} == ages


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["whatif", "--vary", "fleet.pools.a.count=1,2", "--named", "lose-pool"],
        ["plan", "--slo", "oom_rate=0.05", "--arm", "direct", "--most", "6"],
    ],
)
def test_two_hash_seeds_and_any_number_of_workers_give_the_same_bytes(
    tmp_path: Path, words: list[str]
) -> None:
    verb, *options = words
    scenario = small(tmp_path, limit=150)
    runs = [
        start(verb, str(scenario), *options, "-o", str(tmp_path / name), "-j", jobs, "--quiet",
              "--json", "--cache", str(tmp_path / f"cache-{name}"), PYTHONHASHSEED=seed)
        for name, jobs, seed in (("a", "1", "0"), ("b", "2", "4242"))
    ]  # fmt: skip
    said = []
    for run in runs:
        out, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        said.append(json.loads(out) | {"folder": None})
    assert said[0] == said[1]
    assert hashes(tmp_path / "a") == hashes(tmp_path / "b")
    assert "report.html" in hashes(tmp_path / "a")
