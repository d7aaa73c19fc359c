"""The sampler: every interval it brings the graph up to date, and it knows what that costs."""

import asyncio
import contextlib
import time
from typing import Any

from dispatch.journal import Journal
from live.config import LiveConfig
from live.placer import Placer
from live.record import DeviceSeries
from live.telemetry.feed import GpuFeed, cuda_uuids
from live.telemetry.nvml import Nvml
from live.telemetry.ring import RingProbe, RingSample, rings
from live.telemetry.thread import SamplerThread


class Sampler:
    """Samples the devices of *placer* on its event loop; an async context manager.

    ``cpu_ratio`` is CPU time of the sampling itself (the ring probes' processes too) over wall time
    since it began.
    """

    def __init__(self, placer: Placer, config: LiveConfig, journal: Journal | None) -> None:
        self._placer = placer
        self._interval_s = config.sample_interval_ms / 1e3
        self._series = DeviceSeries(journal, placer.views, placer.origin_s) if journal else None
        self._task: asyncio.Task[None] | None = None
        self._rings: list[tuple[RingProbe, list[int]]] = []
        self._told: dict[str, RingSample] = {}
        self._gpus = contextlib.ExitStack()
        self._thread: SamplerThread | None = None
        self._feed: GpuFeed | None = None
        self._begun_s = time.monotonic()
        self._cpu_s = 0.0
        self.samples = 0
        self.late = 0

    @property
    def cpu_ratio(self) -> float:
        """Share of one core that sampling has taken so far."""
        cpu_s = self._cpu_s + sum(probe.cpu_s for probe, _ in self._rings)
        own = cpu_s / max(1e-9, time.monotonic() - self._begun_s)
        return own + self.nvml_cpu_ratio

    def _open_gpus(self) -> None:
        """Sample real GPUs on a thread, where the set-up names any."""
        if any(device.kind == "cuda" for device in self._placer.config.devices):
            self._open_nvml()

    def _open_nvml(self) -> None:
        nvml = self._gpus.enter_context(Nvml())
        self._feed = GpuFeed(nvml.names, cuda_uuids(self._placer.config.devices))
        self._thread = self._gpus.enter_context(SamplerThread(nvml.sample, self._interval_s))

    @property
    def nvml_cpu_ratio(self) -> float:
        """Share of one core that reading NVML has taken so far."""
        return self._thread.cpu_ratio if self._thread else 0.0

    @property
    def ring_s(self) -> dict[str, float]:
        """Latest latency of each ring that has been measured."""
        found = {probe.name: probe.latest for probe, _ in self._rings}
        return {name: sample.latency_s for name, sample in found.items() if sample}

    def _open_rings(self) -> None:
        config = self._placer.config
        for name, members in rings(config.devices).items():
            devices = [config.devices[at] for at in members]
            probe = RingProbe(name, devices, config.ring_probe_s)
            self._rings.append((self._gpus.enter_context(probe), members))

    async def __aenter__(self) -> "Sampler":
        self._open_gpus()
        self._open_rings()
        self._begun_s = time.monotonic()
        self.sample()
        self._task = asyncio.ensure_future(self._run())
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._gpus.close()
        if self._series is not None:
            self._series.close()

    def sample(self) -> None:
        """Take one sample of everything now."""
        begun = time.thread_time()
        placer = self._placer
        if self._feed is not None and self._thread is not None:
            latest, now_s = self._thread.latest, placer.now_s()
            self._feed.into(placer.graph, latest, placer.origin_s, now_s)
        for probe, members in self._rings:
            seen = probe.latest
            if seen is None or seen is self._told.get(probe.name):
                continue
            self._told[probe.name] = seen
            for at in members:
                source_s = seen.source_s - placer.origin_s
                placer.graph.observe_ring(at, seen.latency_s, source_s)
        placer.observe()
        if self._series is not None:
            self._series.sample()
        self.samples += 1
        self._cpu_s += time.thread_time() - begun

    async def _run(self) -> None:
        due = time.monotonic()
        if self._thread is not None:  # half-way between two readings: neither waits for the other
            due += (self._thread.begun_s - due) % self._interval_s - self._interval_s / 2
        while True:
            due += self._interval_s
            now = time.monotonic()
            if due < now:  # late: skip what was missed rather than sample in a burst
                self.late += 1
                due = now
            await asyncio.sleep(due - now)
            self.sample()
