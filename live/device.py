"""A logical device: one engine, one worker thread, one stream; jobs in, events out."""

import math
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from dispatch.fleet import DeviceInfo
from live.config import LiveDevice, LiveEngine, LiveModel
from live.engine import Deliver, Engine
from live.kv import PagedKv
from live.model import Llama, load_model
from live.sequence import Job
from live.snapshot import Snapshot


class DeviceLost(RuntimeError):
    """The device is gone; everything on it has failed."""


class Device:
    """Owns an engine on its own thread; every public method may be called from any thread."""

    def __init__(
        self,
        setup: LiveDevice,
        engine: LiveEngine,
        model: LiveModel,
        deliver: Deliver,
        *,
        weights: Llama | None = None,
    ) -> None:
        self.setup = setup
        self._target = "cpu" if setup.kind == "cpu" else f"cuda:{setup.index}"
        self.model = weights or load_model(model.name, model.seed, self._target)
        self.engine = Engine(self.model, engine, int(setup.kv_mib * 2**20), deliver)
        self._served_as = model.served_as or self.model.shape.name
        self._inbox: list[Job] = []
        self._cancels: set[int] = set()
        self._wake = threading.Condition()
        self._stopping = False
        self._lost = ""
        self._frozen = False
        self._idle = False
        self._busy_s = 0.0
        self._snapshot = self._observe()
        self._thread = threading.Thread(target=self._work, name=setup.name, daemon=True)
        self._thread.start()

    def info(self) -> DeviceInfo:
        """Describe this device to the graph."""
        cache, limits = self.engine.cache, self.engine.limits
        return DeviceInfo(
            name=self.setup.name,
            pool=self.setup.kind,
            gpu=self.setup.gpu,
            model=self._served_as,
            weight=self.setup.weight,
            group=self.setup.group,
            total_bytes=float(cache.size_bytes),
            kv_bytes_per_token=float(self.model.shape.kv_bytes_per_token),
            reserve_output=cache.reserves_output,
            block_tokens=limits.block_tokens,
            capacity_tokens=float(cache.capacity_tokens),
        )

    @property
    def up(self) -> bool:
        """Whether the worker takes jobs."""
        return not self._lost and not self._stopping

    @property
    def deliver_to(self) -> Deliver:
        """Where events go."""
        return self.engine._deliver

    def submit(self, job: Job) -> None:
        """Hand *job* over; raises :class:`DeviceLost` where nobody will take it."""
        with self._wake:
            if not self.up:
                raise DeviceLost(self._lost or "stopped")
            self._inbox.append(job)
            self._wake.notify()

    def cancel(self, id_: int) -> None:
        """Drop a job wherever it is; unknown ids are ignored."""
        with self._wake:
            self._cancels.add(id_)
            self._wake.notify()

    def seen(self) -> tuple[Snapshot, float]:
        """Return the latest view, and the time until which it is true.

        An engine that waits for work changes nothing, so that its last view is true until now.
        """
        now_s = time.monotonic()
        idle = self._idle  # read before the view: what made it idle was looked at before
        seen = self._snapshot
        if not idle or self._frozen or now_s <= seen.source_s:
            return seen, seen.source_s
        return seen, now_s

    def snapshot(self) -> Snapshot:
        """Return the latest view; its source time is the time until which it is true."""
        seen, true_s = self.seen()
        return seen if true_s == seen.source_s else replace(seen, source_s=true_s)

    def lose(self, why: str = "device lost") -> None:
        """Lose the device now (a drill, or a fault that telemetry saw)."""
        with self._wake:
            self._lost = self._lost or why
            self._wake.notify()

    def freeze_telemetry(self, frozen: bool) -> None:
        """Stop or resume new snapshots (a drill)."""
        with self._wake:
            if frozen:
                self._snapshot = self.snapshot()
            self._frozen = frozen
            self._wake.notify()

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the worker; what is still there fails."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # -- the worker thread -------------------------------------------------------------------

    def _work(self) -> None:
        stream: Any = nullcontext()
        if self.setup.kind == "cuda":
            torch.cuda.set_device(self.setup.index)
            stream = torch.cuda.stream(torch.cuda.Stream(self.setup.index))
        with stream:
            while self._turn():
                pass
        self.engine.fail_all(self._lost or "the device was stopped")
        self._snapshot = self._observe()

    def _turn(self) -> bool:
        """Take what came in, run one step; False when the worker ends."""
        with self._wake:
            while not (self._inbox or self._cancels or self.engine.busy or not self.up):
                self._idle = True
                self._wake.wait()
                self._idle = False
                self._look()
            jobs, self._inbox = self._inbox, []
            cancels, self._cancels = self._cancels, set()
            alive = self.up
        for job in jobs:
            self.engine.submit(job)
        if not alive:
            return False
        if cancels:
            self.engine.cancel(cancels)
        if self.engine.busy:
            begun = time.monotonic()
            try:
                self.engine.step()
            except Exception as error:  # a pass died of something else than memory
                self._lost = f"{type(error).__name__}: {error}"
                return False
            self._busy_s += time.monotonic() - begun
        self._look()
        return True

    def _look(self) -> None:
        if not self._frozen:
            self._snapshot = self._observe()

    def _observe(self) -> Snapshot:
        engine = self.engine
        cache = engine.cache
        arena = cache.arena
        free, block = float(arena.free_bytes), float(arena.largest_block_bytes)
        used = cache.size_bytes - free
        if engine.segments is not None:  # pages are a signal of their own
            seen = engine.segments.view()
            free, block = seen.free_bytes, seen.block_bytes
        return Snapshot(
            source_s=time.monotonic(),
            free_bytes=free,
            used_bytes=used,
            block_bytes=block,
            fragmentation=float(engine.fragmentation),
            waiting=len(engine.waiting),
            running=len(engine.running),
            kv_usage_ratio=used / cache.size_bytes,
            free_blocks=float(cache.free_blocks) if isinstance(cache, PagedKv) else math.nan,
            busy_s=self._busy_s,
            up=self.up,
        )


def build_devices(
    devices: tuple[LiveDevice, ...],
    engine: LiveEngine,
    model: LiveModel,
    deliver: Callable[[int], Deliver],
) -> list[Device]:
    """Build every device; those on one target share one copy of the weights."""
    shared: dict[str, Llama] = {}
    built = []
    for at, setup in enumerate(devices):
        target = "cpu" if setup.kind == "cpu" else f"cuda:{setup.index}"
        device = Device(setup, engine, model, deliver(at), weights=shared.get(target))
        shared[target] = device.model
        built.append(device)
    return built
