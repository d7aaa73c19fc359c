"""Smooth weighted round robin against sequences worked out from nginx's source."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dispatch.core_world import World, devices


@pytest.mark.parametrize(
    ("weights", "word"),
    [((5, 1, 1), "aabacaa" * 3), ((4, 2, 1), "abacaba" * 2), ((10, 5, 2), "abacabaabaabacaba")],
)
def test_the_sequence_is_nginx_s(weights: tuple[float, ...], word: str) -> None:
    assert World("static_weights", devices(3, weights)).word(len(word)) == word


def test_a_failed_peer_is_out_for_its_time_and_comes_back_gradually() -> None:
    world = World("static_weights", devices(3, (5, 1, 1)))
    world.place()
    world.dispatcher.failed(world.last, fault=True)
    world.now = 1.0
    assert world.word(6) == "bcbcbc"
    word = ""
    for second in range(11, 25):
        world.now = float(second)
        word += world.word(1)
    assert word == "bcbaacaabaaaca"


def test_a_lone_peer_is_never_put_out() -> None:
    world = World("static_weights", devices(1))
    for _ in range(5):
        assert world.place() == 0
        world.dispatcher.failed(world.last, fault=True)


def test_a_client_s_error_is_no_failure_of_the_peer() -> None:
    world = World("static_weights", devices(2))
    for _ in range(4):
        world.place()
        world.dispatcher.failed(world.last, fault=False)
    assert world.word(4) == "abab"


def test_connections_are_limited_per_peer() -> None:
    world = World("static_weights", devices(2, (9, 1)), {"max_conns": 2})
    assert world.word(4, finish=False) == "aabb"
    assert world.place() == -1


def test_every_worker_process_counts_alone_and_all_start_at_the_first() -> None:
    fleet = devices(10)
    world = World("static_weights", fleet, {"workers": 16})
    assert world.word(16, finish=False) == "a" * 16
    world.word(144, finish=False)
    assert world.loads() == [16] * 10


def test_random_starts_take_the_first_peak_away() -> None:
    world = World("static_weights", devices(10), {"workers": 16, "start": "random"})
    world.word(16, finish=False)
    assert max(world.loads()) < 8


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6), st.integers(1, 3))
def test_every_period_serves_each_peer_exactly_its_weight(weights: list[int], periods: int) -> None:
    world = World("static_weights", devices(len(weights), weights))
    world.word(sum(weights) * periods, finish=False)
    assert world.loads() == [w * periods for w in weights]


def test_a_retry_stays_in_the_worker_process_that_failed() -> None:
    world = World("static_weights", devices(3), {"workers": 2, "max_fails": 0})
    request = world.request()
    assert world.dispatcher.submit(request).device == 0
    world.dispatcher.failed(request.id, fault=True)
    again = replace(request, attempt=1, tried=(0,))
    assert world.dispatcher.submit(again).device == 1  # the first worker's second pick
    assert world.place() == 0  # the second worker's first
