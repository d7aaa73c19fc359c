"""Affinity by hashing: sessions and prompt heads on a ring, with or without bounded load."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dispatch import keyed
from dispatch.fleet import Eligible, Ints
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import in_flight, no_device, untried
from dispatch.policy import BasePolicy, Choice
from dispatch.registry import register
from dispatch.request import Request

_RING = keyed.stream(0, "ring")


class Ring:
    """A hash ring of devices, *points* virtual nodes each, placed by name, not by order."""

    def __init__(self, names: list[tuple[str, int]], points: int) -> None:
        self.count = len(names)
        keys = np.array([keyed.stream(0, f"ring.{name}") for name, _ in names], dtype=np.uint64)
        at = keyed.many_bits(keys.repeat(points), np.tile(np.arange(points), self.count))
        order = at.argsort(kind="stable")
        self._at: NDArray[np.uint64] = at[order]
        self._device = np.array([device for _, device in names]).repeat(points)[order].tolist()

    def walk(self, key: int) -> Iterator[int]:
        """Yield every device once, in ring order from the hash of *key*."""
        start = int(self._at.searchsorted(np.uint64(keyed.bits(_RING, key))))
        points = len(self._device)
        seen: set[int] = set()
        for step in range(points):
            device = self._device[(start + step) % points]
            if device not in seen:
                yield device
                seen.add(device)
                if len(seen) == self.count:
                    return


class Hashing(BasePolicy):
    """Common ground: one ring per eligible set."""

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._rings: OrderedDict[int, Ring] = OrderedDict()
        self._key = keyed.stream(seed, f"policy.{self.name}")

    def _ring(self, graph: TopologyGraph, eligible: Eligible, points: int) -> Ring:
        ring = self._rings.get(eligible.set_id)
        if ring is None:
            named = [(graph.devices[d].name, d) for d in eligible.devices]
            ring = self._rings[eligible.set_id] = Ring(named, points)
            if len(self._rings) > 64:
                self._rings.popitem(last=False)
        return ring

    def _least(self, request: Request, loads: Ints, eligible: Eligible) -> Choice:
        """Return the least of *loads* among the eligible devices not yet tried, ties seeded."""
        devices = untried(request, eligible)
        if not len(devices):
            return self._none(Reason.no_device, eligible.count)
        loads = loads[devices]
        tied = devices[loads == loads.min()]
        draw = keyed.uniform(self._key, request.id, request.attempt)
        return self._place(int(tied[int(draw * len(tied))]), eligible.count)


@dataclass(frozen=True, slots=True)
class SessionParams:
    """``ring`` hashes the session; ``table`` binds it where it began, so that none ever moves.

    ``bound`` >= 1 caps a device at bound * mean load (CHWBL); 0 means no cap. ``table_size`` bounds
    the bindings; the least recently used go first.
    """

    mode: Literal["ring", "table"] = "ring"
    virtual_nodes: int = 100
    bound: float = 1.25
    table_size: int = 1_000_000

    def __post_init__(self) -> None:
        if self.virtual_nodes < 1 or self.table_size < 1 or (self.bound and self.bound < 1):
            raise ValueError("give virtual_nodes, table_size >= 1 and bound 0 or >= 1")


@register("session_affinity")
class SessionAffinity(Hashing):
    """Keeps a session on one device: hash ring with V virtual nodes, loads bounded by c = 1.25.

    Walks the ring from the session's hash to the first device with n < ceil(c * (sum n + 1) / N).
    Mode ``table``: new sessions go where the fewest are bound, and stay. No session: fewest in
    flight. Signals: own books. Ties: ring order; seeded among equals of the table.
    Source: consistent hashing with bounded loads (Mirrokni et al. 2018); ingress-nginx #4093.
    Known failure mode: one hot session makes one hot device; unbounded rings remap on scale-up.
    """

    Params = SessionParams

    def __init__(self, params: SessionParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._bound: OrderedDict[int, tuple[int, int]] = OrderedDict()  # session -> device, life
        self._sessions = np.zeros(0, dtype=np.int64)  # bound to each device in its present life
        self._life = np.zeros(0, dtype=np.int64)

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device of the request's session."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        if request.session < 0:
            return self._least(request, graph.n, eligible)
        if self.params.mode == "table":
            return self._by_table(request, graph, eligible)
        cap = math.inf
        if self.params.bound:
            total = in_flight(graph, eligible) + 1
            cap = math.ceil(self.params.bound * total / eligible.count)
        nearest = -1
        for device in self._ring(graph, eligible, self.params.virtual_nodes).walk(request.session):
            if device in request.tried:
                continue
            if graph.n[device] < cap:
                return self._place(device, eligible.count)
            nearest = device if nearest < 0 else nearest
        if nearest < 0:
            return self._none(Reason.no_device, eligible.count)
        return self._place(nearest, eligible.count)

    def _by_table(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Choice:
        held = self._bound.get(request.session)
        if held is not None and graph.generation[held[0]] == held[1]:
            device = held[0]
            if eligible.mask[device] and device not in request.tried:
                self._bound.move_to_end(request.session)
                return self._place(device, eligible.count)
        if len(self._life) != graph.count or (self._life != graph.generation).any():
            self._renew(graph)
        choice = self._least(request, self._sessions, eligible)
        if choice.device >= 0:
            self._unbind(held)
            self._bound[request.session] = choice.device, int(graph.generation[choice.device])
            self._bound.move_to_end(request.session)
            self._sessions[choice.device] += 1
            if len(self._bound) > self.params.table_size:
                self._unbind(self._bound.popitem(last=False)[1])
        return choice

    def _renew(self, graph: TopologyGraph) -> None:
        """Follow a fleet that grew, or whose devices were re-created without their sessions."""
        grown = graph.count - len(self._life)
        self._life = np.concatenate([self._life, np.zeros(grown, dtype=np.int64)])
        self._sessions = np.concatenate([self._sessions, np.zeros(grown, dtype=np.int64)])
        self._sessions[self._life != graph.generation] = 0
        np.copyto(self._life, graph.generation)

    def _unbind(self, held: tuple[int, int] | None) -> None:
        if held is not None and self._life[held[0]] == held[1]:
            self._sessions[held[0]] -= 1


@dataclass(frozen=True, slots=True)
class PrefixHashParams:
    """``tokens``: length of the head that is hashed; ``bound``: load factor over the mean."""

    tokens: int = 256
    virtual_nodes: int = 100
    bound: float = 1.25

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.virtual_nodes < 1 or self.bound < 1:
            raise ValueError("give tokens, virtual_nodes >= 1 and bound >= 1")


@register("prefix_hash")
class PrefixHash(Hashing):
    """Hashes the first 256 tokens of the prompt onto a ring, with loads bounded by 1.25 x mean.

    Walks from the hash to the first device with n <= 1.25 * mean n; none: fewest in flight. The
    head is known in blocks: as many as hold 256 tokens. No blocks: fewest in flight.
    Signals: own books. Ties: ring order. Source: SGLang gateway prefix_hash; KubeAI CHWBL.
    Known failure mode: prompts that share a template hash alike although nothing else is shared.
    """

    Params = PrefixHashParams

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device of the prompt's head."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        blocks = -(-self.params.tokens // max(request.block_tokens, 1))
        head = request.block_hashes[: max(1, blocks)]
        if not head:
            return self._least(request, graph.n, eligible)
        key = keyed.bits(self._key, *head)
        cap = self.params.bound * in_flight(graph, eligible) / eligible.count
        for device in self._ring(graph, eligible, self.params.virtual_nodes).walk(key):
            if graph.n[device] <= cap and device not in request.tried:
                return self._place(device, eligible.count)
        return self._least(request, graph.n, eligible)
