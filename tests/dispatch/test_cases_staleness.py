"""Reported faults of stale signals and herding."""

import math

import pytest

from dispatch.errors import InputError
from dispatch.graph import Staleness, TopologyGraph
from tests.dispatch.core_world import GIB, World, devices


def _polled(credit: bool) -> list[int]:
    world = World("p2c_polled", 2, {"credit": credit})
    for i, load in enumerate((3, 4)):
        world.graph.observe_queue(i, 0, load, 0.0)
    for second in range(20):
        world.now = second * 0.25
        world.place()
    return world.loads()


def test_two_choices_on_a_stale_poll_herd() -> None:
    assert _polled(credit=False) == [20, 0]


def test_two_choices_with_credit_for_what_was_placed_do_not() -> None:
    assert _polled(credit=True)[0] in (10, 11)


def test_credits_newer_than_the_snapshot_survive_it() -> None:
    world = World("vllm_dp", 2)
    for arrival in range(10):
        world.now = 0.02 * (arrival + 1)
        world.place()
        if arrival % 5 == 4:  # a snapshot taken before the last dispatch
            for i in range(2):
                seen = world.loads()[i] - (world.graph.n[i] > 0 and i == 0)
                world.graph.observe_queue(i, 0, seen, world.now - 0.02)
    assert world.loads() == [5, 5]


def test_a_burst_on_one_snapshot_spreads_evenly() -> None:
    for name in ("topology", "least_requests", "most_free"):
        world = World(name, 4).memory(70, 70, 70, 70)
        for _ in range(100):
            world.place()
        assert world.loads() == [25, 25, 25, 25], name


def test_a_burst_herds_where_reservations_are_off() -> None:
    graph = TopologyGraph(devices(4), reservations=False)
    world = World("topology", 4, graph=graph).memory(70, 70, 70, 71)
    for _ in range(20):
        world.place()
    assert world.loads() == [0, 0, 0, 20]


def test_a_signal_that_is_saturated_between_any_two_samples_is_a_configuration_error() -> None:
    rule = Staleness(limit_s=0.2, mode="saturated", refresh_s=15.0)
    with pytest.raises(InputError, match=r"comes every 15.0 s but is saturated after 0.2 s"):
        TopologyGraph(devices(1), staleness={"memory": rule})


def test_an_ignored_stale_signal_blocks_nobody() -> None:
    rule = Staleness(limit_s=0.2, mode="ignore", refresh_s=15.0)
    graph = TopologyGraph(devices(1), staleness={"memory": rule})
    world = World("topology", 1, graph=graph).memory(1)
    for second in range(15):
        world.now = float(second)
        assert world.place(2000, 2000) == (0 if second else -1)  # 1 GiB known is too little


@pytest.mark.parametrize(("mode", "device"), [("last_known", 0), ("saturated", 1), ("ignore", 1)])
def test_a_stale_device_is_treated_by_the_rule_of_its_signal(mode: str, device: int) -> None:
    rule = Staleness(limit_s=1.0, mode=mode)  # type: ignore[arg-type]
    graph = TopologyGraph(devices(2), staleness={"memory": rule})
    world = World("topology", 2, graph=graph)
    graph.observe_memory(0, 70 * GIB, 70 * GIB, 0.0)
    graph.observe_memory(1, 30 * GIB, 30 * GIB, 4.9)
    world.now = 5.0
    assert world.place() == device
    assert graph.status(0, "memory") == "stale"


def test_one_signal_has_one_owner() -> None:
    world = World("least_kv", 2)
    graph = world.graph
    graph.observe_kv(0, 161000 / 162938, 121, 1.0, owner="worker")
    graph.observe_kv(1, 0.5, 80_000, 1.0, owner="worker")
    assert not graph.observe_kv(0, 2100 / 162938, 10_000, 2.0, owner="scheduler")
    assert graph.signals["kv"].foreign == 1
    assert world.place() == 1


def test_a_signal_that_never_changed_under_load_is_unsupported_not_idle() -> None:
    world = World("least_kv", 2)
    for i in range(40):
        world.now = 0.1 * i
        world.graph.observe_kv(0, 0.0, 0.0, world.now)
        world.graph.observe_kv(1, 0.3 + 0.01 * i, 1000 - i, world.now)
        world.place()
    assert world.graph.status(0, "kv") == "unsupported"
    assert world.graph.status(1, "kv") == "ok"
    world.now = 5.0
    assert world.place() == 1


def test_an_idle_signal_may_stay_constant() -> None:
    graph = TopologyGraph(devices(1))
    for i in range(100):
        graph.observe_kv(0, 0.0, 100.0, float(i))
    assert graph.status(0, "kv") == "ok"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
def test_nonsense_stops_at_the_border(bad: float) -> None:
    graph = TopologyGraph(devices(1))
    graph.observe_memory(0, 10 * GIB, 5 * GIB, 1.0)
    taken = [
        graph.observe_memory(0, bad, 5 * GIB, 2.0),
        graph.observe_memory(0, 10 * GIB, bad, 2.0),
        graph.observe_ring(0, bad, 2.0),
        graph.observe_pcie(0, bad, 2.0),
        graph.observe_queue(0, bad, 1, 2.0),
        graph.observe_kv(0, 0.5, bad, 2.0),
    ]
    assert taken == [False] * 6
    assert graph.room[0] == 5 * GIB
    assert sum(s.refused for s in graph.signals.values()) == 6


def test_a_block_larger_than_what_is_free_stops_at_the_border() -> None:
    graph = TopologyGraph(devices(1))
    assert not graph.observe_memory(0, 5 * GIB, 6 * GIB, 1.0)


def test_a_duplicate_or_late_sample_is_dropped() -> None:
    graph = TopologyGraph(devices(1))
    graph.observe_memory(0, 10 * GIB, 5 * GIB, 1.0)
    assert not graph.observe_memory(0, 9 * GIB, 9 * GIB, 1.0)
    assert not graph.observe_memory(0, 9 * GIB, 9 * GIB, 0.5)
    assert (graph.block[0], graph.signals["memory"].late) == (5 * GIB, 2)


def test_a_sample_of_a_former_life_is_dropped() -> None:
    graph = TopologyGraph(devices(1))
    graph.observe_memory(0, 10 * GIB, 10 * GIB, 1.0)
    graph.remove_device(0)
    graph.add_device(devices(1)[0], source_s=2.0)
    assert not graph.observe_memory(0, 9 * GIB, 9 * GIB, 1.5)
    assert graph.room[0] == -1.0


def test_a_reservation_retires_only_by_a_sample_at_or_after_its_allocation() -> None:
    world = World("topology", 1).memory(10)
    world.place(512, 512)  # 1 GiB
    world.now = 1.0
    world.dispatcher.started(world.last)
    world.graph.observe_memory(0, 10 * GIB, 10 * GIB, 0.9)  # cannot have seen it
    assert world.graph.room[0] == 9 * GIB
    world.graph.observe_memory(0, 9 * GIB, 9 * GIB, 1.0)
    assert world.graph.room[0] == 9 * GIB


def test_bulk_samples_do_what_single_ones_do() -> None:
    import numpy as np

    graphs = [TopologyGraph(devices(3)) for _ in range(2)]
    free, block = [9 * GIB, math.nan, 7 * GIB], [8 * GIB, GIB, 7.5 * GIB]
    for i in range(3):
        graphs[0].observe_memory(i, free[i], block[i], 1.0)
        graphs[0].observe_pcie(i, 0.1 * i, 1.0)
    graphs[1].observe_many("memory", np.arange(3), (free, block), 1.0)
    graphs[1].observe_many("pcie", np.arange(3), ([0.0, 0.1, 0.2],), 1.0)
    for one, many in ((graphs[0].room, graphs[1].room), (graphs[0].link, graphs[1].link)):
        assert one.tolist() == many.tolist()


def test_kv_samples_of_a_few_devices_do_what_single_ones_do_in_forks_too() -> None:
    graphs = [TopologyGraph(devices(4, reserve_output=False)) for _ in range(2)]
    forks = [graph.fork() for graph in graphs]
    samples = [(0, 0.5, 40.0, 1.0), (1, math.nan, 7.0, 1.0), (2, 0.1, 9.0, 1.0), (2, 0.2, 8.0, 0.5)]
    for graph in graphs:
        for i in range(4):
            graph.observe_memory(i, 9 * GIB, 9 * GIB, 0.0)
    for sample in samples:
        graphs[0].observe_kv(*sample)
    graphs[1].observe_kv_of(samples)
    for one, other in (graphs, forks):
        assert one.room.tolist() == other.room.tolist()
        assert one.signals["kv"].source_s.tolist() == other.signals["kv"].source_s.tolist()
        assert (one.signals["kv"].late, one.signals["kv"].refused) == (1, 1)
        assert (other.signals["kv"].late, other.signals["kv"].refused) == (1, 1)
    assert graphs[1].room[0] == 40 * graphs[1].bytes_per_block[0]


def test_held_requests_see_new_samples_when_woken() -> None:
    world = World("topology", 1).memory(1)
    assert world.place(2000, 2000) == -1
    world.graph.observe_memory(0, 70 * GIB, 70 * GIB, 1.0)
    world.now = 1.0
    assert world.dispatcher.wake() == 1
