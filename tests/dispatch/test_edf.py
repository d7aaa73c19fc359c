"""Envoy's earliest deadline first."""

import pytest

from dispatch.policies import edf
from tests.dispatch.core_world import World, device, devices


@pytest.mark.parametrize(
    ("weights", "word"), [((5, 1, 1), "aaaabca" * 2), ((3, 2, 1), "abacba" * 2)]
)
def test_the_sequence_is_envoy_s(weights: tuple[float, ...], word: str) -> None:
    assert World("edf_wrr", devices(3, weights)).word(len(word)) == word


def test_a_host_of_tiny_weight_starves_and_the_bound_is_reported() -> None:
    fleet = [device(f"h{i}") for i in range(130)] + [device("new", weight=0.01)]
    world = World("edf_wrr", fleet)
    picks = 1
    while world.place() != 130:
        world.dispatcher.finished(world.last)
        picks += 1
    assert picks == 12871
    assert picks <= world.policy.starvation_bound(world.graph, 130) <= 1.1 * picks


def test_least_request_weighs_down_a_loaded_host() -> None:
    world = World("envoy_least_request", devices(2, (2, 1)))
    for _ in range(30):
        world.place()
    assert world.loads()[0] > world.loads()[1] > 5


def test_without_bias_least_request_is_weighted_round_robin() -> None:
    plain = World("edf_wrr", devices(3, (3, 2, 1))).word(12)
    assert World("envoy_least_request", devices(3, (3, 2, 1)), {"bias": 0}).word(12) == plain


def test_numbers_do_not_grow_as_hosts_of_odd_weights_come_and_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(edf, "_LONGEST_BITS", 32)
    fleet = [device(f"h{i}", weight=1 + i / 7 + i * i / 1001) for i in range(60)]
    world = World("edf_wrr", fleet)
    longest = 0
    for pick in range(2000):
        world.place()
        world.dispatcher.finished(world.last)
        if pick % 5 == 0:
            world.graph.set_health(pick // 5 % 60, up=False, source_s=float(pick))
            world.place()
            world.dispatcher.finished(world.last)
            world.graph.set_health(pick // 5 % 60, up=True, source_s=pick + 0.5)
        (_, schedule), *_ = world.policy._schedules.values()
        longest = max(longest, schedule.now.denominator.bit_length())
    assert 32 < longest < 80  # 96 where nothing is rounded, and growing
