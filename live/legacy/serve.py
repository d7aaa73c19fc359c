"""Run a legacy door: workers as processes, the router in this one."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from dispatch.journal import Journal
from live.config import LiveConfig
from live.door.app import build_app
from live.legacy.router import LegacyBackend
from live.legacy.workers import Workers
from live.record import DeviceSeries
from live.serve import listen


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
        app = build_app(backend, config.limits, api_key=api_key)
        if journal is not None:
            await stack.enter_async_context(_observed(backend, config, journal))
        _, url = await stack.enter_async_context(listen(app, host, port, config))
        yield RunningLegacy(url, app, backend, workers)
        app.state.door.draining = True
        await backend.drain(config.limits.drain_s)


@contextlib.asynccontextmanager
async def _observed(
    backend: LegacyBackend, config: LiveConfig, journal: Journal
) -> AsyncIterator[None]:
    """Write the device series while the block runs; the router itself stays blind."""
    interval_s = config.sample_interval_ms / 1e3
    series = DeviceSeries(journal, backend.recorder.views, backend.origin_s)

    async def run() -> None:
        while True:
            await asyncio.sleep(interval_s)
            series.sample()

    tasks = [asyncio.ensure_future(backend.watch(interval_s)), asyncio.ensure_future(run())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        series.close()
