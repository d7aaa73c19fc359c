"""Reported faults of affinity and hot spots."""

import pytest

from dispatch.prefix_index import PrefixIndex
from dispatch.request import Request
from tests.dispatch.core_world import World, device, devices


def _blocks(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))


@pytest.mark.parametrize(("on_miss", "pick"), [("smallest_tree", 0), ("min_load", 1)])
def test_a_cold_prompt_goes_by_load_not_by_the_size_of_the_tree(on_miss: str, pick: int) -> None:
    world = World("cache_aware", 2, {"on_miss": on_miss})
    for number in range(2):  # b has the big tree, a the load
        request = Request(1000 + number, 0.0, 512 * 50, 1, block_hashes=_blocks(number * 100, 50))
        world.policy.index.insert(request, 1, world.graph)
    world.graph.n[0] = 50
    assert world.place(512, 1, block_hashes=_blocks(9000, 1)) == pick


def test_a_full_match_does_not_outweigh_a_crowd() -> None:
    world = World("load_aware", 4)
    request = Request(1000, 0.0, 1024, 1, block_hashes=_blocks(0, 2))
    world.policy.index.insert(request, 0, world.graph)
    for i, load in enumerate((12, 4, 0, 0)):
        world.graph.n[i] = load
    choice = world.policy.choose(request, world.graph, 0.0)
    costs = dict(zip(choice.best, choice.scores, strict=True))
    assert [-costs[i] for i in range(4)] == [-1, 0, 1, 1]
    assert world.dispatcher.submit(request).device in (2, 3)


@pytest.mark.parametrize("name", ["dynamo_kv", "cache_aware", "load_aware", "llmd", "preble"])
def test_prompts_that_share_nothing_are_balanced(name: str) -> None:
    params = {"profile": "optimized"} if name == "llmd" else {}
    world = World(name, 5, params)
    for number in range(512):
        world.place(512, 100, block_hashes=(10_000 + number,))
    assert min(world.loads()) >= 0.15 * 512


def _bound_to_three(params: dict[str, str]) -> tuple[World, list[int]]:
    world = World("session_affinity", [device(f"n{i}") for i in range(3)], params)
    homes = []
    for session in range(90):
        homes.append(world.place(session=session))
        world.dispatcher.finished(world.last)
    world.graph.add_device(device("n3"))
    return world, homes


def test_bindings_survive_a_new_replica_which_gets_the_new_sessions() -> None:
    world, homes = _bound_to_three({"mode": "table"})
    assert [homes.count(i) for i in range(3)] == [30, 30, 30]
    new = []
    for session in range(90, 100):
        new.append(world.place(session=session))
        world.dispatcher.finished(world.last)
    assert new == [3] * 10
    for session in range(90):
        assert world.place(session=session) == homes[session]
        world.dispatcher.finished(world.last)


def test_a_ring_moves_about_its_share_of_live_sessions_on_scale_up() -> None:
    world, homes = _bound_to_three({"mode": "ring"})
    moved = 0
    for session in range(90):
        moved += world.place(session=session) != homes[session]
        world.dispatcher.finished(world.last)
    assert 0 < moved < 45


def test_one_hot_session_is_spread_by_the_bound() -> None:
    world = World("session_affinity", 4)
    for _ in range(40):
        world.place(session=1)
    assert max(world.loads()) <= 1.25 * 10 + 1


def test_without_a_bound_it_is_not() -> None:
    world = World("session_affinity", 4, {"bound": 0.0})
    for _ in range(40):
        world.place(session=1)
    assert max(world.loads()) == 40


def test_the_memory_of_a_prefix_index_is_bounded_and_evictions_are_counted() -> None:
    index, world = PrefixIndex(capacity_blocks=1000), World("round_robin", 2)
    request = Request(0, 0.0, 512, 1)
    for number in range(20_000):
        request.block_hashes = (number,)
        index.insert(request, number % 2, world.graph)
    assert (len(index), index.evicted) == (1000, 19_000)
    assert sum(index.held.values()) == 1000


def test_a_re_created_device_has_lost_its_prefixes() -> None:
    world = World("cache_aware", devices(2))
    request = Request(1, 0.0, 1024, 1, block_hashes=(1, 2))
    world.policy.index.insert(request, 0, world.graph)
    assert world.policy.index.matched(request, world.graph) == {0: 1024}
    world.graph.remove_device(0)
    world.graph.add_device(devices(2)[0])
    assert world.policy.index.matched(request, world.graph) == {}


def test_a_match_counts_only_from_the_head_on() -> None:
    index, world = PrefixIndex(), World("round_robin", 2)
    index.insert(Request(1, 0.0, 1536, 1, block_hashes=(1, 2, 3)), 0, world.graph)
    other = Request(2, 0.0, 1500, 1, block_hashes=(1, 2, 9))
    assert index.matched(other, world.graph) == {0: 1024}
    assert index.matched(Request(3, 0.0, 512, 1, block_hashes=(2,)), world.graph) == {0: 512}
