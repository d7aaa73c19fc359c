"""Topology-aware placement: what fits, then the largest block, the fastest ring, the idlest bus."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dispatch.books import NOWHERE, UNKNOWN
from dispatch.fleet import Bools, Cells, Eligible, Floats, cells
from dispatch.graph import TopologyGraph
from dispatch.journal import BEST
from dispatch.outcomes import Reason
from dispatch.policies.scored import no_device
from dispatch.policy import BasePolicy, Choice
from dispatch.registry import register
from dispatch.request import Request

SMALL = 48  # up to this many devices a plain loop beats numpy's call overhead
_PLACED = Reason.placed  # a member costs more than a global to look up


@dataclass(frozen=True, slots=True)
class TopologyParams:
    """Parameters of the topology policy.

    ``b_bin_ratio``: blocks within this share of the largest count as equal, so that ring and PCIe
    come to bear; 1 leaves the block out, 0 leaves the links out. ``unknown``: a device whose
    memory nobody has told is tried ``last``, or ``never``. Weights are for mode ``weighted``.
    """

    mode: Literal["lexicographic", "weighted"] = "lexicographic"
    b_bin_ratio: float = 0.1
    unknown: Literal["last", "never"] = "last"
    block_weight: float = 1.0
    ring_weight: float = 0.5
    pcie_weight: float = 0.5
    ring_scale_s: float = 20e-6

    def __post_init__(self) -> None:
        if not 0 <= self.b_bin_ratio <= 1:
            raise ValueError(f"b_bin_ratio is {self.b_bin_ratio}; give a share from 0 to 1")
        if min(self.block_weight, self.ring_weight, self.pcie_weight) < 0 or self.ring_scale_s <= 0:
            raise ValueError("weights must be >= 0 and ring_scale_s > 0")


@register("topology")
class Topology(BasePolicy):
    """Places where the request fits: largest contiguous block first, then ring latency, then PCIe.

    Feasible: B >= need, with B the sampled block less what was placed since. Lexicographic: blocks
    at least (1 - b_bin_ratio) of the largest are one bin; within it the lowest ring latency (1 ns),
    then the lowest PCIe use (1e-6), then the larger block, then configuration order. Weighted:
    argmin block_weight*(1 - B/max B) + ring_weight*ring/ring_scale_s + pcie_weight*pcie.
    Nothing fits: held; fits no device ever: too_large. Unknown memory is used after all known.
    Signals: memory (or KV blocks), ring, PCIe, health. Source: claims.md, "What made it deletable".
    Known failure mode: blind to queues and prefix caches; chases the largest card of a mixed fleet
    until its room falls to that of the next.
    """

    signals = frozenset({"memory", "ring", "pcie", "kv", "health"})
    Params = TopologyParams

    def __init__(self, params: TopologyParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._p: TopologyParams = self.params
        self._keep = 1.0 - self._p.b_bin_ratio
        self._weighted = self._p.mode == "weighted"
        self._room: Floats = np.empty(0)
        self._key: Floats = np.empty(0)
        self._mask: Bools = np.empty(0, dtype=bool)
        self._least = np.zeros(())  # an array of one: numpy need not convert a number each time
        self._room_at, self._key_at = cells(self._room), cells(self._key)

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device with the best room and links, or -1 where nothing fits."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        if not eligible.uniform or self._weighted:
            return self._by_columns(request, graph, eligible)
        need = eligible.need_bytes(request)
        if graph.count > SMALL:
            return self._by_arrays(request, graph, eligible, need)
        rooms: list[float] = graph.room.tolist()
        for device in eligible.excluded:
            rooms[device] = NOWHERE
        for device in request.tried:
            rooms[device] = NOWHERE
        most = max(rooms)
        if most < need or most < 0.0:
            return self._nothing_fits(request, graph, eligible, need, most)
        least = most * self._keep
        if least < need:
            least = need
        links = graph.link.tolist()
        pick, pick_link, pick_room = -1, 0.0, 0.0
        for device, room in enumerate(rooms):
            if room >= least:
                link = links[device]
                if pick < 0 or link < pick_link or (link == pick_link and room > pick_room):
                    pick, pick_link, pick_room = device, link, room
        choice = self._choice
        choice.device = pick
        choice.reason = _PLACED
        choice.candidates = eligible.count
        choice.need_bytes = need
        order = sorted(range(len(rooms)), key=rooms.__getitem__, reverse=True)[:BEST]
        if order[0] != pick:
            if pick in order:
                order.remove(pick)
            order.insert(0, pick)
        if rooms[order[-1]] < 0.0:
            order = [device for device in order if rooms[device] >= 0.0]
        choice.best = order
        choice.scores = [rooms[device] for device in order]
        return choice

    def _scratch(self, count: int) -> None:
        if len(self._room) != count:
            self._room, self._key = np.empty(count), np.empty(count)
            self._mask = np.empty(count, dtype=bool)
            self._room_at, self._key_at = cells(self._room), cells(self._key)

    def _rooms(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Floats:
        """Return the rooms of this class; the graph's own column where nothing is excluded."""
        if eligible.outside is None and not request.tried:
            return graph.room
        rooms = self._room
        if eligible.outside is None:
            np.copyto(rooms, graph.room)
        else:
            np.add(graph.room, eligible.outside, out=rooms)
        for device in request.tried:
            rooms[device] = NOWHERE
        return rooms

    def _by_arrays(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, need: float
    ) -> Choice:
        self._scratch(graph.count)
        rooms, mask, key = self._rooms(request, graph, eligible), self._mask, self._key
        left = self._room
        if left is not rooms:
            np.copyto(left, rooms)
        most = self._room_at[int(left.argmax())]
        if most < need or most < 0.0:
            return self._nothing_fits(request, graph, eligible, need, most)
        least = most * self._keep
        self._least[()] = least if least > need else need
        np.less(left, self._least, mask)
        np.copyto(key, graph.link)
        np.putmask(key, mask, np.inf)
        pick = int(key.argmin())
        link = self._key_at[pick]
        self._key_at[pick] = np.inf
        if self._key_at[int(key.argmin())] == link:  # equal links: the larger block
            self._key_at[pick] = link
            np.not_equal(key, link, mask)
            np.copyto(key, left)
            np.putmask(key, mask, NOWHERE)
            pick = int(key.argmax())
        choice = self._choice
        choice.device = pick
        choice.reason = _PLACED
        choice.candidates = eligible.count
        choice.need_bytes = need
        choice.best, choice.scores = _largest(left, self._room_at, pick)
        return choice

    def _by_columns(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Choice:
        """The same for classes whose devices need different bytes, and for weighted sums."""
        self._scratch(graph.count)
        rooms = self._rooms(request, graph, eligible).copy()
        need = np.array([d.need_bytes(request) for d in graph.devices])
        fits = (rooms >= need) & (rooms >= 0)
        if not fits.any():
            least = float(need[eligible.index].min())
            capacity = max(graph.devices[i].capacity_bytes - need[i] for i in eligible.devices)
            return self._nothing_fits(
                request, graph, eligible, least, float(rooms.max()), ever=capacity >= 0
            )
        rooms[~fits] = NOWHERE
        cost, tie = self._keys(graph, rooms, float(rooms.max()))
        cost = np.where(fits, cost, np.inf)
        pick = int(np.where(cost == cost.min(), tie, NOWHERE).argmax())
        choice = self._place(pick, eligible.count)
        choice.best, choice.scores = _largest(rooms, cells(rooms), pick)
        return choice

    def _links(self, graph: TopologyGraph) -> Floats:
        """Return the order of the devices by their links."""
        return graph.link

    def _keys(self, graph: TopologyGraph, rooms: Floats, most: float) -> tuple[Floats, Floats]:
        """Return what to minimise, and what to maximise among equals."""
        if self._weighted:
            return self._cost(graph, rooms, most), rooms
        return np.where(rooms >= most * self._keep, self._links(graph), np.inf), rooms

    def _cost(self, graph: TopologyGraph, rooms: Floats, most: float) -> Floats:
        p = self._p
        ring = np.where(graph.ringless, 0.0, graph.ring) / p.ring_scale_s
        blocks = 1.0 - rooms / most if most > 0 else np.zeros(len(rooms))
        cost = p.block_weight * np.where(np.isinf(blocks), 1.0, blocks)
        if p.ring_weight:
            cost = cost + p.ring_weight * ring
        if p.pcie_weight:
            cost = cost + p.pcie_weight * graph.pcie
        unknown = np.isnan(cost)
        cost[unknown] = 1e300
        return np.asarray(cost)

    def _nothing_fits(
        self,
        request: Request,
        graph: TopologyGraph,
        eligible: Eligible,
        need: float,
        most: float,
        ever: bool | None = None,
    ) -> Choice:
        """Fall back on devices of unknown memory; else say whether waiting can help."""
        if ever is None:
            ever = need <= eligible.capacity_bytes
        if not ever:
            return self._none(Reason.too_large, eligible.count)
        if self._p.unknown == "last":
            rooms = self._rooms_plain(request, graph, eligible)
            unknown = np.flatnonzero(rooms == UNKNOWN)
            if len(unknown):
                pick = int(unknown[graph.n[unknown].argmin()])
                return self._place(pick, eligible.count)
        if most == NOWHERE:
            return self._none(Reason.no_device, eligible.count)
        return self._none(Reason.held, eligible.count)

    def _rooms_plain(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Floats:
        self._scratch(graph.count)
        return self._rooms(request, graph, eligible)


def _largest(rooms: Floats, at: Cells, pick: int) -> tuple[list[int], list[float]]:
    """Return the chosen device and the four roomiest others; spoils *rooms*, seen through *at*."""
    best, scores = [pick], [at[pick]]
    at[pick] = NOWHERE
    for _ in range(min(BEST, len(rooms)) - 1):
        device = int(rooms.argmax())
        room = at[device]
        if room < 0.0:
            break
        best.append(device)
        scores.append(room)
        at[device] = NOWHERE
    return best, scores
