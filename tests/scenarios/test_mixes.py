"""The search over mixes, against looking at every fleet."""

import itertools
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scenarios.plan.fleets import Counts, Kinds
from scenarios.plan.mixes import Columns


def at_once(step: Coroutine[Any, Any, Counts | None]) -> Counts | None:
    """Run a step that waits for nothing."""
    with pytest.raises(StopIteration) as end:
        step.send(None)
    found: Counts | None = end.value.value
    return found


prices = st.tuples(*[st.integers(1, 9).map(float)] * 3)
# At each counts of the two weaker kinds, how many of the strongest it takes (9: never enough).
needs = st.lists(st.integers(0, 9), min_size=16, max_size=16)


@given(prices, needs, st.integers(0, 2), st.integers(1, 3), st.integers(0, 3))
def test_the_cheapest_fleet_is_found_wherever_more_of_the_strongest_never_harms(
    price: tuple[float, ...], need: Sequence[int], strongest: int, wide: int, lenient: int
) -> None:
    kinds = Kinds(("a", "b", "c"), price, (1, 1, 1))

    def holds(counts: Counts, slack: int = 0) -> bool:
        weaker = [n for k, n in enumerate(counts) if k != strongest]
        wanted = need[4 * weaker[0] + weaker[1]]
        return any(counts) and wanted < 9 and counts[strongest] + slack >= wanted

    async def scout(fleets: Sequence[Counts]) -> list[bool]:
        return [holds(counts, lenient) for counts in fleets]

    async def sure(counts: Counts) -> bool:
        return holds(counts)

    columns = Columns(kinds, strongest, 12, [3] * 3, scout, sure, wide, budget=10_000)
    found = at_once(columns.search())
    grid = itertools.product(*(range(9) if k == strongest else range(4) for k in range(3)))
    feasible = [kinds.cost(counts) for counts in grid if holds(counts)]
    assert (kinds.cost(found) if found else None) == (min(feasible) if feasible else None)


def test_the_budget_ends_a_search_and_says_so() -> None:
    kinds = Kinds(("a", "b"), (1.0, 1.0), (1, 1))

    async def scout(fleets: Sequence[Counts]) -> list[bool]:
        return [False] * len(fleets)

    async def sure(counts: Counts) -> bool:
        return False

    columns = Columns(kinds, 0, 9, [9, 9], scout, sure, 2, budget=4)
    assert at_once(columns.search()) is None
    assert columns.cut
    assert columns.looked == 4
