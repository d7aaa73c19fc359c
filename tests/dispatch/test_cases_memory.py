"""Reported faults of memory, capacity and unlike devices."""

import pytest

from dispatch.audit import saturation
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from tests.dispatch.core_world import GIB, World, device, devices


def _few_long_against_many_short(params: dict[str, float]) -> int:
    world = World("cache_aware", 2, params)
    for i, (count, usage) in enumerate(((3, 0.97), (20, 0.30))):
        world.graph.n[i] = count
        world.graph.observe_kv(i, usage, 1000, 1.0)
    return world.place()


def test_a_request_count_alone_does_not_see_a_full_kv_cache() -> None:
    assert _few_long_against_many_short({}) == 0


def test_a_kv_trigger_sees_it() -> None:
    assert _few_long_against_many_short({"overload_token_usage": 0.9}) == 1


@pytest.mark.parametrize(("name", "pick"), [("least_requests", 0), ("least_work", 1)])
def test_tokens_weigh_more_truly_than_requests(name: str, pick: int) -> None:
    world = World(name, 2)
    for i, prompts in enumerate(((10_000, 10_000), (100,) * 5)):
        for prompt in prompts:
            world.graph.take(world.request(prompt, 10), i, 0.0, 0)
    assert world.place(10, 10) == pick


def test_eight_gpus_get_four_times_the_traffic_of_two() -> None:
    world = World("weighted_least_requests", devices(2, (8, 2)))
    for _ in range(100):
        world.place()
    assert world.loads() == [80, 20]


def test_equal_counts_on_unlike_workers_are_the_fault_of_the_unweighted_form() -> None:
    world = World("least_requests", devices(2, (8, 2)))
    for _ in range(100):
        world.place()
    assert world.loads() == [50, 50]


def test_a_mean_over_unlike_devices_comes_with_its_weighted_form_and_the_saturated_ones() -> None:
    found = saturation({"H100": 0.2, "L4": 1.5}, {"H100": 32, "L4": 1})
    assert found.mean == pytest.approx(0.85)
    assert found.weighted_mean == pytest.approx(0.24, abs=0.005)
    assert found.saturated == ("L4",)


def test_peak_workspaces_gate_how_many_run_together() -> None:
    fleet = [device("a", kv_bytes_per_token=0.0, workspace_bytes=5 * GIB, total_bytes=16 * GIB)]
    world = World("topology", fleet).memory(16)
    placed = [world.place() for _ in range(5)]
    assert placed == [0, 0, 0, -1, -1]
    assert len(world.dispatcher.held) == 2
    world.dispatcher.finished(1)
    assert (world.loads(), len(world.dispatcher.held)) == ([3], 1)


def test_capacity_is_what_was_measured_not_what_the_gpu_type_promises() -> None:
    fleet = [device("a"), device("b")]  # one GPU type, but unequal launch order
    world = World("least_kv", fleet)
    capacity, used = (228_139, 81_561), [0, 0]
    for arrival in range(300):
        world.now = float(arrival)
        for i in range(2):
            world.graph.observe_kv(i, used[i] / capacity[i], capacity[i] - used[i], world.now)
        used[world.place()] += 500
    assert used[0] / used[1] == pytest.approx(capacity[0] / capacity[1], rel=0.03)


def test_a_group_can_use_of_each_member_only_what_its_smallest_has() -> None:
    group = device("g", gpus=2, kv_bytes_per_token=10 * GIB / 1000, total_bytes=2 * 24 * GIB)
    world = World("topology", [group])
    world.graph.observe_members(0, (24 * GIB, 8 * GIB), (24 * GIB, 8 * GIB), 1.0)
    assert world.place(1000, 1000) == -1  # 20 GiB, 10 on each
    assert world.place(700, 700) == -1
    world.dispatcher.cancelled(1)
    world.dispatcher.cancelled(2)
    assert world.place(600, 600) == 0  # 6 on each


def test_what_no_device_could_ever_hold_is_rejected_not_held() -> None:
    world = World("topology", 2).memory(70, 70)
    decision = world.dispatcher.submit(world.request(100_000, 1))
    assert (decision.device, decision.reason) == (-1, Reason.too_large)


def test_free_bytes_in_pieces_do_not_serve_where_one_block_is_needed() -> None:
    world = World("topology", 2)
    world.graph.observe_memory(0, 40 * GIB, 2 * GIB, 1.0)  # much, but in pieces
    world.graph.observe_memory(1, 10 * GIB, 9 * GIB, 1.0)
    assert world.place(2000, 2000) == 1
    blind = World("topology_free", 2)
    blind.graph.observe_memory(0, 40 * GIB, 2 * GIB, 1.0)
    blind.graph.observe_memory(1, 10 * GIB, 9 * GIB, 1.0)
    assert blind.place(2000, 2000) == 0


def test_paged_kv_goes_by_free_blocks_once_they_are_told() -> None:
    fleet = devices(2, reserve_output=False, block_tokens=16)
    world = World("topology", fleet).memory(4, 4)
    world.graph.observe_kv(0, 0.9, 10, 1.0)  # 160 tokens
    world.graph.observe_kv(1, 0.5, 50, 1.0)
    assert world.place(700, 1000) == 1


def test_workspace_gates_a_paged_replica_by_its_block() -> None:
    fleet = devices(2, reserve_output=False, workspace_bytes=GIB)
    graph = TopologyGraph(fleet)
    world = World("topology", fleet, graph=graph).memory(0.5, 2)
    graph.observe_kv(0, 0.1, 9000, 1.0)
    graph.observe_kv(1, 0.5, 5000, 1.0)
    assert world.place() == 1


def test_most_free_reads_kv_blocks_under_paged_kv_and_not_what_the_engine_leaves_alone() -> None:
    world = World("most_free", devices(2, reserve_output=False)).memory(30, 3)
    assert world.place(10, 10) == 0
    for i, free_blocks in enumerate((50, 9000)):
        world.graph.observe_kv(i, 0.5, free_blocks, 1.0)
    assert world.place(10, 10) == 1
