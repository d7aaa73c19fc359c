"""The memory topology graph: what telemetry says of every device, and what was placed since.

Samples are ordered by their source time; what was dispatched since a sample is taken off on top,
so that many decisions within one sampling interval do not herd. Unknown never beats known.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from dispatch.device import DeviceInfo
from dispatch.fleet import Floats, Ints
from dispatch.observed import Observed
from dispatch.signals import SIGNALS, Pair, Staleness

__all__ = ["SIGNALS", "DeviceInfo", "Staleness", "TelemetrySource", "TopologyGraph"]


class TelemetrySource(Protocol):
    """Brings a graph up to date on demand; the simulator evaluates its telemetry this way."""

    def refresh(self, now_s: float, signals: frozenset[str]) -> None:
        """Deliver what has arrived by *now_s* of the named *signals*."""


class TopologyGraph(Observed):
    """Per device: free bytes, largest block, ring latency, PCIe use, queue, KV and health.

    ``reservations`` off leaves the samples as they are, so that placements herd between two of
    them. Under paged KV the room of a device is its free KV blocks, once told; else its largest
    block. ``link`` orders devices by ring latency, then PCIe use; one GPU has no ring.
    """

    source: TelemetrySource | None

    def __init__(
        self,
        devices: Sequence[DeviceInfo],
        *,
        reservations: bool = True,
        staleness: Mapping[str, Staleness] | None = None,
    ) -> None:
        self.source = None
        self.followers: list[TopologyGraph] = []
        self._health_s = [-math.inf] * len(devices)
        super().__init__(devices, reservations=reservations, staleness=staleness)

    def observe_memory(
        self, device: int, free_bytes: float, block_bytes: float, source_s: float, owner: str = ""
    ) -> bool:
        """Take free bytes and largest contiguous block of the replica; False where refused."""
        for follower in self.followers:
            follower.observe_memory(device, free_bytes, block_bytes, source_s, owner)
        signal = self.signals["memory"]
        if block_bytes > free_bytes:
            signal.refused += 1
            return False
        sample = (free_bytes, block_bytes)
        if not signal.accept(device, sample, source_s, self._n[device] > 0, owner):
            return False
        if not self._room_is_kv(device):
            self._retire(device, source_s)
        self._rebase(device)
        return True

    def observe_members(
        self,
        device: int,
        free_bytes: Sequence[float],
        block_bytes: Sequence[float],
        source_s: float,
    ) -> bool:
        """Take the memory of each GPU of a replica, which can use that of the least on all."""
        gpus = len(block_bytes)
        return self.observe_memory(
            device, gpus * min(free_bytes), gpus * min(block_bytes), source_s
        )

    def observe_ring(self, device: int, ring_s: float, source_s: float, owner: str = "") -> bool:
        """Take the small all-reduce latency of the replica's ring."""
        for follower in self.followers:
            follower.observe_ring(device, ring_s, source_s, owner)
        if not self.signals["ring"].accept(device, (ring_s,), source_s, False, owner):
            return False
        self._settle_link(device)
        return True

    def observe_pcie(self, device: int, ratio: float, source_s: float, owner: str = "") -> bool:
        """Take the use of the host link, 0 to 1."""
        for follower in self.followers:
            follower.observe_pcie(device, ratio, source_s, owner)
        loaded = self._n[device] > 0
        if not self.signals["pcie"].accept(device, (ratio,), source_s, loaded, owner):
            return False
        self._settle_link(device)
        return True

    def observe_queue(
        self, device: int, waiting: float, running: float, source_s: float, owner: str = ""
    ) -> bool:
        """Take the engine's own counts of waiting and running requests."""
        for follower in self.followers:
            follower.observe_queue(device, waiting, running, source_s, owner)
        loaded = self._n[device] > 0
        return self.signals["queue"].accept(device, (waiting, running), source_s, loaded, owner)

    def observe_kv(
        self, device: int, usage_ratio: float, free_blocks: float, source_s: float, owner: str = ""
    ) -> bool:
        """Take KV use (0 to 1) and the number of free KV blocks."""
        for follower in self.followers:
            follower.observe_kv(device, usage_ratio, free_blocks, source_s, owner)
        sample = (usage_ratio, free_blocks)
        if not self.signals["kv"].accept(device, sample, source_s, self._n[device] > 0, owner):
            return False
        if self._paged[device]:
            self._retire(device, source_s)
            self._rebase(device)
        return True

    def observe_kv_of(self, samples: list[Pair]) -> None:
        """Take (device, KV use, free KV blocks, source time) of a few devices: observe_kv each."""
        for follower in self.followers:
            follower.observe_kv_of(samples)
        self._rebase_kv(self._kv.accept_few(samples, self._n))

    def observe_many(
        self, signal: str, devices: Ints, samples: Sequence[ArrayLike], source_s: ArrayLike
    ) -> int:
        """Take one sample of *signal* for each of *devices* at once; return how many were accepted.

        *samples* are the columns in the order of the single ``observe_*``; *source_s* is one time
        or one a device.
        """
        for follower in self.followers:
            follower.observe_many(signal, devices, samples, source_s)
        if signal == "memory":
            samples = _consistent(samples)
        taken = self.signals[signal].accept_many(
            devices, samples, source_s, self.n[devices] > 0, ""
        )
        if not len(taken):
            return 0
        if signal in ("memory", "kv"):
            self._settle_memory(signal, taken)
        elif signal in ("ring", "pcie"):
            self._settle_links(taken)
        return len(taken)

    def set_health(self, device: int, up: bool, source_s: float) -> bool:
        """Take the health of a device; one that is down is placed nothing."""
        for follower in self.followers:
            follower.set_health(device, up, source_s)
        if not source_s > self._health_s[device] or not self._present[device]:
            return False
        self._health_s[device] = source_s
        if bool(self.up[device]) != up:
            self.up[device] = up
            self._changed(device)
        return True

    # -- membership -----------------------------------------------------------------------------

    def add_device(self, info: DeviceInfo, source_s: float | None = None) -> int:
        """Add a device, or bring a removed one of that name back under a new generation.

        Samples taken up to *source_s* belong to its former life. Returns its index.
        """
        for follower in self.followers:
            follower.add_device(info, source_s)
        self._check([info])
        same = [i for i, d in enumerate(self.devices) if d.name == info.name]
        if same:
            device = same[0]
            self.devices[device] = info
            self._present[device] = True
        else:
            device = self.count
            self.devices.append(info)
            self._present.append(True)
            self._health_s.append(-math.inf)
            self._allocate(self.count + 1)
        self._forget(device)
        for signal in self.signals.values():
            signal.forget(device, source_s)
        self._describe(device)
        self._changed(device)
        return device

    def remove_device(self, device: int) -> None:
        """Take a device out; what is in flight there no longer counts anywhere."""
        for follower in self.followers:
            follower.remove_device(device)
        self._present[device] = False
        self.up[device] = False
        self._forget(device)
        self._changed(device)

    def set_weight(self, device: int, weight: float) -> None:
        """Change a static weight at run time, in every fork too; 0 drains the device."""
        for follower in self.followers:
            follower.set_weight(device, weight)
        super().set_weight(device, weight)

    def fork(self) -> "TopologyGraph":
        """Return a graph that knows and gets the same samples but keeps books of its own.

        For several dispatchers that do not share their reservations (per-dispatcher credit).
        Samples, health, weights and membership come from this graph; ejections stay each one's own.
        """
        rules = {n: s.staleness for n, s in self.signals.items() if s.staleness is not None}
        other = TopologyGraph(self.devices, reservations=self.reservations, staleness=rules)
        for name, signal in self.signals.items():
            other.signals[name].copy_from(signal)
        other._health_s = list(self._health_s)
        other._present = list(self._present)
        for mine, theirs in ((self.up, other.up), (self.weight, other.weight)):
            np.copyto(theirs, mine)
        np.copyto(other.generation, self.generation)
        np.logical_and(self.up, self.weight > 0, out=other.usable)
        other.all_usable = bool(other.usable.all())
        np.copyto(other.link, self.link)
        other._rebase_many(np.arange(self.count))
        other.source = self.source
        self.followers.append(other)
        return other


def _consistent(samples: Sequence[ArrayLike]) -> tuple[Floats, Floats]:
    free, block = (np.asarray(s, dtype=np.float64) for s in samples)
    return free, np.where(block > free, math.nan, block)
