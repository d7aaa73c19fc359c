"""The legacy round robin: weights by hardware, limits by device, nginx's order."""

from dispatch.fleet import DeviceInfo
from dispatch.graph import TopologyGraph
from dispatch.legacy import LegacyConfig, LegacyRouter
from dispatch.legacy.policy import legacy_devices, legacy_policy
from dispatch.outcomes import Reason
from dispatch.request import Request

FLEET = [
    DeviceInfo("a", "p", "v100-sxm2-16g", weight=10),
    DeviceInfo("b", "p", "a100-sxm4-40g", weight=1),
    DeviceInfo("c", "p", "a100-sxm4-80g", weight=1),
]


def test_picks_follow_the_weights_that_hardware_keys_give() -> None:
    router = LegacyRouter(LegacyConfig(v100_weight_factor=0.5))
    devices = legacy_devices(router, FLEET)
    graph, policy = TopologyGraph(devices), legacy_policy(router, devices)
    picks = [policy.choose(Request(i, 0, 1, 1), graph, 0.0).device for i in range(7)]
    assert "".join("abc"[d] for d in picks) == "aabacaa"


def test_a_device_at_its_own_limit_is_skipped_until_it_has_room() -> None:
    router = LegacyRouter(LegacyConfig(v100_max_conns=1))
    graph, policy = TopologyGraph(FLEET), legacy_policy(router, FLEET)
    first = Request(0, 0, 1, 1)
    flight = graph.take(first, policy.choose(first, graph, 0.0).device, 0.0, 0)
    second = Request(1, 0, 1, 1)
    assert flight.device == 0
    assert policy.choose(second, graph, 0.0).device != 0
    assert second.tried == ()
    graph.release(flight)
    assert policy.choose(Request(2, 0, 1, 1), graph, 0.0).device == 0


def test_when_every_device_is_full_nothing_is_picked() -> None:
    router = LegacyRouter(LegacyConfig(a100_80g_max_conns=1))
    graph, policy = TopologyGraph(FLEET[2:]), legacy_policy(router, FLEET[2:])
    graph.take(Request(0, 0, 1, 1), 0, 0.0, 0)
    choice = policy.choose(Request(1, 0, 1, 1), graph, 0.0)
    assert (choice.device, choice.reason) == (-1, Reason.no_device)
