"""The topology policy with one term taken away, to see what each term is worth."""

import numpy as np

from dispatch.books import NOWHERE, UNKNOWN
from dispatch.fleet import Eligible, Floats
from dispatch.graph import TopologyGraph
from dispatch.policies.scored import no_device
from dispatch.policies.topology import Topology
from dispatch.policy import Choice
from dispatch.registry import register
from dispatch.request import Request

_PCIE_STEPS = float(1 << 20)


class Ablation(Topology):
    """Topology by its general path, with its columns open to change."""

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device that the remaining terms prefer."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        return self._by_columns(request, graph, eligible)


@register("topology_no_block")
class TopologyNoBlock(Ablation):
    """Topology without the block: of the devices where it fits, ring latency, then PCIe use.

    Feasibility stays. Ties: fewest in flight, then configuration order. Signals: as topology.
    Source: ablation of ours. Known failure mode: fills the best-linked device to the brim.
    """

    def _keys(self, graph: TopologyGraph, rooms: Floats, most: float) -> tuple[Floats, Floats]:
        return graph.link, -graph.n.astype(np.float64)


@register("topology_no_ring")
class TopologyNoRing(Ablation):
    """Topology without the ring: largest contiguous block in bins, then PCIe use.

    Ties: the larger block, then configuration order. Signals: memory, kv, pcie.
    Source: ablation of ours. Known failure mode: takes a degraded ring for a sound one.
    """

    signals = frozenset({"memory", "pcie", "kv", "health"})

    def _links(self, graph: TopologyGraph) -> Floats:
        return np.asarray(graph.link % _PCIE_STEPS)


@register("topology_no_pcie")
class TopologyNoPcie(Ablation):
    """Topology without PCIe: largest contiguous block in bins, then ring latency.

    Ties: the larger block, then configuration order. Signals: memory, kv, ring.
    Source: ablation of ours. Known failure mode: queues behind a congested host link.
    """

    signals = frozenset({"memory", "ring", "kv", "health"})

    def _links(self, graph: TopologyGraph) -> Floats:
        return np.asarray(np.floor(graph.link / _PCIE_STEPS))


@register("topology_free")
class TopologyFree(Ablation):
    """The same information without contiguity: free bytes take the place of the largest block.

    Feasible: F - reserved >= need; F in bins, then ring, then PCIe. Ties: the more free bytes, then
    configuration order. Signals: as topology. Source: ablation of ours.
    Known failure mode: free bytes in fragments hold no large request: out of memory.
    """

    def _rooms(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Floats:
        free = np.maximum(graph.free - graph.reserved, 0.0)
        free[np.isnan(free)] = UNKNOWN
        by_kv = graph.paged & ~np.isnan(graph.kv_free_blocks)
        rooms = np.where(by_kv | (graph.room == UNKNOWN), graph.room, free)
        rooms[~eligible.mask] = NOWHERE
        for device in request.tried:
            rooms[device] = NOWHERE
        return rooms
