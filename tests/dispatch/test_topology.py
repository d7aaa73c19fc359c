"""The topology policy term by term."""

import math

import pytest

from dispatch.observed import link_order
from dispatch.outcomes import Reason
from tests.dispatch.core_world import GIB, World, device, devices


def _pair(policy: str = "topology", params: dict[str, object] | None = None) -> World:
    return World(policy, devices(2, gpus=4), params)


def _links(world: World, rings: tuple[float, float], pcie: tuple[float, float]) -> World:
    for i in range(2):
        world.graph.observe_ring(i, rings[i], 1.0)
        world.graph.observe_pcie(i, pcie[i], 1.0)
    return world


def test_the_largest_block_that_fits_wins() -> None:
    assert World("topology", 3).memory(20, 60, 40).place() == 1


def test_blocks_within_a_tenth_are_one_bin_and_the_ring_decides() -> None:
    world = _links(_pair().memory(60, 55), (20e-6, 10e-6), (0.0, 0.9))
    assert world.place() == 1


def test_blocks_further_apart_are_not() -> None:
    world = _links(_pair().memory(60, 53), (20e-6, 10e-6), (0.9, 0.0))
    assert world.place() == 0


def test_with_equal_rings_pcie_decides() -> None:
    world = _links(_pair().memory(60, 55), (10e-6, 10e-6), (0.5, 0.4))
    assert world.place() == 1


def test_a_bin_of_zero_leaves_only_the_block() -> None:
    world = _links(_pair(params={"b_bin_ratio": 0.0}).memory(60, 59), (20e-6, 1e-6), (1.0, 0.0))
    assert world.place() == 0


def test_a_device_of_one_gpu_has_no_ring() -> None:
    world = World("topology", [device("a", gpus=4), device("b")]).memory(60, 60)
    world.graph.observe_ring(0, 4e-6, 1.0)
    for i in range(2):
        world.graph.observe_pcie(i, 0.5, 1.0)
    assert world.place() == 1


def test_an_unknown_ring_comes_after_every_known_one() -> None:
    world = _pair().memory(60, 60)
    world.graph.observe_ring(1, 1.0, 1.0)
    assert world.place() == 1


def test_the_bin_never_reaches_below_what_the_request_needs() -> None:
    world = _links(_pair().memory(2.0, 1.85), (20e-6, 10e-6), (0.5, 0.4))
    assert world.place(1000, 940) == 0  # 1.89 GiB


def test_memory_that_nobody_told_is_used_last_or_never() -> None:
    for unknown, pick in (("last", 1), ("never", -1)):
        world = World("topology", 2, {"unknown": unknown})
        world.graph.observe_memory(0, GIB, GIB, 1.0)
        assert world.place(500, 500) == 0
        assert world.place(500, 500) == pick


def test_before_the_first_sample_the_fewest_in_flight_gets_it() -> None:
    world = World("topology", 3)
    assert sorted(world.place() for _ in range(6)) == [0, 0, 1, 1, 2, 2]


def test_weighted_takes_the_least_sum() -> None:
    params: dict[str, object] = {"mode": "weighted", "ring_weight": 1.0, "pcie_weight": 0.0}
    world = _links(_pair(params=params).memory(60, 30), (30e-6, 2e-6), (0.0, 0.0))
    assert world.place() == 1  # 0 + 1.5 against 0.5 + 0.1
    params["ring_weight"] = 0.1
    world = _links(_pair(params=params).memory(60, 30), (30e-6, 2e-6), (0.0, 0.0))
    assert world.place() == 0  # 0 + 0.15 against 0.5 + 0.01


@pytest.mark.parametrize(
    ("policy", "pick"),
    [
        ("topology", 1),  # one bin; b has the faster ring
        ("topology_no_block", 1),
        ("topology_no_ring", 0),  # a has the idler PCIe
        ("topology_no_pcie", 1),
    ],
)
def test_each_ablation_drops_its_term(policy: str, pick: int) -> None:
    world = _links(_pair(policy).memory(60, 58), (20e-6, 10e-6), (0.1, 0.9))
    assert world.place() == pick


def test_without_the_block_the_links_decide_at_any_distance_of_what_fits() -> None:
    world = _links(_pair("topology_no_block").memory(60, 5), (20e-6, 10e-6), (0.5, 0.5))
    assert world.place() == 1


def test_devices_that_need_different_bytes_are_compared_by_their_own_need() -> None:
    fleet = [device("fp16"), device("fp8", kv_bytes_per_token=GIB / 2048)]
    world = World("topology", fleet).memory(3, 2)
    assert world.place(2000, 2000) == 1  # 3.9 GiB against 1.95


def test_a_mixed_class_that_nothing_fits_is_held_or_too_large() -> None:
    fleet = [device("fp16"), device("fp8", kv_bytes_per_token=GIB / 2048)]
    world = World("topology", fleet).memory(1, 1)
    assert world.dispatcher.submit(world.request(3000, 3000)).reason == Reason.held
    world = World("topology", fleet).memory(1, 1)
    assert world.dispatcher.submit(world.request(300_000, 1)).reason == Reason.too_large


def test_other_classes_are_left_out() -> None:
    fleet = [device("a", model="m", group="g1"), device("b", model="m", group="g2"), device("c")]
    world = World("topology", fleet).memory(10, 20, 60)
    assert world.place(model="m", group="g1") == 0
    assert world.place(model="m", group="g2") == 1


def test_link_order_is_the_same_one_by_one_and_in_bulk() -> None:
    world = _links(_pair(), (1.234567e-5, 7e-6), (0.123, 0.9))
    for i in range(2):
        assert world.graph.link[i] == link_order(world.graph.ring[i], world.graph.pcie[i])
    assert link_order(math.nan, 0.0) > link_order(math.inf, 1.0)
    assert link_order(1e-6, math.nan) > link_order(1e-6, 1.0)


def test_the_best_five_are_named_with_their_rooms() -> None:
    world = World("topology", 8).memory(*range(10, 18))
    choice = world.policy.choose(world.request(), world.graph, 1.0)
    assert list(choice.best) == [7, 6, 5, 4, 3]
    assert [s / GIB for s in choice.scores] == [17, 16, 15, 14, 13]


def test_a_graph_grows_while_it_is_in_use() -> None:
    world = World("topology", 2).memory(10, 20)
    world.place()
    assert world.graph.add_device(device("new")) == 2
    world.graph.observe_memory(2, 70 * GIB, 70 * GIB, 1.0)
    assert world.place() == 2
    world.dispatcher.check_books()
