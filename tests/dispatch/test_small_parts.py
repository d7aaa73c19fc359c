"""Keyed randomness, tuning profiles, and graphs that share samples but not books."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch import keyed
from dispatch.errors import InputError
from dispatch.graph import Staleness, TopologyGraph
from dispatch.hints import PLANS, plan_for
from dispatch.policies.affinity import Ring
from dispatch.request import HINTS
from tests.dispatch.core_world import GIB, World, device, devices

U63 = st.integers(0, 2**63 - 1)


@given(U63, st.lists(st.integers(0, 2**40), min_size=1, max_size=20))
def test_draws_in_bulk_equal_draws_one_by_one(key: int, ids: list[int]) -> None:
    bulk = keyed.uniforms(key, np.array(ids))
    assert bulk.tolist() == [keyed.uniform(key, i) for i in ids]


def test_a_draw_hangs_on_seed_concern_and_ids_and_on_nothing_else() -> None:
    drawn = {
        keyed.bits(keyed.stream(seed, concern), one, two)
        for seed in range(4)
        for concern in ("length", "fault")
        for one in range(4)
        for two in range(4)
    }
    assert len(drawn) == 4 * 2 * 4 * 4
    assert keyed.uniform(keyed.stream(1, "length"), 5) == keyed.uniform(
        keyed.stream(1, "length"), 5
    )


def test_uniform_draws_are_uniform() -> None:
    draws = keyed.uniforms(keyed.stream(0, "x"), np.arange(100_000))
    shares = np.histogram(draws, bins=10, range=(0, 1))[0] / 100_000
    assert np.abs(shares - 0.1).max() < 0.005


def test_a_ring_gives_each_device_about_its_share_and_takes_no_other_when_one_leaves() -> None:
    names = [(f"n{i}", i) for i in range(10)]
    whole, without = Ring(names, 100), Ring(names[:-1], 100)
    homes = [next(whole.walk(key)) for key in range(5000)]
    assert all(0.05 < homes.count(i) / 5000 < 0.16 for i in range(10))
    assert all(home in (9, next(without.walk(k))) for k, home in enumerate(homes))


def test_the_walk_of_a_ring_visits_every_device_once() -> None:
    ring = Ring([(f"n{i}", i) for i in range(7)], 3)
    assert sorted(ring.walk(1)) == list(range(7))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60))
def test_no_device_ever_exceeds_the_bound_of_bounded_loads(sessions: list[int]) -> None:
    world = World("session_affinity", 4)
    for number, session in enumerate(sessions, start=1):
        world.place(session=session)
        assert max(world.loads()) <= math.ceil(1.25 * number / 4)


@pytest.mark.parametrize("hint", HINTS)
def test_each_tuning_profile_stands_for_a_kernel_plan_and_batch_limits(hint: str) -> None:
    plan = plan_for(hint)
    assert plan is not None
    assert plan.max_num_seqs >= 1
    assert plan.max_num_batched_tokens >= 1


def test_the_profiles_differ_in_the_direction_that_their_names_say() -> None:
    latency, throughput, memory = (PLANS[h] for h in HINTS)
    assert latency.max_num_seqs < throughput.max_num_seqs
    assert memory.max_num_batched_tokens < latency.max_num_batched_tokens
    assert latency.max_num_batched_tokens < throughput.max_num_batched_tokens


def test_no_hint_asks_for_nothing_and_an_unknown_one_is_refused_by_name() -> None:
    assert plan_for("") is None
    with pytest.raises(InputError, match=r"'latency_optimised'; did you mean latency_optimized\?"):
        plan_for("latency_optimised")


def test_a_fork_knows_what_the_graph_knew() -> None:
    rules = {"memory": Staleness(1.0, "ignore")}
    graph = TopologyGraph(devices(5), staleness=rules)
    for i in range(5):
        graph.observe_memory(i, 50 * GIB, (10 + i) * GIB, 1.0)
        graph.observe_pcie(i, 0.1 * i, 1.0)
    graph.set_health(4, False, 1.0)
    graph.set_weight(3, 0.0)
    graph.remove_device(2)
    fork = graph.fork()
    assert fork.room.tolist() == graph.room.tolist()
    assert fork.link.tolist() == graph.link.tolist()
    assert fork.eligible("", "").devices == graph.eligible("", "").devices == (0, 1)
    assert not fork.observe_memory(0, GIB, GIB, 1.0)  # late here as there
    fork.age(3.0)
    assert fork.status(0, "memory") == "stale"


def test_a_fork_follows_samples_health_weights_and_members_but_not_books() -> None:
    graph = TopologyGraph(devices(3))
    fork = graph.fork()
    world = World("topology", 3, graph=graph).memory(60, 60, 60)
    world.place(1000, 1000)
    assert graph.n.tolist() == [1, 0, 0]
    assert fork.n.tolist() == [0, 0, 0]
    assert fork.room[0] == 60 * GIB > graph.room[0]
    graph.set_weight(1, 0.0)
    graph.set_health(2, False, 1.0)
    graph.add_device(device("new"))
    assert fork.eligible("", "").devices == (0, 3)


def test_a_device_that_can_never_hold_a_request_is_not_tried_though_its_memory_is_unknown() -> None:
    fleet = [device("small", total_bytes=10 * GIB), device("large")]
    world = World("topology", fleet)
    world.graph.observe_memory(1, 5 * GIB, 5 * GIB, 1.0)
    assert world.place(20_000, 1) == -1  # waits for the large one


def test_an_unknown_queue_or_kv_never_beats_the_worst_that_is_known() -> None:
    for name, params in (("llmd", {}), ("llmd", {"profile": "load_aware"}), ("smg_least_load", {})):
        world = World(name, 2, params)
        world.graph.observe_queue(0, 500.0, 1.0, 1.0)
        world.graph.observe_kv(0, 1.0, 0.0, 1.0)
        if name == "smg_least_load":
            world.graph.observe_queue(1, 500.0, 1.0, 1.0)
            world.graph.observe_kv(0, 0.99, 0.0, 2.0)
        assert [
            world.policy.choose(world.request(), world.graph, 1.0).device for _ in range(9)
        ] == [0] * 9, name


def test_a_device_re_created_while_ejected_starts_without_its_past() -> None:
    from dispatch.breaker import Breaker, BreakerParams

    graph = TopologyGraph(devices(4))
    breaker = Breaker(graph, BreakerParams(faults=2, out_s=5.0))
    breaker.fault(0, 0.0)
    breaker.fault(0, 0.0)
    assert graph.ejected[0]
    graph.remove_device(0)
    graph.add_device(devices(1)[0])
    breaker.release(5.0)
    breaker.fault(0, 6.0)  # one of two: not on probation
    assert not graph.ejected[0]
