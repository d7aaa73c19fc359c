"""Topology-aware placement: what fits, then the largest block, the fastest ring, the idlest bus."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from dispatch.books import NOWHERE, UNKNOWN
from dispatch.fleet import Bools, Cells, Eligible, Floats, cells
from dispatch.graph import TopologyGraph
from dispatch.journal import BEST
from dispatch.outcomes import Reason
from dispatch.policies.scored import UNKNOWN_COST, no_device
from dispatch.policy import BasePolicy, Choice
from dispatch.registry import register
from dispatch.request import Request

SMALL = 48  # up to this many devices a plain loop beats numpy's call overhead
_PLACED: Final = Reason.placed  # a member costs more than a global to look up


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
    then the lowest PCIe use (1e-6). Weighted: argmin block_weight * (1 - B / max B) + ring_weight *
    ring / ring_scale_s + pcie_weight * pcie. Nothing fits: held; fits no device ever: too_large.
    Unknown memory is used after all known, fewest in flight first. Ties: the larger block, then
    configuration order. Signals: memory (or KV blocks), ring, PCIe, health. Source:
    ours; the policy under test here.
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
        self._least = np.zeros(())  # an array of one: numpy need not convert a number each time
        self._scratch(0)

    def _scratch(self, count: int) -> None:
        """Make the columns that decisions work in, so that none of them allocates any."""
        self._room, self._key, self._need = np.empty(count), np.empty(count), np.empty(count)
        self._mask: Bools = np.empty(count, dtype=bool)
        self._room_at, self._key_at = cells(self._room), cells(self._key)

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device with the best room and links, or -1 where nothing fits."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        if self._weighted:
            return self._by_columns(request, graph, eligible)
        if graph.count <= SMALL:
            return self._by_loop(request, graph, eligible)
        if eligible.uniform:
            return self._by_arrays(request, graph, eligible)
        return self._by_columns(request, graph, eligible)

    def _by_loop(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Choice:
        """Choose one by one: for small fleets."""
        rooms: list[float] = graph.room.tolist()
        for device in eligible.excluded:
            rooms[device] = NOWHERE
        for device in request.tried:
            rooms[device] = NOWHERE
        if eligible.uniform:
            need = eligible.need_bytes(request)
        else:
            need = self._unfit(request, graph, eligible, rooms)
        most = max(rooms)
        if most < need or most < 0.0:
            return self._nothing_fits(request, graph, eligible)
        least = most * self._keep
        if least < need:
            least = need
        order = _order(rooms, graph.link.tolist(), least)
        return self._chosen(order, [rooms[device] for device in order], eligible, need)

    def _unfit(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, rooms: list[float]
    ) -> float:
        """Rule out the *rooms* that are too small for what *request* needs just there."""
        for device in eligible.devices:
            if rooms[device] < graph.devices[device].need_bytes(request):
                rooms[device] = NOWHERE
        return 0.0

    def _chosen(
        self, best: list[int], scores: list[float], eligible: Eligible, need: float
    ) -> Choice:
        choice = self._choice
        choice.device = best[0]
        choice.reason = _PLACED
        choice.candidates = eligible.count
        choice.need_bytes = need if eligible.uniform else -1.0
        choice.best, choice.scores = best, scores
        return choice

    def _rooms(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Floats:
        """Return a scratch column of the rooms of this class."""
        if len(self._room) != graph.count:
            self._scratch(graph.count)
        rooms = self._room
        if eligible.outside is None:
            np.copyto(rooms, graph.room)
        else:
            np.add(graph.room, eligible.outside, out=rooms)
        for device in request.tried:
            rooms[device] = NOWHERE
        return rooms

    def _by_arrays(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Choice:
        """Choose by whole columns where a request needs the same on every device."""
        rooms = self._rooms(request, graph, eligible)
        mask, key, key_at = self._mask, self._key, self._key_at
        need = eligible.need_bytes(request)
        most = self._room_at[int(rooms.argmax())]
        if most < need or most < 0.0:
            return self._nothing_fits(request, graph, eligible)
        least = most * self._keep
        self._least[()] = least if least > need else need
        np.less(rooms, self._least, mask)
        np.copyto(key, graph.link)
        np.putmask(key, mask, np.inf)
        pick = int(key.argmin())
        link = key_at[pick]
        key_at[pick] = np.inf
        if key_at[int(key.argmin())] == link:  # equal links: the larger block
            key_at[pick] = link
            pick = self._largest_of(link, rooms)
        best, scores = _largest(rooms, self._room_at, pick)
        return self._chosen(best, scores, eligible, need)

    def _largest_of(self, least: float, tie: Floats) -> int:
        """Return the device of the largest *tie* among those whose key is *least*."""
        key, mask = self._key, self._mask
        np.not_equal(key, least, mask)
        np.copyto(key, tie)
        np.putmask(key, mask, NOWHERE)
        return int(key.argmax())

    def _by_columns(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Choice:
        """Choose by whole columns: where devices need unlike bytes, and for weighted sums."""
        rooms = self._rooms(request, graph, eligible)
        graph.need_column(request, self._need)
        np.less(rooms, self._need, self._mask)
        np.putmask(rooms, self._mask, NOWHERE)
        most = self._room_at[int(rooms.argmax())]
        if most < 0.0:
            return self._nothing_fits(request, graph, eligible)
        self._measure(graph, rooms, most)
        least = self._key_at[int(self._key.argmin())]
        pick = self._largest_of(least, self._tie(graph, rooms))
        best, scores = _largest(rooms, self._room_at, pick)
        return self._chosen(best, scores, eligible, -1.0)

    def _measure(self, graph: TopologyGraph, rooms: Floats, most: float) -> None:
        """Write what to minimise into the key, infinite where *rooms* holds NOWHERE."""
        if self._weighted:
            self._weigh(graph, rooms, most)
            return
        np.less(rooms, most * self._keep, self._mask)
        self._links(graph, self._key)
        np.putmask(self._key, self._mask, np.inf)

    def _links(self, graph: TopologyGraph, out: Floats) -> None:
        """Write the order of the devices by their links."""
        np.copyto(out, graph.link)

    def _tie(self, graph: TopologyGraph, rooms: Floats) -> Floats:
        """Return what the larger of wins among devices of equal key."""
        return rooms

    def _weigh(self, graph: TopologyGraph, rooms: Floats, most: float) -> None:
        """Write the weighted sum of the class docstring; an unknown link comes after all known."""
        p, cost, part, mask = self._p, self._key, self._need, self._mask
        cost.fill(0.0)
        if p.block_weight and most > 0:
            np.multiply(rooms, -p.block_weight / most, out=cost)
            np.add(cost, p.block_weight, out=cost)
        if p.ring_weight:
            np.multiply(graph.ring, p.ring_weight / p.ring_scale_s, out=part)
            np.putmask(part, graph.ringless, 0.0)
            np.add(cost, part, out=cost)
        if p.pcie_weight:
            np.multiply(graph.pcie, p.pcie_weight, out=part)
            np.add(cost, part, out=cost)
        np.isnan(cost, out=mask)
        np.putmask(cost, mask, UNKNOWN_COST)
        np.less(rooms, 0.0, mask)
        np.putmask(cost, mask, np.inf)

    def _nothing_fits(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Choice:
        """Fall back on devices of unknown memory; else say whether waiting can help."""
        rooms = self._rooms(request, graph, eligible)
        graph.need_column(request, self._need)
        could = self._mask
        np.less_equal(self._need, graph.capacity_bytes, could)
        np.logical_and(could, eligible.mask, could)
        if not could.any():
            return self._none(Reason.too_large, eligible.count)
        if self._p.unknown == "last":
            unknown = np.flatnonzero(could & (rooms == UNKNOWN))
            if len(unknown):
                pick = int(unknown[graph.n[unknown].argmin()])
                return self._place(pick, eligible.count)
        if self._room_at[int(rooms.argmax())] == NOWHERE:
            return self._none(Reason.no_device, eligible.count)
        return self._none(Reason.held, eligible.count)


def _order(rooms: list[float], links: list[float], least: float) -> list[int]:
    """Return the best by links of those with *least* room, and the four roomiest others."""
    pick, pick_link, pick_room = -1, 0.0, 0.0
    for device, room in enumerate(rooms):
        if room >= least:
            link = links[device]
            if pick < 0 or link < pick_link or (link == pick_link and room > pick_room):
                pick, pick_link, pick_room = device, link, room
    order = sorted(range(len(rooms)), key=rooms.__getitem__, reverse=True)[:BEST]
    if order[0] != pick:
        if pick in order:
            order.remove(pick)
        order.insert(0, pick)
        del order[BEST:]
    if rooms[order[-1]] < 0.0:
        order = [device for device in order if rooms[device] >= 0.0]
    return order


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
