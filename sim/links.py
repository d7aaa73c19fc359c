"""Links of the fleet: rings inside replicas, host links, NICs; what telemetry sees of them."""

from bisect import bisect_right
from typing import TYPE_CHECKING

from sim.fleet import Replica

if TYPE_CHECKING:
    from sim.telemetry import Channel


class Links:
    """Degradation of rings over time."""

    def __init__(self, replicas: list[Replica]) -> None:
        self.replicas = replicas
        self._factors: dict[int, tuple[list[int], list[float]]] = {}

    def set_ring(self, replica: Replica, factor: float, now: int) -> None:
        """Make the ring of *replica* *factor* times slower than its topology says, from *now*."""
        times, factors = self._factors.setdefault(replica.index, ([0], [1.0]))
        times.append(now)
        factors.append(factor)

    def ring_s(self, replica: Replica, when: int) -> float:
        """Return the latency of a small all-reduce of *replica* at *when*; 0 on one GPU."""
        latency = replica.kind.cost.ring_s
        history = self._factors.get(replica.index)
        if history is None:
            return latency
        times, factors = history
        return latency * factors[bisect_right(times, when) - 1]

    def settled(self, channel: "Channel", replica: Replica, when: int) -> None:
        """Forget *replica* as changed where what was delivered still holds."""
        history = self._factors.get(replica.index)
        if history is None or history[0][-1] <= when:
            channel.changed.pop(replica.index, None)

    def pcie_ratio(self, replica: Replica, when: int, window_ns: int) -> float:
        """Return the share of the host link's bandwidth in use before *when*."""
        return 0.0

    def calm(self, channel: "Channel", when: int) -> None:
        """Forget the links on which nothing has moved lately."""
        channel.changed.clear()
