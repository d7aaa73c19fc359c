"""A case that hangs or kills its process costs that case alone."""

import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.gpu import watch

CHILD = """
import json, os, sys, time
first, spent = int(sys.argv[1]), float(sys.argv[2])
def say(**row): print(json.dumps(row), flush=True)
for at in range(first, 4):
    say(kind="case", at=at, what=f"case {at}")
    print("a library's chatter", flush=True)
    if at == 1 and "BAD" == "hang": time.sleep(60)
    if at == 1 and "BAD" == "die": sys.exit("illegal memory access")
    say(kind="time", at=at, spent=spent > 0)
say(kind="end")
"""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    def rows(bad: str, case_s: float = 20.0, total_s: float = 60.0) -> list[dict[str, Any]]:
        path = tmp_path / "child.py"
        path.write_text(CHILD.replace("BAD", bad))
        return list(watch.rows([sys.executable, str(path)], case_s, total_s))

    return rows


def test_where_nothing_fails_every_row_comes_through(run: Any) -> None:
    assert [row["at"] for row in run("none")] == [0, 1, 2, 3]


def test_a_dead_process_is_named_and_the_next_case_runs_in_a_fresh_one(run: Any) -> None:
    found = run("die")
    assert [row["at"] for row in found] == [0, 1, 2, 3]
    assert found[1]["kind"] == "failed"
    assert found[1]["what"] == "case 1"
    assert "illegal memory access" in found[1]["error"]
    assert found[2]["spent"]  # the fresh one knows how much time is gone


def test_a_case_that_hangs_is_killed_and_the_rest_goes_on(run: Any) -> None:
    found = run("hang", case_s=1.5)
    assert [row["kind"] for row in found] == ["time", "failed", "time", "time"]
    assert "limit of a case (1.5 s)" in found[1]["error"]


def test_the_limit_of_all_of_it_ends_the_check(run: Any) -> None:
    found = run("hang", total_s=1.5)
    assert [row["kind"] for row in found] == ["time", "failed"]
    assert "limit of the whole check" in found[1]["error"]


def test_a_child_that_cannot_start_is_tried_once(tmp_path: Path) -> None:
    found = list(watch.rows([sys.executable, str(tmp_path / "nothing.py")], 20.0, 60.0))
    assert [row["kind"] for row in found] == ["failed"]
    assert "nothing.py" in found[0]["error"]
