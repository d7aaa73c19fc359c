"""What the samples of a graph come to: room and link order of every device."""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from dispatch.books import UNKNOWN, Books
from dispatch.device import DeviceInfo
from dispatch.errors import InputError, Problem
from dispatch.fleet import Cells, Floats, Ints, cells
from dispatch.signals import SIGNALS, Pair, Signal, Staleness, Status

UNKNOWN_LINK: Final = math.inf
RING_STEPS_PER_S: Final = 1e9  # ring latencies compare to the nanosecond, up to 4.29 s,
PCIE_STEPS: Final = float(1 << 20)  # PCIe use to a millionth: both fit one exact float
RING_STEPS: Final = 2.0**32


def link_order(ring_s: float, pcie_ratio: float) -> float:
    """Return one number that orders links by ring latency, then PCIe use; NaN comes last."""
    ring = RING_STEPS - 1
    if ring_s == ring_s:  # not NaN
        ring = min(float(round(min(ring_s, 5.0) * RING_STEPS_PER_S)), RING_STEPS - 2)
    pcie = PCIE_STEPS - 1
    if pcie_ratio == pcie_ratio:
        pcie = float(round(min(pcie_ratio, 1.0) * (PCIE_STEPS - 2)))
    return ring * PCIE_STEPS + pcie


class Observed(Books):
    """The signals of every device as columns, and what follows from them."""

    free: Floats
    block: Floats
    ring: Floats
    pcie: Floats
    waiting: Floats
    running: Floats
    kv_usage: Floats
    kv_free_blocks: Floats
    link: Floats

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
        self._memory, self._kv = self.signals["memory"], self.signals["kv"]
        # Lists beside the columns of what is looked up one by one: they cost half as much.
        self._paged: list[bool] = []
        self._block_sizes: list[float] = []
        self._works: list[float] = []
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
        self.paged = self._column("paged", np.bool_, False)
        self.ringless = self._column("ringless", np.bool_, False)
        self.bytes_per_block = self._column("bytes_per_block", np.float64, 0.0)
        for mirror in (self._block_sizes, self._works):
            mirror += [0.0] * (count - len(mirror))
        self._paged += [False] * (count - len(self._paged))

    def _describe(self, device: int) -> None:
        info = self.devices[device]
        self.paged[device] = self._paged[device] = not info.reserve_output
        self.ringless[device] = info.gpus == 1
        size = info.block_tokens * info.kv_bytes_per_token
        self.bytes_per_block[device] = self._block_sizes[device] = size
        self._works[device] = info.workspace_bytes
        self._settle_link(device)
        super()._describe(device)

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

    def _room_is_kv(self, device: int) -> bool:
        free_blocks = self.signals["kv"].cells[1][device]
        return self._paged[device] and free_blocks == free_blocks  # not NaN

    def _rebase(self, device: int) -> None:
        base = block = self._memory.cells[1][device]
        if self._paged[device]:
            free_blocks = self._kv.cells[1][device]
            if free_blocks == free_blocks:  # not NaN: the room is told by KV blocks
                base = free_blocks * self._block_sizes[device]
                if block < self._works[device]:
                    base = 0.0
        self._base[device] = base if base == base else UNKNOWN
        self._settle(device)

    def _rebase_kv(self, samples: list[Pair]) -> None:
        """Work out the room of a few devices from KV samples just taken, as :meth:`_rebase` does.

        Written out: a policy that reads KV at every request has this done for every device.
        """
        paged, confirmed, free_blocks = self._paged, self._confirmed, self._kv.cells[1]
        sizes, works, blocks = self._block_sizes, self._works, self._memory.cells[1]
        base, reserved, room, usable = self._base, self._reserved, self._room, self._usable
        whole = self.all_usable
        for device, _, free, source_s in samples:
            if not paged[device]:
                continue
            if confirmed[device]:
                self._retire(device, source_s)
            free = free_blocks[device]  # unknown while the signal is not believed
            if free != free or not (whole or usable[device]):
                self._rebase(device)
                continue
            free *= sizes[device]
            if works[device] and blocks[device] < works[device]:
                free = 0.0
            base[device] = free
            free -= reserved[device]
            room[device] = free if free > 0.0 else 0.0

    def _rebase_many(self, devices: Ints) -> None:
        block = self.block[devices]
        kv = self.kv_free_blocks[devices] * self.bytes_per_block[devices]
        kv[block < self.workspace[devices]] = 0.0
        base = np.where(self.paged[devices] & ~np.isnan(kv), kv, block)
        base[np.isnan(base)] = UNKNOWN
        self.base[devices] = base
        self._settle_many(devices)

    def _settle_link(self, device: int) -> None:
        ring, pcie = self.signals["ring"].cells[0][device], self.signals["pcie"].cells[0][device]
        self._link[device] = link_order(0.0 if self.ringless[device] else ring, pcie)

    def _settle_links(self, devices: Ints) -> None:
        """Work out the order of links: an unknown ring or PCIe comes after every known one."""
        ring = np.where(self.ringless[devices], 0.0, self.ring[devices])
        ring = np.minimum(np.rint(ring * RING_STEPS_PER_S), RING_STEPS - 2)
        ring[np.isnan(ring)] = RING_STEPS - 1
        pcie = np.minimum(np.rint(self.pcie[devices] * (PCIE_STEPS - 2)), PCIE_STEPS - 2)
        pcie[np.isnan(pcie)] = PCIE_STEPS - 1
        self.link[devices] = ring * PCIE_STEPS + pcie

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


def _known() -> str:
    return f"known: {', '.join(SIGNALS)}"
