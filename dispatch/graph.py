"""The memory topology graph: what telemetry says of every device, and what was placed since.

Samples are ordered by their source time; what was dispatched since a sample is taken off on top,
so that many decisions within one sampling interval do not herd. Unknown never beats known.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from dispatch.books import UNKNOWN, Books
from dispatch.errors import InputError, Problem
from dispatch.fleet import Cells, DeviceInfo, Floats, Ints, cells
from dispatch.signals import SIGNALS, Signal, Staleness, Status

__all__ = ["SIGNALS", "DeviceInfo", "Staleness", "TelemetrySource", "TopologyGraph"]

UNKNOWN_LINK = math.inf
_RING_STEPS_PER_S = 1e9  # ring latencies compare to the nanosecond,
_PCIE_STEPS = float(1 << 20)  # PCIe use to a millionth: both fit one exact float


class TelemetrySource(Protocol):
    """Brings a graph up to date on demand; the simulator evaluates its telemetry this way."""

    def refresh(self, now_s: float, signals: frozenset[str]) -> None:
        """Deliver what has arrived by *now_s* of the named *signals*."""


class TopologyGraph(Books):
    """Per device: free bytes, largest block, ring latency, PCIe use, queue, KV and health.

    ``reservations`` off leaves the samples as they are, so that placements herd between two of
    them. Under paged KV the room of a device is its free KV blocks, once told; else its largest
    block. ``link`` orders devices by ring latency, then PCIe use; one GPU has no ring.
    """

    free: Floats
    block: Floats
    ring: Floats
    pcie: Floats
    waiting: Floats
    running: Floats
    kv_usage: Floats
    kv_free_blocks: Floats
    link: Floats
    source: TelemetrySource | None

    def __init__(
        self,
        devices: Sequence[DeviceInfo],
        *,
        reservations: bool = True,
        staleness: Mapping[str, Staleness] | None = None,
    ) -> None:
        inf = math.inf
        self.signals: dict[str, Signal] = {
            "memory": Signal("memory", (0.0, 0.0)),
            "ring": Signal("ring", (inf,), follows_load=False),
            "pcie": Signal("pcie", (inf,)),
            "queue": Signal("queue", (inf, inf), distrust=True),
            "kv": Signal("kv", (1.0, 0.0), distrust=True),
        }
        self.source = None
        self.followers: list[TopologyGraph] = []
        self._health_s = [-inf] * len(devices)
        super().__init__(devices, reservations=reservations)
        self.watch(staleness or {})

    def watch(self, staleness: Mapping[str, Staleness]) -> None:
        """Set what becomes of stale signals; raise InputError where that cannot work."""
        problems: list[Problem] = []
        for name, rule in staleness.items():
            try:
                if name not in self.signals:
                    raise InputError.at("staleness", f"unknown signal {name!r}", _known())
                rule.check(name)
                self.signals[name].staleness = rule
                self.signals[name].next_stale_s = -math.inf
            except InputError as error:
                problems += error.problems
        if problems:
            raise InputError(problems)
        self.watches = any(s.staleness for s in self.signals.values())

    def _allocate(self, count: int) -> None:
        super()._allocate(count)
        for signal in self.signals.values():
            signal.grow(count)
        self.free, self.block = self.signals["memory"].values
        (self.ring,) = self.signals["ring"].values
        (self.pcie,) = self.signals["pcie"].values
        self.waiting, self.running = self.signals["queue"].values
        self.kv_usage, self.kv_free_blocks = self.signals["kv"].values
        self.link = self._column("link", np.float64, UNKNOWN_LINK)
        self._link: Cells = cells(self.link)
        self._health_s += [-math.inf] * (count - len(self._health_s))
        self.paged = self._column("paged", np.bool_, False)
        self.ringless = self._column("ringless", np.bool_, False)
        self.bytes_per_block = self._column("bytes_per_block", np.float64, 0.0)
        self.workspace = self._column("workspace", np.float64, 0.0)

    def _describe(self, device: int) -> None:
        info = self.devices[device]
        self.paged[device] = not info.reserve_output
        self.ringless[device] = info.gpus == 1
        self.bytes_per_block[device] = info.block_tokens * info.kv_bytes_per_token
        self.workspace[device] = info.workspace_bytes
        self._settle_link(device)
        super()._describe(device)

    # -- samples -----------------------------------------------------------------------------

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
        if self.paged[device]:
            self._retire(device, source_s)
            self._rebase(device)
        return True

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

    def _settle_memory(self, signal: str, taken: Ints) -> None:
        kv_rules = self.paged[taken] & ~np.isnan(self.kv_free_blocks[taken])
        rules = kv_rules if signal == "kv" else ~kv_rules
        source = self.signals[signal].source
        if self._waiting_sample:
            hit = taken[rules]
            if len(self._waiting_sample) < len(hit):
                chosen = np.zeros(self.count, dtype=bool)
                chosen[hit] = True
                for device in sorted(self._waiting_sample):
                    if chosen[device]:
                        self._retire(device, source[device])
            else:
                for device in hit.tolist():
                    self._retire(device, source[device])
        self._rebase_many(taken)

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

    # -- what follows from samples --------------------------------------------------------------

    def _room_is_kv(self, device: int) -> bool:
        free_blocks = self.signals["kv"].cells[1][device]
        return bool(self.paged[device]) and free_blocks == free_blocks  # not NaN

    def _rebase(self, device: int) -> None:
        block = self.signals["memory"].cells[1][device]
        base = block
        if self._room_is_kv(device):
            base = self.kv_free_blocks[device] * self.bytes_per_block[device]
            if block < self.workspace[device]:
                base = 0.0
        self._base[device] = base if base == base else UNKNOWN
        self._settle(device)

    def _rebase_many(self, devices: Ints) -> None:
        block = self.block[devices]
        kv = self.kv_free_blocks[devices] * self.bytes_per_block[devices]
        kv[block < self.workspace[devices]] = 0.0
        base = np.where(self.paged[devices] & ~np.isnan(kv), kv, block)
        base[np.isnan(base)] = UNKNOWN
        self.base[devices] = base
        self._settle_many(devices)

    def _settle_link(self, device: int) -> None:
        self._settle_links(np.array([device]))

    def _settle_links(self, devices: Ints) -> None:
        """Work out the order of links: an unknown ring or PCIe comes after every known one."""
        ring = np.where(self.ringless[devices], 0.0, self.ring[devices])
        known = np.minimum(np.rint(ring * _RING_STEPS_PER_S), 2.0**32 - 2)
        ring = np.where(np.isnan(ring), 2.0**32 - 1, known)
        pcie = np.minimum(np.rint(self.pcie[devices] * (_PCIE_STEPS - 2)), _PCIE_STEPS - 2)
        self.link[devices] = ring * _PCIE_STEPS + np.where(np.isnan(pcie), _PCIE_STEPS - 1, pcie)

    def age(self, now_s: float) -> None:
        """Apply the staleness rules as of *now_s*."""
        for name, signal in self.signals.items():
            if signal.staleness is None or now_s < signal.next_stale_s:
                continue
            stale = signal.expire(now_s)
            if not len(stale):
                continue
            if name in ("memory", "kv"):
                self._rebase_many(stale)
            elif name in ("ring", "pcie"):
                self._settle_links(stale)

    def status(self, device: int, signal: str) -> Status:
        """Say whether one signal of *device* can be believed."""
        return self.signals[signal].status(device)

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

    def fork(self) -> "TopologyGraph":
        """Return a graph that gets the same samples but keeps books of its own.

        For several dispatchers that do not share their reservations (per-dispatcher credit).
        """
        rules = {n: s.staleness for n, s in self.signals.items() if s.staleness is not None}
        other = TopologyGraph(self.devices, reservations=self.reservations, staleness=rules)
        self.followers.append(other)
        return other


def _consistent(samples: Sequence[ArrayLike]) -> tuple[Floats, Floats]:
    free, block = (np.asarray(s, dtype=np.float64) for s in samples)
    return free, np.where(block > free, math.nan, block)


def _known() -> str:
    return f"known: {', '.join(SIGNALS)}"
