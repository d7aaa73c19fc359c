"""Affinity by hashing: sessions and prompt heads on a ring, with or without bounded load."""

import bisect
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

from dispatch import keyed
from dispatch.fleet import Eligible
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import no_device
from dispatch.policy import BasePolicy, Choice
from dispatch.registry import register
from dispatch.request import Request

_RING = keyed.stream(0, "ring")


class Ring:
    """A hash ring of devices, *points* virtual nodes each, placed by name, not by order."""

    def __init__(self, names: list[tuple[str, int]], points: int) -> None:
        self.count = len(names)
        placed = sorted(
            (keyed.bits(keyed.stream(0, f"ring.{name}"), v), device)
            for name, device in names
            for v in range(points)
        )
        self._at = [at for at, _ in placed]
        self._device = [device for _, device in placed]

    def walk(self, key: int) -> list[int]:
        """Return every device once, in ring order from the hash of *key*."""
        start = bisect.bisect_left(self._at, keyed.bits(_RING, key))
        order: dict[int, None] = {}
        for step in range(len(self._at)):
            order.setdefault(self._device[(start + step) % len(self._at)])
            if len(order) == self.count:
                break
        return list(order)


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

    def _least(
        self, request: Request, graph: TopologyGraph, devices: list[int], eligible: Eligible
    ) -> Choice:
        """Return the fewest in flight among *devices*, ties seeded."""
        if not devices:
            return self._none(Reason.no_device, eligible.count)
        loads = [int(graph.n[d]) for d in devices]
        tied = [d for d, n in zip(devices, loads, strict=True) if n == min(loads)]
        draw = keyed.uniform(self._key, request.id, request.attempt)
        return self._place(tied[int(draw * len(tied))], eligible.count)


@dataclass(frozen=True, slots=True)
class SessionParams:
    """``ring`` hashes the session; ``table`` binds it where it began, so that none ever moves.

    ``bound`` > 0 caps a device at bound * mean load (CHWBL); 0 means no cap. ``table_size`` bounds
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

    Walks the ring from the session's hash to the first device with n + 1 <= c * (sum n + 1) / N.
    Mode ``table``: new sessions go where the fewest are bound, and stay. No session: fewest in
    flight. Signals: own books. Ties: ring order; seeded among equals of the table.
    Source: consistent hashing with bounded loads (Mirrokni et al. 2018); ingress-nginx #4093.
    Known failure mode: one hot session makes one hot device; unbounded rings remap on scale-up.
    """

    Params = SessionParams

    def __init__(self, params: SessionParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._bound: OrderedDict[int, tuple[int, int]] = OrderedDict()  # session -> device, life
        self._sessions: dict[tuple[int, int], int] = {}

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device of the request's session."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        devices = [d for d in eligible.devices if d not in request.tried]
        if request.session < 0:
            return self._least(request, graph, devices, eligible)
        if self.params.mode == "table":
            return self._by_table(request, graph, eligible, devices)
        walk = self._ring(graph, eligible, self.params.virtual_nodes).walk(request.session)
        walk = [d for d in walk if d not in request.tried]
        if not walk:
            return self._none(Reason.no_device, eligible.count)
        device = walk[0]
        if self.params.bound:
            total = int(graph.n[eligible.index].sum()) + 1
            cap = self.params.bound * total / eligible.count
            device = next((d for d in walk if graph.n[d] + 1 <= max(1.0, cap)), walk[0])
        return self._place(device, eligible.count)

    def _by_table(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, devices: list[int]
    ) -> Choice:
        held = self._bound.get(request.session)
        if held is not None and held[0] in devices and graph.generation[held[0]] == held[1]:
            self._bound.move_to_end(request.session)
            return self._place(held[0], eligible.count)
        if not devices:
            return self._none(Reason.no_device, eligible.count)
        lives = [(d, int(graph.generation[d])) for d in devices]
        fewest = min(self._sessions.get(life, 0) for life in lives)
        tied = [life for life in lives if self._sessions.get(life, 0) == fewest]
        life = tied[int(keyed.uniform(self._key, request.id, request.attempt) * len(tied))]
        if held is not None:
            self._sessions[held] -= 1
        self._bound[request.session] = life
        self._bound.move_to_end(request.session)
        self._sessions[life] = fewest + 1
        if len(self._bound) > self.params.table_size:
            _, oldest = self._bound.popitem(last=False)
            self._sessions[oldest] -= 1
        return self._place(life[0], eligible.count)


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
        devices = [d for d in eligible.devices if d not in request.tried]
        blocks = -(-self.params.tokens // max(request.block_tokens, 1))
        head = request.block_hashes[: max(1, blocks)]
        if not head or not devices:
            return self._least(request, graph, devices, eligible)
        key = keyed.bits(self._key, *head)
        walk = self._ring(graph, eligible, self.params.virtual_nodes).walk(key)
        cap = self.params.bound * float(graph.n[eligible.index].mean())
        for device in walk:
            if device not in request.tried and graph.n[device] <= cap:
                return self._place(device, eligible.count)
        return self._least(request, graph, devices, eligible)
