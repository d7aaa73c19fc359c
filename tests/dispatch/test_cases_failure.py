"""Reported faults of failure, retry, ejection, waiting and configuration."""

import statistics

import pytest

from dispatch import keyed
from dispatch.audit import traffic
from dispatch.breaker import Breaker, BreakerParams
from dispatch.config import WaitConfig
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.request import Request
from dispatch.retry import Retries
from tests.dispatch.core_world import World, device, devices


@pytest.mark.parametrize("name", ["static_weights", "topology", "latency_ewma"])
def test_a_client_s_error_puts_no_device_out(name: str) -> None:
    graph = TopologyGraph(devices(3))
    world = World(name, 3, graph=graph, breaker=Breaker(graph)).memory(60, 60, 60)
    for _ in range(30):
        assert world.place() >= 0
        world.dispatcher.failed(world.last, fault=False)
    assert graph.usable.all()
    assert graph.eligible("", "").count == 3


def _attempts_on_a_broken_owner(breaker: bool) -> int:
    graph = TopologyGraph(devices(3))
    guard = Breaker(graph, BreakerParams(faults=3, out_s=20.0)) if breaker else None
    world = World("cache_aware", 3, graph=graph, breaker=guard)
    tried = 0
    for number in range(100):
        world.now = float(number)
        request = world.request(512, 10, block_hashes=(1,))
        world.policy.index.insert(request, 0, graph)  # the broken one has the best cache score
        if world.dispatcher.submit(request).device == 0:
            tried += 1
            world.dispatcher.failed(request.id, fault=True)
        else:
            world.dispatcher.finished(request.id)
    return tried


def test_without_a_memory_of_failures_a_broken_device_is_chosen_every_time() -> None:
    assert _attempts_on_a_broken_owner(breaker=False) == 100


def test_a_breaker_leaves_it_alone_but_for_its_probes() -> None:
    assert _attempts_on_a_broken_owner(breaker=True) <= 3 + 100 // 20


def test_a_breaker_never_puts_most_devices_out() -> None:
    graph = TopologyGraph(devices(4))
    world = World("round_robin", 4, graph=graph, breaker=Breaker(graph, BreakerParams(faults=1)))
    for _ in range(20):
        assert world.place() >= 0
        world.dispatcher.failed(world.last, fault=True)
    assert graph.ejected.sum() == 2


def test_a_retry_never_returns_to_the_device_that_failed() -> None:
    for name in ("round_robin", "least_requests", "topology", "random", "p2c", "cache_aware"):
        world = World(name, 2).memory(60, 60)
        retries = Retries(world.dispatcher, WaitConfig(retries=1))
        first = retries.submit(world.request()).device
        again = retries.failed(world.last, "fault")
        assert again is not None
        assert again.device == 1 - first, name


def test_retries_are_bounded_and_their_work_is_reported() -> None:
    world, order = World("round_robin", 8), []
    retries = Retries(
        world.dispatcher,
        WaitConfig(retries=3, retry_on=("timeout",)),
        on_abort=lambda request, device: order.append(("abort", request.attempt)),
    )
    world.policy.on_start = lambda *_: order.append(("dispatch", 0))
    world.dispatcher._on_start = world.policy.on_start
    retries.submit(world.request(100_000, 10))
    attempts = 1
    while retries.failed(world.last, "timeout") is not None:
        attempts += 1
    assert attempts == 4
    assert retries.amplification == 4.0
    assert [kind for kind, _ in order] == ["dispatch", "abort"] * 4
    world.dispatcher.check_books()


def test_what_began_to_stream_is_never_retried() -> None:
    world = World("round_robin", 2)
    retries = Retries(world.dispatcher, WaitConfig(retries=3))
    retries.submit(world.request())
    world.dispatcher.first_token(world.last)
    assert retries.failed(world.last, "fault") is None
    assert world.loads() == [0, 0]


def test_the_first_capacity_goes_to_who_has_waited_longest() -> None:
    world, order = World("topology", 1).memory(2), []
    world.dispatcher.on_placed = lambda request, decision: order.append((request.id, world.now))
    world.place(1000, 1000)
    for _ in range(3):
        assert world.place(500, 500) == -1
    world.now = 5.0
    world.dispatcher.finished(1)
    assert order == [(2, 5.0), (3, 5.0)]
    world.dispatcher.check_books()


def test_a_small_request_does_not_overtake_a_large_one_that_waits() -> None:
    world = World("topology", 1).memory(2)
    world.place(1500, 400)
    assert world.place(1000, 1000) == -1
    assert world.place(10, 10) == -1


def test_classes_do_not_wait_for_each_other() -> None:
    fleet = [device("a", model="m"), device("b", model="other")]
    world = World("topology", fleet).memory(1, 60)
    assert world.place(2000, 2000, model="m") == -1
    assert world.place(2000, 2000, model="other") == 1


def test_what_waits_past_its_deadline_is_given_up_with_the_reason() -> None:
    world, told = World("topology", 1).memory(1), []
    world.dispatcher.on_placed = lambda request, decision: told.append(decision.reason)
    world.place(2000, 2000, deadline_s=3.0)
    world.now = 3.0
    assert [r.id for r in world.dispatcher.expire(3.0)] == [1]
    assert told == [Reason.deadline]
    world.dispatcher.check_books()


def test_a_full_line_rejects_with_the_reason() -> None:
    world = World("topology", 1).memory(1)
    world.dispatcher.hold_limit = 1
    reasons = [world.dispatcher.submit(world.request(2000, 2000)).reason for _ in range(2)]
    assert reasons == [Reason.held, Reason.queue_full]


def test_a_device_without_traffic_is_reported_with_the_reason() -> None:
    fleet = [device("a"), device("b", weight=0), device("c"), device("d", model="other")]
    world = World("least_requests", fleet)
    world.graph.set_health(2, False, 1.0)
    world.place(model="m")
    notes = {r.name: r.note for r in traffic(world.graph)}
    assert notes["a"] == ""
    assert notes["b"] == "never eligible: weight 0"
    assert notes["c"] == "never eligible: down"
    assert notes["d"] == "never eligible: serves other/default, asked for m"


def test_one_worker_down_does_not_keep_the_others_from_starting() -> None:
    world = World("round_robin", 4)
    world.graph.set_health(2, False, 0.0)
    assert world.word(3) == "abd"
    assert [r.name for r in traffic(world.graph) if r.note] == ["c"]


def test_weight_zero_gets_nothing() -> None:
    world = World("static_weights", devices(2, (5, 0)))
    world.word(10, finish=False)
    assert world.loads() == [10, 0]


def test_no_weight_at_all_is_rejected_with_the_reason() -> None:
    decision = World("static_weights", devices(1, (0,))).dispatcher.submit(Request(1, 0, 1, 1))
    assert (decision.device, decision.reason) == (-1, Reason.no_weight)


def test_an_unknown_hint_is_refused_by_name() -> None:
    world = World("round_robin", 1)
    decision = world.dispatcher.submit(world.request(kernel_hint="latency_optimised"))
    assert (decision.device, decision.reason) == (-1, Reason.unknown_hint)


def test_shares_do_not_drift_apart_over_a_day() -> None:
    world = World("least_requests", 8)
    ends: list[tuple[float, int]] = []
    key, spreads = keyed.stream(3, "drift"), []
    placed = world.graph.placed.copy()
    for number in range(8640):  # one arrival in 10 s for 24 h, 5 min each on average
        world.now = 10.0 * number
        for end_s, request_id in sorted(e for e in ends if e[0] <= world.now):
            world.dispatcher.finished(request_id)
            ends.remove((end_s, request_id))
        world.place()
        ends.append((world.now + 300.0 * keyed.exponential(key, number), world.last))
        if number % 2160 == 2159:  # six hours
            share = (world.graph.placed - placed).tolist()
            spreads.append(statistics.pstdev(share) / statistics.mean(share))
            placed = world.graph.placed.copy()
    assert max(spreads) < 0.1
    assert spreads[-1] < spreads[0] + 0.05


def _black_hole(penalty_s: float) -> int:
    params = {"among": "all", "failure_penalty_s": penalty_s}
    world = World("latency_ewma", 3, params)
    ends: list[tuple[float, int, bool]] = []
    for number in range(200):
        world.now = 0.1 * number
        for end in [e for e in ends if e[0] <= world.now]:
            ends.remove(end)
            (world.dispatcher.failed(end[1], True) if end[2] else world.dispatcher.finished(end[1]))
        broken = world.place() == 0
        ends.append((world.now + (0.01 if broken else 1.0), world.last, broken))
    return int(world.graph.placed[0])


def test_a_device_that_fails_fast_looks_fastest_and_takes_all() -> None:
    assert _black_hole(penalty_s=0.0) > 150


def test_a_penalty_for_failures_closes_the_black_hole() -> None:
    assert _black_hole(penalty_s=60.0) < 20


def test_ray_waits_where_every_replica_is_full() -> None:
    world = World("ray_pow2", 2, {"max_ongoing": 2})
    assert sorted(world.place() for _ in range(5)) == [-1, 0, 0, 1, 1]
