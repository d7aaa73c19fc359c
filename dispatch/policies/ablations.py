"""The topology policy with one term taken away, to see what each term is worth."""

import numpy as np

from dispatch.fleet import Eligible, Floats
from dispatch.graph import TopologyGraph
from dispatch.observed import PCIE_STEPS
from dispatch.policies.scored import no_device
from dispatch.policies.topology import Topology
from dispatch.policy import Choice
from dispatch.registry import register
from dispatch.request import Request


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

    def _measure(self, graph: TopologyGraph, rooms: Floats, most: float) -> None:
        np.less(rooms, 0.0, self._mask)
        self._links(graph, self._key)
        np.putmask(self._key, self._mask, np.inf)

    def _tie(self, graph: TopologyGraph, rooms: Floats) -> Floats:
        np.negative(graph.n, out=self._need)
        return self._need


@register("topology_no_ring")
class TopologyNoRing(Ablation):
    """Topology without the ring: largest contiguous block in bins, then PCIe use.

    Ties: the larger block, then configuration order. Signals: memory, kv, pcie.
    Source: ablation of ours. Known failure mode: takes a degraded ring for a sound one.
    """

    signals = frozenset({"memory", "pcie", "kv", "health"})

    def _links(self, graph: TopologyGraph, out: Floats) -> None:
        np.remainder(graph.link, PCIE_STEPS, out=out)


@register("topology_no_pcie")
class TopologyNoPcie(Ablation):
    """Topology without PCIe: largest contiguous block in bins, then ring latency.

    Ties: the larger block, then configuration order. Signals: memory, kv, ring.
    Source: ablation of ours. Known failure mode: queues behind a congested host link.
    """

    signals = frozenset({"memory", "ring", "kv", "health"})

    def _links(self, graph: TopologyGraph, out: Floats) -> None:
        np.floor_divide(graph.link, PCIE_STEPS, out=out)


@register("topology_free")
class TopologyFree(Ablation):
    """The same information without contiguity: free bytes take the place of the largest block.

    Feasible: F - reserved >= need; F in bins, then ring, then PCIe. Ties: the more free bytes, then
    configuration order. Signals: as topology. Source: ablation of ours.
    Known failure mode: free bytes in fragments hold no large request: out of memory.
    """

    def _rooms(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Floats:
        rooms = super()._rooms(request, graph, eligible)
        by_block = (rooms >= 0.0) & ~(graph.paged & ~np.isnan(graph.kv_free_blocks))
        np.putmask(rooms, by_block, np.maximum(graph.free - graph.reserved, 0.0))
        return rooms
