"""Run a direct door: devices, sampler, journal and the HTTP server of one process."""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import uvicorn

from dispatch.journal import Journal
from live.config import LiveConfig
from live.door.app import build_app
from live.door.metrics import Gauge
from live.snapshot import Snapshot

if TYPE_CHECKING:  # they load torch, which a door over other backends does without
    from live.placer import Placer
    from live.sampler import Sampler

_SWITCH_INTERVAL_S = 5e-4  # the worker threads hold the lock for long stretches otherwise


@dataclass(slots=True)
class Running:
    """A door that listens."""

    url: str
    app: Any
    placer: "Placer"
    sampler: "Sampler"
    server: uvicorn.Server


@contextlib.asynccontextmanager
async def direct_door(
    config: LiveConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    api_key: str = "",
    journal: Journal | None = None,
) -> AsyncIterator[Running]:
    """Serve until the block is left, then drain for ``limits.drain_s`` and stop."""
    from live.placer import Placer
    from live.sampler import Sampler

    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    placer = Placer(config, journal)
    sampler = Sampler(placer, config, journal)
    app = build_app(placer, config.limits, gauges=_gauges(placer, sampler), api_key=api_key)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(placer.stop)
        await stack.enter_async_context(sampler)
        server, url = await stack.enter_async_context(listen(app, host, port, config))
        yield Running(url, app, placer, sampler, server)
        app.state.door.draining = True
        await placer.drain(config.limits.drain_s)


@contextlib.asynccontextmanager
async def listen(
    app: Any, host: str, port: int, config: LiveConfig
) -> AsyncIterator[tuple[uvicorn.Server, str]]:
    """Run uvicorn for *app* on the present loop; yields the server and its URL."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named: else 40 ms an answer.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Accepted sockets inherit it: else the system buffers megabytes for each slow reader.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.limits.send_buffer_bytes)
    sock.bind((host, port))
    settings = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        backlog=2048,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, int(config.limits.drain_s)),
        h11_max_incomplete_event_size=config.limits.max_header_bytes,
    )
    server = _Server(settings)
    task = asyncio.ensure_future(server.serve(sockets=[sock]))
    while not server.started and not task.done():
        await asyncio.sleep(0.005)
    try:
        shown = f"[{host}]" if ":" in host else host
        yield server, f"http://{shown}:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        sock.close()


class _Server(uvicorn.Server):
    """Leaves signals to whoever started it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


async def until_signal() -> None:
    """Wait for SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


Views = Callable[[], Iterable[tuple[str, Snapshot]]]


def device_gauges(views: Views) -> dict[str, tuple[str, Gauge]]:
    """Return the gauges that every door has of the devices that *views* yields by name."""

    def each(read: Callable[[Snapshot], float]) -> Gauge:
        return lambda: [(name, read(seen)) for name, seen in views()]

    return {
        "num_requests_running": ("Requests in the batch.", each(lambda s: s.running)),
        "num_requests_waiting": ("Requests that wait.", each(lambda s: s.waiting)),
        "kv_cache_usage_perc": ("KV memory in use, 0 to 1.", each(lambda s: s.kv_usage_ratio)),
        "gpu_memory_fragmentation_ratio": (
            "1 - largest free block / free bytes.",
            each(lambda s: s.fragmentation),
        ),
        "device_up": ("1 where the device takes requests.", each(lambda s: float(s.up))),
    }


def _gauges(placer: "Placer", sampler: "Sampler") -> dict[str, tuple[str, Gauge]]:
    return {
        **device_gauges(lambda: [(d.setup.name, d.snapshot()) for d in placer.devices]),
        "ring_latency_seconds": (
            "Small all-reduce of each ring (label device: the ring's name).",
            lambda: list(sampler.ring_s.items()),
        ),
        "sampler_cpu_ratio": (
            "Share of a core that telemetry takes.",
            lambda: [("all", sampler.cpu_ratio)],
        ),
    }
