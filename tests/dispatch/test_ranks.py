"""Devices in the order of their load."""

from hypothesis import given
from hypothesis import strategies as st

from dispatch.ranks import Ranks
from tests.dispatch.core_world import World

LOADS = st.lists(st.integers(0, 6), min_size=1, max_size=9)


@given(loads=LOADS, data=st.data())
def test_ranks_equal_a_sort_after_any_changes(loads: list[int], data: st.DataObject) -> None:
    some = data.draw(st.sets(st.integers(0, len(loads) - 1), min_size=1))
    ranks = Ranks(some, loads)
    for _ in range(data.draw(st.integers(0, 12))):
        device = data.draw(st.integers(0, len(loads) - 1))
        loads[device] = data.draw(st.integers(0, 9))
        ranks.move(device, loads[device])
    order = sorted(some, key=lambda d: (loads[d], d))
    chosen = data.draw(st.sampled_from([d for d in order if loads[d] == loads[order[0]]]))
    best = [chosen, *(d for d in order if d != chosen)][:5]
    assert ranks.best(chosen, 5) == (best, [loads[d] for d in best])


@given(steps=st.lists(st.tuples(st.sampled_from(["place", "finish", "turn"]), st.integers(0, 4))))
def test_least_requests_goes_where_the_books_count_fewest(steps: list[tuple[str, int]]) -> None:
    world = World("least_requests", 5)
    graph, flights = world.graph, world.dispatcher.flights
    for moment, (step, at) in enumerate(steps):
        if step == "place":
            up = [i for i in range(5) if graph.up[i]]
            fewest = min((int(graph.n[i]) for i in up), default=0)
            chosen = world.place()
            assert chosen == -1 if not up else chosen in up and graph.n[chosen] == fewest + 1
        elif step == "finish" and flights:
            world.dispatcher.finished(sorted(flights)[at % len(flights)])
        elif step == "turn":
            graph.set_health(at, not graph.up[at], moment + 1.0)
