"""A failure memory across requests: a device that keeps failing is left alone for a while."""

import math
from dataclasses import dataclass

from dispatch.graph import TopologyGraph


@dataclass(frozen=True, slots=True)
class BreakerParams:
    """``faults`` in a row put a device out for ``out_s``; then one success clears it.

    A device on probation goes out again at its first fault. At most ``max_out_ratio`` of the
    devices that are up are out at a time, so that a fault common to all stops nobody.
    """

    faults: int = 5
    out_s: float = 30.0
    max_out_ratio: float = 0.5


class Breaker:
    """Ejects devices by their faults; a client's error is no fault and is never told to it."""

    def __init__(self, graph: TopologyGraph, params: BreakerParams | None = None) -> None:
        self.params = params or BreakerParams()
        self.ejections = 0
        self._graph = graph
        self._faults: dict[tuple[int, int], int] = {}  # (device, life) -> faults in a row
        self._until: dict[tuple[int, int], float] = {}  # (device, life) -> end of its time out
        self.next_s = math.inf
        """When the next ejected device may come back."""

    def fault(self, device: int, now_s: float) -> None:
        """Count a fault against *device*, and eject it where it has too many."""
        life = device, int(self._graph.generation[device])
        count = self._faults[life] = self._faults.get(life, 0) + 1
        if count < self.params.faults or self._graph.ejected[device]:
            return
        up = int(self._graph.up.sum())
        if (int(self._graph.ejected.sum()) + 1) > self.params.max_out_ratio * up:
            return
        self.ejections += 1
        self._until[life] = now_s + self.params.out_s
        self.next_s = min(self._until.values())
        self._graph.set_ejected(device, True)

    def success(self, device: int) -> None:
        """Clear the faults of *device*."""
        if self._faults:
            self._faults.pop((device, int(self._graph.generation[device])), None)

    def release(self, now_s: float) -> None:
        """Let those back in whose time is over, on probation."""
        for life in [key for key, until in self._until.items() if until <= now_s]:
            del self._until[life]
            device, generation = life
            if self._graph.generation[device] == generation:
                self._graph.set_ejected(device, False)
                self._faults[life] = self.params.faults - 1
        self.next_s = min(self._until.values(), default=math.inf)
