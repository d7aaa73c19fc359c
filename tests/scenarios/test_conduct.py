"""Searches side by side over one sweep."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from scenarios.plan.conduct import Ask, Together, conduct


class Echo:
    """A sweep whose outcome of a cell is ten times the cell, the newest cells first."""

    shared = None

    def __init__(self) -> None:
        self.ran: list[int] = []
        self.most_waiting = 0

    def as_completed(self, cells: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        waiting: list[int] = []
        seen = 0
        while waiting or seen < len(cells):
            waiting += range(seen, len(cells))
            seen = len(cells)
            self.most_waiting = max(self.most_waiting, len(waiting))
            place = waiting.pop()
            self.ran.append(cells[place])
            yield place, 10 * cells[place]


async def chain(*cells: int) -> list[int]:
    """Ask for one cell after the other."""
    return [(await ask(cell))[0] for cell in cells]


async def ask(*cells: Any) -> list[Any]:
    return list(await Ask(cells))


async def tree() -> list[list[int]]:
    first = await ask(1, 2)
    return [first, *(await Together([chain(3, 4), chain(5), chain()]))]


def run(sweep: Any, *steps: Any) -> list[Any]:
    return conduct(steps, sweep)


def test_results_come_in_order_however_cells_complete() -> None:
    assert run(Echo(), ask(1, 2, 3), chain(4, 5)) == [[10, 20, 30], [40, 50]]


def test_parts_of_a_search_run_side_by_side() -> None:
    sweep = Echo()
    assert run(sweep, tree(), tree()) == [[[10, 20], [30, 40], [50], []]] * 2
    assert sweep.most_waiting >= 4


def test_a_search_that_asks_for_nothing_is_done_at_once() -> None:
    sweep = Echo()
    assert run(sweep, chain(), ask()) == [[], []]
    assert not sweep.ran


def test_an_error_in_one_search_ends_them_all() -> None:
    async def broken() -> list[int]:
        await ask(1)
        raise ValueError("boom")

    other = chain(1, 2, 3)
    with pytest.raises(ValueError, match="boom"):
        run(Echo(), broken(), other)
    assert other.cr_frame is None  # type: ignore[attr-defined]
