"""Run a legacy door: workers as processes, the router in this one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Final

from dispatch.journal import Journal
from live.config import LiveConfig
from live.door.app import build_app
from live.door.metrics import Gauge
from live.legacy.router import LegacyBackend
from live.legacy.workers import Workers
from live.record import DeviceSeries
from live.serve import device_gauges, listen

_METRICS_S: Final = 1.0  # how old a worker's gauges may be


@dataclass(slots=True)
class RunningLegacy:
    """A legacy door that listens."""

    url: str
    app: Any
    backend: LegacyBackend
    workers: Workers


@contextlib.asynccontextmanager
async def legacy_door(
    config: LiveConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str = "",
    journal: Journal | None = None,
) -> AsyncIterator[RunningLegacy]:
    """Serve until the block is left, then drain for ``limits.drain_s`` and stop."""
    async with contextlib.AsyncExitStack() as stack:
        workers = await stack.enter_async_context(Workers(config))
        backend = LegacyBackend(config, workers, journal)
        stack.push_async_callback(backend.stop)
        app = build_app(backend, config.limits, gauges=_gauges(workers), api_key=api_key)
        await stack.enter_async_context(_observed(backend, config, journal))
        _, url = await stack.enter_async_context(listen(app, host, port, config))
        yield RunningLegacy(url, app, backend, workers)
        app.state.door.draining = True
        await backend.drain(config.limits.drain_s)


@contextlib.asynccontextmanager
async def _observed(
    backend: LegacyBackend, config: LiveConfig, journal: Journal | None
) -> AsyncIterator[None]:
    """Look at the workers while the block runs, for metrics and journal; the router stays blind."""
    interval_s = config.sample_interval_ms / 1e3 if journal is not None else _METRICS_S
    tasks = [asyncio.ensure_future(backend.watch(interval_s))]
    series = None
    if journal is not None:
        series = DeviceSeries(journal, backend.recorder.views, backend.origin_s)
        tasks.append(asyncio.ensure_future(_sampled(series, interval_s)))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if series is not None:
            series.close()


async def _sampled(series: DeviceSeries, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        series.sample()


def _gauges(workers: Workers) -> dict[str, tuple[str, Gauge]]:
    """Return the gauges of a legacy door: what its workers last said of themselves."""
    return device_gauges(
        lambda: [(w.info.name, replace(w.snapshot, up=w.up)) for w in workers.items]
    )
