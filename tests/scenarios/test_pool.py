"""A pool outlives its workers; a death costs one cell."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dispatch.errors import ZerolayerError
from scenarios.pool import Completed, Inline, Pool, failure_of
from tests.scenarios.pool_work import Broken, Stillborn, Work


def by_cell(pool: Any, cells: list[tuple[str, Any]]) -> list[Completed]:
    return sorted(pool.as_completed(cells), key=lambda done: done.index)


def test_every_cell_comes_back_once(tmp_path: Path) -> None:
    done = by_cell(Pool(Work, (tmp_path,), jobs=2), [("square", n) for n in range(20)])
    assert [(d.index, d.result) for d in done] == [(n, n * n) for n in range(20)]


def test_a_killed_worker_costs_nothing_but_a_second_try(tmp_path: Path) -> None:
    cells = [("die once", n) if n % 3 == 0 else ("square", n) for n in range(9)]
    done = by_cell(Pool(Work, (tmp_path,), jobs=2), cells)
    assert [d.result for d in done] == [0, 1, 4, 3, 16, 25, 6, 49, 64]
    assert [d.tries for d in done] == [2, 1, 1, 2, 1, 1, 2, 1, 1]


def test_a_cell_that_always_kills_becomes_one_failure_after_three_tries(tmp_path: Path) -> None:
    done = by_cell(Pool(Work, (tmp_path,), jobs=2), [("square", 2), ("die", 0), ("square", 3)])
    assert [d.result for d in done] == [4, None, 9]
    failure = done[1].failure
    assert failure is not None
    assert failure.text == "the worker died 3 times on this cell, last by signal SIGKILL"
    assert done[1].tries == 3


def test_an_exception_is_a_failure_at_once_and_keeps_its_problems(tmp_path: Path) -> None:
    refused, boom = by_cell(Pool(Work, (tmp_path,), jobs=1), [("refuse", 0), ("boom", 0)])
    assert refused.failure is not None
    assert [str(p) for p in refused.failure.problems] == ["row 3: is empty"]
    assert boom.failure is not None
    assert boom.failure.text == "ValueError: boom"
    assert "pool_work.py" in boom.failure.trace
    assert boom.tries == 1


def test_work_that_cannot_start_is_every_cells_failure(tmp_path: Path) -> None:
    done = by_cell(Pool(Broken, (), jobs=2), [("square", 1), ("square", 2)])
    assert [d.failure.text for d in done if d.failure] == ["here: cannot start"] * 2


def test_workers_that_die_at_birth_end_the_run_instead_of_a_loop() -> None:
    with pytest.raises(ZerolayerError, match="in a row died"):
        by_cell(Pool(Stillborn, (), jobs=2), [("square", 1)])


def test_leaving_the_loop_leaves_no_process(tmp_path: Path) -> None:
    results = Pool(Work, (tmp_path,), jobs=2).as_completed([("pid", n) for n in range(50)])
    pid = next(results).result
    results.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_progress_adds_up(tmp_path: Path) -> None:
    counted: list[int] = []
    list(Pool(Work, (tmp_path,), jobs=2).as_completed([("square", 1)] * 30, counted.append))
    assert sum(counted) == 30


def test_the_inline_executor_answers_alike(tmp_path: Path) -> None:
    cells = [("square", 3), ("boom", 0)]
    inline, pooled = (
        by_cell(Inline(Work, (tmp_path,)), cells),
        by_cell(Pool(Work, (tmp_path,), jobs=2), cells),
    )
    assert [(d.result, d.failure and d.failure.text) for d in inline] == [
        (d.result, d.failure and d.failure.text) for d in pooled
    ]


def test_what_the_system_refused_in_a_worker_keeps_its_number() -> None:
    failure = failure_of(OSError(errno.ENOSPC, "Error writing bytes to file"))
    assert failure.system == (errno.ENOSPC, None)
