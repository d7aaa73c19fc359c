"""What must hold of every policy, whatever the state of the fleet."""

import math
from functools import partial
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dispatch import registry
from dispatch.outcomes import Reason
from dispatch.policies import topology
from dispatch.policies.scored import ScoredPolicy
from tests.dispatch.core_world import GIB, World, device
from tests.strategies import device_states

State = list[dict[str, float]]
ALL = registry.names()
BY_MEMORY = (
    "topology",
    "topology_no_ring",
    "topology_no_pcie",
    "topology_free",
    "most_free",
)
COSTED = (
    *BY_MEMORY,
    "topology_no_block",
    "weighted_least_requests",
    "least_requests",
    "least_work",
    "least_kv",
    "llumnix",
    "vllm_dp",
    "smg_least_load",
    "always_busiest",
    "dynamo_kv",
    "llmd",
    "mooncake",
    "preble",
    "load_aware",
    "cache_aware",
    "aibrix_prefix",
    "oracle",
)
COUNTING = ("round_robin", "static_weights", "edf_wrr")


def _world(name: str, state: State, **given: Any) -> World:
    fleet = [
        device(
            f"d{int(s['n'])}",
            weight=1 + s["kv"],
            gpus=2,
            speed_tokens_per_s=1000 + s["kv"],
            **given,
        )
        for s in state
    ]
    world = World(name, fleet)
    if name == "oracle":
        world.policy.output_tokens = lambda request: 50
    return world


def _tell(world: World, state: State) -> World:
    graph = world.graph
    for i, s in enumerate(state):
        graph.observe_memory(i, s["block_gib"] * GIB * 1.5, s["block_gib"] * GIB, 1.0)
        graph.observe_ring(i, s["ring_s"], 1.0)
        graph.observe_pcie(i, s["pcie"], 1.0)
        graph.observe_queue(i, s["waiting"], s["running"], 1.0)
        graph.observe_kv(i, s["kv"], 1e4 * (1 - s["kv"]), 1.0)
        for _ in range(int(s["n"])):
            graph.take(world.request(100 + i, 50), i, 0.0, 0)
    return world


def _choose(name: str, state: State) -> tuple[str, list[float]]:
    world = _tell(_world(name, state), state)
    world.now = 2.0
    choice = world.policy.choose(world.request(100, 50), world.graph, 2.0)
    return world.graph.devices[choice.device].name, list(choice.scores)


@pytest.mark.parametrize("name", COSTED)
@given(state=device_states(), data=st.data())
@settings(max_examples=15)
def test_the_order_of_the_devices_does_not_matter(name: str, state: State, data: Any) -> None:
    chosen, scores = _choose(name, state)
    assume(len(scores) < 2 or scores[0] != scores[1])
    permuted = data.draw(st.permutations(state))
    again, _ = _choose(name, list(permuted))
    assert again == chosen


@pytest.mark.parametrize("name", COUNTING)
@given(weights=st.permutations([5, 3, 2]))
@settings(max_examples=6)
def test_the_shares_do_not_depend_on_the_order_of_the_devices(name: str, weights: Any) -> None:
    world = World(name, [device(f"w{w}", weight=w) for w in weights])
    world.word(30, finish=False)
    got = {d.name: n for d, n in zip(world.graph.devices, world.loads(), strict=True)}
    expected = {f"w{w}": 10 if name == "round_robin" else 3 * w for w in (5, 3, 2)}
    assert got == expected


@pytest.mark.parametrize("name", BY_MEMORY)
@given(state=device_states(), more=st.floats(1.0, 1.3))
@settings(max_examples=25)
def test_more_free_memory_never_makes_a_device_less_preferred(
    name: str, state: State, more: float
) -> None:
    world = _tell(_world(name, state), state)
    chosen = world.policy.choose(world.request(100, 50), world.graph, 2.0).device
    better = [dict(s) for s in state]
    better[chosen]["block_gib"] *= more
    world = _tell(_world(name, better), better)
    assert world.policy.choose(world.request(100, 50), world.graph, 2.0).device == chosen


@pytest.mark.parametrize("mode", ["lexicographic", "weighted"])
@given(state=device_states(), more=st.floats(1.0, 1.3))
@settings(max_examples=25)
def test_topology_is_monotonic_in_either_mode(mode: str, state: State, more: float) -> None:
    picks: list[int] = []
    for factor in (1.0, more):
        world = _world("topology", state)
        world.policy = registry.policy("topology", {"mode": mode})
        changed = [dict(s) for s in state]
        if picks:
            changed[picks[0]]["block_gib"] *= factor
        _tell(world, changed)
        picks.append(world.policy.choose(world.request(100, 50), world.graph, 2.0).device)
    assert picks[0] == picks[1]


@pytest.mark.parametrize("name", ["least_requests", "weighted_least_requests", "least_work"])
@given(state=device_states())
@settings(max_examples=15)
def test_less_load_never_makes_a_device_less_preferred(name: str, state: State) -> None:
    world = _tell(_world(name, state), state)
    chosen = world.policy.choose(world.request(100, 50), world.graph, 2.0).device
    less = [s | {"n": 0.0} if i == chosen else s for i, s in enumerate(state)]
    world = _tell(_world(name, less), less)
    again = world.policy.choose(world.request(100, 50), world.graph, 2.0).device
    assert again == chosen or world.graph.n[again] == 0


@pytest.mark.parametrize("name", ALL)
@given(state=device_states(3), out=st.sets(st.integers(0, 6)), data=st.data())
@settings(max_examples=10)
def test_no_ineligible_device_is_ever_chosen(
    name: str, state: State, out: set[int], data: Any
) -> None:
    world = _tell(_world(name, state), state)
    kinds = ("down", "weightless", "removed", "tried", "wrong model")
    tried = []
    for i in sorted(out):
        if i >= len(state):
            continue
        kind = data.draw(st.sampled_from(kinds))
        if kind == "down":
            world.graph.set_health(i, False, 2.0)
        elif kind == "weightless":
            world.graph.set_weight(i, 0.0)
        elif kind == "removed":
            world.graph.remove_device(i)
        elif kind == "tried":
            tried.append(i)
        else:
            world.graph.remove_device(i)
            world.graph.add_device(device(world.graph.devices[i].name, model="other"))
    left = set(range(len(state))) - {i for i in out if i < len(state)}
    for number in range(8):
        request = world.request(100, 50, model="m", tried=tuple(tried), session=number)
        request.block_hashes = (number % 2, number)
        decision = world.dispatcher.submit(request)
        if left:
            assert decision.device in left
        else:
            assert decision.device == -1
            assert decision.reason in (Reason.no_device, Reason.no_weight, Reason.held)


@pytest.mark.parametrize("name", ALL)
@given(state=device_states(2, 4), idle=st.integers(0, 3))
@settings(max_examples=8)
def test_weight_zero_gets_nothing(name: str, state: State, idle: int) -> None:
    world = _tell(_world(name, state), state)
    idle %= len(state)
    world.graph.set_weight(idle, 0.0)
    before = int(world.graph.placed[idle])
    for number in range(12):
        world.place(session=number)
    assert world.graph.placed[idle] == before


@pytest.mark.parametrize(
    "name",
    [*BY_MEMORY, "topology_no_block", "least_kv", "llumnix", "vllm_dp", "llmd"],
)
@given(state=device_states(2, 5), known=st.integers(0, 4))
@settings(max_examples=15)
def test_the_unknown_never_beats_the_known(name: str, state: State, known: int) -> None:
    known %= len(state)
    world = _world(name, state)
    graph, s = world.graph, state[known]
    graph.observe_memory(known, s["block_gib"] * GIB, s["block_gib"] * GIB, 1.0)
    graph.observe_queue(known, 19.0, 50.0, 1.0)
    graph.observe_kv(known, 0.98, 5.0, 1.0)
    assert world.policy.choose(world.request(100, 50), graph, 2.0).device == known


@given(state=device_states(2, 12), need=st.integers(1, 50_000), tried=st.integers(-1, 12))
@settings(max_examples=60)
def test_topology_chooses_alike_by_loop_by_arrays_and_by_columns(
    state: State, need: int, tried: int
) -> None:
    answers = []
    for path in ("loop", "arrays", "columns"):
        world = _tell(_world("topology", state), state)
        request = world.request(need, 0, tried=(tried,) if 0 <= tried < len(state) else ())
        graph, policy = world.graph, world.policy
        if path == "columns":
            choice = policy._by_columns(request, graph, graph.eligible("", ""))
        else:
            old, topology.SMALL = topology.SMALL, 99 if path == "loop" else 0
            choice = policy.choose(request, graph, 2.0)
            topology.SMALL = old
        answers.append((choice.device, choice.reason))
        if path != "columns" and choice.device >= 0:
            answers.append(tuple(choice.best))
    assert answers[0] == answers[-1]
    if len(answers) == 5:
        assert answers[1] == answers[3]


@given(state=device_states(2, 12), down=st.integers(0, 12))
@settings(max_examples=40)
def test_least_requests_chooses_alike_by_ranks_and_by_columns(state: State, down: int) -> None:
    world = _tell(_world("least_requests", state), [{**s, "n": s["n"] // 2} for s in state])
    world.graph.set_health(down % len(state), False, 2.0)
    request = world.request()
    answers = []
    for choose in (world.policy.choose, partial(ScoredPolicy.choose, world.policy)):
        choice = choose(request, world.graph, 2.0)
        answers.append((choice.device, tuple(choice.best), tuple(choice.scores)))
    assert answers[0] == answers[1]


@given(state=device_states())
def test_work_is_conserved_a_placed_request_is_never_held_where_room_is(state: State) -> None:
    world = _tell(_world("topology", state), state)
    need = world.request(2000, 2000)
    decision = world.dispatcher.submit(need)
    fits = any(
        (room := float(r)) >= world.graph.devices[0].need_bytes(need) and room < math.inf
        for r in world.graph.room
    )
    assert decision.device >= 0 or not fits
