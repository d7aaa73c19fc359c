"""Placement under random interleavings: the definition by hand, a permuted twin, more memory."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dispatch import registry
from dispatch.dispatcher import Dispatcher
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies import topology
from dispatch.request import Request
from tests.dispatch.core_world import GIB, device

DEVICES = 5
BIN = 0.1  # the default of b_bin_ratio
PERMUTED = (3, 0, 4, 1, 2)
BLOCKS = st.lists(
    st.floats(30, 34) | st.sampled_from([2.0, 5.0, 40.0, 41.0]),
    min_size=DEVICES,
    max_size=DEVICES,
)
LINKS = st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=DEVICES, max_size=DEVICES)


def best_by_hand(graph: TopologyGraph, request: Request) -> set[int]:
    """Return the devices that the topology policy's definition allows, device by device."""
    known: dict[int, float] = {}
    unknown = set()
    for i, info in enumerate(graph.devices):
        need = info.need_bytes(request)
        if not graph.up[i] or graph.weight[i] == 0 or i in request.tried:
            continue
        if math.isnan(graph.block[i]):
            if need <= info.capacity_bytes:
                unknown.add(i)
        elif (room := max(0.0, graph.block[i] - graph.reserved[i])) >= need:
            known[i] = room
    if known:
        edge = max(known.values()) * (1 - BIN)
        links = {i: _link(graph, i) for i in known if known[i] >= edge}
        fastest = [i for i in links if links[i] == min(links.values())]
        return {i for i in fastest if known[i] == max(known[j] for j in fastest)}
    return {i for i in unknown if graph.n[i] == min(graph.n[j] for j in unknown)}


def _link(graph: TopologyGraph, i: int) -> tuple[float, float]:
    ring = 0.0 if graph.devices[i].gpus == 1 else float(graph.ring[i])
    pcie = float(graph.pcie[i])
    return (
        math.inf if math.isnan(ring) else round(ring * 1e9),
        math.inf if math.isnan(pcie) else round(pcie * ((1 << 20) - 2)),
    )


@pytest.mark.parametrize("small", [0, 48])
@given(
    blocks=st.lists(
        st.sampled_from([None, 1.0, 4.0, 25.0, 39.0, 40.0, 41.0]), min_size=5, max_size=5
    ),
    links=LINKS,
    mixed=st.booleans(),
    prompt=st.integers(1, 8000) | st.just(60_000),
)
@settings(max_examples=200)
def test_topology_chooses_by_its_definition_whatever_the_sizes_of_the_devices(
    small: int, blocks: list[float | None], links: list[float], mixed: bool, prompt: int
) -> None:
    fleet = [
        device(
            f"d{i}",
            gpus=2,
            kv_bytes_per_token=GIB / (2048 if mixed and i % 2 else 1024),
            total_bytes=(50 if i == 4 else 80) * GIB,
        )
        for i in range(DEVICES)
    ]
    graph = TopologyGraph(fleet)
    for i, block in enumerate(blocks):
        graph.observe_ring(i, links[i], 1.0)
        if block is not None:
            graph.observe_memory(i, block * GIB, block * GIB, 1.0)
    request = Request(1, 0.0, prompt, 0)
    topology.SMALL = small
    choice = registry.policy("topology").choose(request, graph, 1.0)
    topology.SMALL = 48
    assert choice.device in (best_by_hand(graph, request) or {-1})


class PlacementMachine(RuleBasedStateMachine):
    """One fleet in two orders, told and asked the same, under one policy that goes by memory."""

    @initialize(
        name=st.sampled_from(["topology", "topology_free", "most_free"]),
        mixed=st.booleans(),
        small=st.sampled_from([0, 48]),
    )
    def begin(self, name: str, mixed: bool, small: int) -> None:
        topology.SMALL = small  # choose by columns, or one by one
        fleet = [
            device(
                f"d{i}",
                gpus=1 + i % 2,
                kv_bytes_per_token=GIB / (2048 if mixed and i == 2 else 1024),
            )
            for i in range(DEVICES)
        ]
        self.name, self.now, self.next = name, 0.0, 0
        self.orders = [tuple(range(DEVICES)), PERMUTED]
        self.graphs = [TopologyGraph([fleet[i] for i in order]) for order in self.orders]
        self.doors = [
            Dispatcher(registry.policy(name, seed=3), graph, lambda: self.now)
            for graph in self.graphs
        ]
        self.flying: list[int] = []
        self.sample_memory([60.0, 61.0, 62.0, 63.0, 64.0], 1.0, set())

    def teardown(self) -> None:
        topology.SMALL = 48

    @rule(
        sizes=st.lists(st.integers(1, 20_000) | st.integers(1, 500), min_size=1, max_size=4),
        output=st.integers(0, 4000),
        tried=st.sets(st.integers(0, DEVICES - 1), max_size=1),
    )
    def burst(self, sizes: list[int], output: int, tried: set[int]) -> None:
        for prompt in sizes:
            self.submit(prompt, output, tried)

    def submit(self, prompt: int, output: int, tried: set[int]) -> None:
        self.next += 1
        asked = [
            Request(self.next, self.now, prompt, output, tried=tuple(map(order.index, tried)))
            for order in self.orders
        ]
        allowed = best_by_hand(self.graphs[0], asked[0])
        self.more_memory_keeps_the_choice(asked[0])
        choice = self.doors[0].policy.choose(asked[0], self.graphs[0], self.now)
        scores = list(choice.scores)
        if (choice.device >= 0 and not scores) or scores[:1] == scores[1:2]:
            self.alone()  # a tie may go either way
        picks = [d.submit(r) for d, r in zip(self.doors, asked, strict=False)]
        if self.name == "topology":
            assert picks[0].device in (allowed or {-1})
        if picks[0].device >= 0:
            self.flying.append(self.next)
        else:
            assert picks[0].reason in (
                Reason.queue_full,
                Reason.too_large,
                Reason.no_device,
                Reason.no_weight,
            )
        named = {
            order[p.device] if p.device >= 0 else -1
            for order, p in zip(self.orders, picks, strict=False)
        }
        assert len(named) == 1, "the order of the devices decided"

    def alone(self) -> None:
        """Go on without the twin."""
        del self.graphs[1:], self.doors[1:], self.orders[1:]

    def more_memory_keeps_the_choice(self, request: Request) -> None:
        graph, policy = self.graphs[0], self.doors[0].policy
        chosen = policy.choose(request, graph, self.now).device
        if chosen < 0 or math.isnan(graph.free[chosen]):
            return
        before = float(graph.room[chosen]), float(graph.free[chosen])
        graph.room[chosen] += GIB
        graph.free[chosen] += GIB
        assert policy.choose(request, graph, self.now).device == chosen
        graph.room[chosen], graph.free[chosen] = before

    @precondition(lambda self: self.flying)
    @rule(which=st.integers(0, 40), end=st.sampled_from(["started", "finished", "failed"]))
    def progress(self, which: int, end: str) -> None:
        request_id = self.flying[which % len(self.flying)]
        if end != "started":
            self.flying.remove(request_id)
        for door in self.doors:
            assert getattr(door, end)(request_id)

    @rule(
        free=BLOCKS,
        share=st.sampled_from([1.0, 0.5]),
        silent=st.sets(st.integers(0, 4), max_size=2),
    )
    def sample_memory(self, free: list[float], share: float, silent: set[int]) -> None:
        self.now += 0.05
        for graph, order in zip(self.graphs, self.orders, strict=True):
            for i in set(range(DEVICES)) - silent:
                at, held = order.index(i), free[i] * GIB
                graph.observe_memory(at, held, held * (share if i % 2 else 1.0), self.now)

    @rule(ring=LINKS, pcie=LINKS)
    def sample_links(self, ring: list[float], pcie: list[float]) -> None:
        self.now += 0.05
        for graph, order in zip(self.graphs, self.orders, strict=True):
            for i in range(DEVICES):
                graph.observe_ring(order.index(i), ring[i] * 1e-5, self.now)
                graph.observe_pcie(order.index(i), pcie[i], self.now)

    @rule(i=st.integers(0, DEVICES - 1), up=st.booleans(), weight=st.sampled_from([0.0, 1.0]))
    def change(self, i: int, up: bool, weight: float) -> None:
        self.now += 0.05
        for graph, order in zip(self.graphs, self.orders, strict=True):
            graph.set_health(order.index(i), up, self.now)
            graph.set_weight(order.index(i), weight)


PlacementMachine.TestCase.settings = settings(
    max_examples=120, stateful_step_count=30, deadline=None
)
TestPlacementMachine = PlacementMachine.TestCase
