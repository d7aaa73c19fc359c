"""Links of the fleet: rings inside replicas, host links, NICs; what telemetry sees of them.

A ring's latency is what its topology gives (the cost model's small all-reduce), slower by what a
fault takes, and by what else crosses its links. Collectives that have no NVLink, or have lost it,
go over the PCIe root of their node, and so show in its use.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING

from dispatch.hardware.collectives import port_bytes_per_s
from sim.fleet import Replica
from sim.network import Link, Network

if TYPE_CHECKING:
    from sim.channel import Channel


class Links:
    """Degradation of rings over time, and the network between replicas."""

    def __init__(self, replicas: list[Replica], network: Network, nic_bytes_per_s: float) -> None:
        self.replicas = replicas
        self.network = network
        self.nic_bytes_per_s = nic_bytes_per_s
        self._factors: dict[int, tuple[list[int], list[float]]] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        gpus: dict[str, int] = {}
        for replica in replicas:
            pool = replica.kind.pool
            first = gpus.get(pool.name, 0)
            gpus[pool.name] = first + pool.tp
            self._nodes[replica.index] = (pool.name, first // pool.gpus_per_node)
            network.add(self.root(replica), replica.kind.gpu.pcie_bytes_per_s)
            network.add(self.nic(replica), nic_bytes_per_s)
            port = replica.kind.gpu.nvlink_bytes_per_s
            if port:
                network.add(("nvlink", replica.index), port * pool.tp)
        self._static = [r.index for r in replicas if self.on_pcie(r, 0)]

    def root(self, replica: Replica) -> Link:
        """Return the PCIe root of the node of *replica*, which its neighbours share."""
        return ("pcie", *self._nodes[replica.index])

    def nic(self, replica: Replica) -> Link:
        """Return the NIC of the node of *replica*, which its neighbours share."""
        return ("nic", *self._nodes[replica.index])

    def path(self, kind: str, source: Replica, target: Replica) -> tuple[Link, ...]:
        """Return the links that KV crosses from *source* to *target* under a *kind* of link.

        Within a node NVLink or the PCIe root serves; between nodes NVLink does not reach, so that
        bytes go through both roots and both NICs.
        """
        same = self._nodes[source.index] == self._nodes[target.index]
        if same and kind == "nvlink" and source.kind.gpu.nvlink_bytes_per_s:
            return (("nvlink", source.index), ("nvlink", target.index))
        roots = tuple(dict.fromkeys((self.root(source), self.root(target))))
        if same and kind != "nic":
            return roots
        return tuple(dict.fromkeys((*roots, self.nic(source), self.nic(target))))

    def set_ring(self, replica: Replica, factor: float, now: int) -> None:
        """Make the ring of *replica* *factor* times slower than its topology says, from *now*."""
        times, factors = self._factors.setdefault(replica.index, ([0], [1.0]))
        times.append(now)
        factors.append(factor)

    def ring_factor(self, replica: Replica, when: int) -> float:
        """Return how many times slower than its topology the ring of *replica* was at *when*."""
        history = self._factors.get(replica.index)
        if history is None:
            return 1.0
        times, factors = history
        return factors[bisect_right(times, when) - 1]

    def ring_s(self, replica: Replica, when: int) -> float:
        """Return the latency of a small all-reduce of *replica* at *when*; 0 on one GPU.

        Topology, times degradation; where the ring crosses PCIe, a share of the root that others
        use is not there for it.
        """
        latency = replica.kind.cost.ring_s * self.ring_factor(replica, when)
        if latency and self.on_pcie(replica, when):
            used = self.network.used_ratio(self.root(replica), when, 1_000_000)
            latency /= max(1.0 - used, 0.1)
        return latency

    def on_pcie(self, replica: Replica, when: int) -> bool:
        """Return whether the collectives of *replica* cross PCIe: no NVLink, or it is degraded."""
        kind = replica.kind
        if kind.pool.tp == 1:
            return False
        port = port_bytes_per_s(kind.gpu, min(kind.pool.tp, kind.pool.gpus_per_node))
        return port <= kind.gpu.pcie_bytes_per_s or self.ring_factor(replica, when) > 1.0

    def settled(self, channel: "Channel", replica: Replica, when: int) -> None:
        """Forget *replica* as changed where what was delivered still holds."""
        history = self._factors.get(replica.index)
        if history is None or history[0][-1] <= when:
            channel.changed.pop(replica.index, None)

    def pcie_ratio(self, replica: Replica, when: int, window_ns: int) -> float:
        """Return the share of the host link's bandwidth in use before *when*.

        What transfers moved over the root in the window, and the collectives of this replica where
        they go over PCIe: for the share of its iterations that they last.
        """
        used = self.network.used_ratio(self.root(replica), when, max(window_ns, 1))
        if self.on_pcie(replica, when) and replica.engine.due >= 0:
            used += replica.collective_ratio(self.ring_factor(replica, when))
        return min(1.0, used)

    def lively(self, when: int, lately_ns: int) -> list[int]:
        """Return the replicas whose PCIe use changes by itself around *when*.

        Those whose collectives cross PCIe, and all while transfers move or moved *lately_ns* ago.
        """
        network = self.network
        if network.transfers or network.at + lately_ns >= when > lately_ns:
            return list(range(len(self.replicas)))
        slow = [i for i, h in self._factors.items() if h[1][bisect_right(h[0], when) - 1] > 1.0]
        return self._static + slow
