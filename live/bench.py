"""What the doors cost: ratios measured in one run on this machine, each beside its own floor.

The floors are built here: a bare starlette endpoint that parses JSON and answers JSON, and a bare
gRPC stream of one message. What has a bar is measured before a device that answers at once, in the
same process as its floors. Every figure is CPU-bound on loopback, medians over interleaved rounds.
"""

import asyncio
import contextlib
import json
import os
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import httpx
import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from dispatch.fleet import DeviceInfo
from live.config import LiveConfig
from live.door.app import build_app
from live.flow import Flow
from live.legacy import worker_pb2 as wire
from live.legacy import worker_pb2_grpc as stubs
from live.legacy.envelope import job_of
from live.legacy.router import LegacyBackend
from live.legacy.workers import Worker
from live.process import DoorProcess
from live.sequence import Event, Job, Kind
from live.serve import listen

_BODY = {"model": "tiny", "prompt": "hello", "max_tokens": 1}
_ROUNDS = 5


@contextlib.asynccontextmanager
async def bare_starlette() -> AsyncIterator[str]:
    """Serve an endpoint that reads JSON and answers it."""

    async def echo(request: Request) -> JSONResponse:
        return JSONResponse({"got": await request.json()})

    app = Starlette(routes=[Route("/v1/completions", echo, methods=["POST"])])
    async with listen(app, "127.0.0.1", 0, LiveConfig()) as (_, url):
        yield url


class _Echo(stubs.WorkerServicer):
    async def Generate(self, call: Any, context: Any) -> AsyncIterator[Any]:
        yield wire.Piece(kind=2, reason=call.json_rpc)


async def grpc_hop_s(calls: int) -> list[float]:
    """Return the times of *calls* one-message streams over loopback gRPC."""
    server = grpc.aio.server()
    register: Any = stubs.add_WorkerServicer_to_server
    register(_Echo(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    make: Any = stubs.WorkerStub
    times = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = make(channel)
        text = json.dumps(_BODY)
        for at in range(calls + 10):
            begun = time.perf_counter()
            async for _ in stub.Generate(wire.Call(json_rpc=text), timeout=10):
                pass
            if at >= 10:
                times.append(time.perf_counter() - begun)
    await server.stop(0)
    return times


async def request_s(
    url: str, calls: int, clients: int = 1, body: Mapping[str, Any] = _BODY
) -> tuple[list[float], list[float]]:
    """Return (whole times, handling times the server told, NaN where none) of *calls* requests."""
    whole: list[float] = []
    told: list[float] = []
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=clients)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=120) as http:

        async def one(count: int) -> None:
            for at in range(count):
                begun = time.perf_counter()
                answer = await http.post("/v1/completions", json=body)
                answer.raise_for_status()
                if at:  # the first opens the connection
                    whole.append(time.perf_counter() - begun)
                    handling = answer.headers.get("x-handling-time-ms", "nan")
                    told.append(float(handling) / 1e3)

        await asyncio.gather(*(one(1 + calls // clients) for _ in range(clients)))
    return whole, told


class InstantBackend:
    """A backend that answers at once: what is left of a round trip is the door's own."""

    model_name = "tiny"
    context_tokens = 4096
    vocab = 320
    in_flight = 0

    def __init__(self) -> None:
        self._count = 0

    def next_id(self, headers: Mapping[str, str]) -> int:
        """Return the next number."""
        self._count += 1
        return self._count

    def now_s(self) -> float:
        """Return the monotonic clock."""
        return time.monotonic()

    def health(self) -> list[tuple[str, bool]]:
        """Say that all is well."""
        return [("instant", True)]

    async def drain(self, timeout_s: float) -> bool:
        """Nothing is ever left."""
        return True

    def open(self, request: Any, job: Job, headers: Any, received_s: float) -> Flow:
        """Return a flow that has ended already."""
        flow = Flow(job.id, 1024, lambda id_, satisfied: None)
        flow.handed_over_s = now = time.monotonic()
        flow.push(Event(job.id, Kind.started, now))
        flow.push(Event(job.id, Kind.tokens, now, (65,), "", 0.0))
        flow.push(Event(job.id, Kind.finished, now, (), "length", 0.0))
        return flow


class _InstantWorker(stubs.WorkerServicer):
    """A worker whose device answers at once, with the one message that a real one sends."""

    async def Generate(self, call: Any, context: Any) -> AsyncIterator[Any]:
        job_of(call.json_rpc)
        now = time.monotonic()
        yield wire.Piece(
            kind=int(Kind.finished), time_s=now, tokens=(65,), reason="length", fragmentation=0.0,
            handed_over_s=now, started_s=now,
        )  # fmt: skip


@contextlib.asynccontextmanager
async def instant_legacy(context_tokens: int = 4096) -> AsyncIterator[str]:
    """Serve the whole legacy path, in one process, over a worker whose device answers at once."""
    server = grpc.aio.server()
    register: Any = stubs.add_WorkerServicer_to_server
    register(_InstantWorker(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    worker = Worker(cast(Any, SimpleNamespace(returncode=None)), port)
    worker.info = DeviceInfo("instant", "cpu", "", model="tiny", total_bytes=1e9)
    worker.context_tokens, worker.vocab = context_tokens, 320
    config = LiveConfig()
    backend = LegacyBackend(config, cast(Any, SimpleNamespace(items=[worker])))
    app = build_app(backend, config.limits)
    try:
        async with listen(app, "127.0.0.1", 0, config) as (_, url):
            yield url
        await backend.stop()
    finally:
        await worker.channel.close()
        await server.stop(0)


def measure(
    calls: int = 100,
    clients: tuple[int, ...] = (1, 8, 64),
    sizes: tuple[int, ...] = (5, 4000, 100_000),
) -> dict[str, Any]:
    """Measure both doors, the floors between them, and the ratios that have bars."""
    config = LiveConfig.model_validate({"devices": [{"name": "a"}, {"name": "b"}]})
    found: dict[str, Any] = {"handling": []}
    with DoorProcess(config, "direct") as direct, DoorProcess(config, "legacy") as legacy:
        for count in clients:
            row = _handling(direct.url, legacy.url, max(calls, count * 3), count)
            found["handling"].append(row)
        trips = asyncio.run(_trips(direct.url, legacy.url, calls))
    found["by_body"] = asyncio.run(by_body(calls, clients, sizes))
    found["round_trips"] = {n: statistics.median(t) * 1e3 for n, t in trips.items()}
    t = {name: np.array(medians) for name, medians in trips.items()}  # a median a round
    doors = t["instant_door_ms"] / t["starlette_ms"]
    legacies = t["instant_legacy_ms"] / (t["starlette_ms"] + t["grpc_stream_ms"])
    door, legacy_ratio = float(np.median(doors)), float(np.median(legacies))
    found["spread"] = {
        "door": [float(doors.min()), float(doors.max())],
        "legacy": [float(legacies.min()), float(legacies.max())],
    }
    found["load_per_core"] = os.getloadavg()[0] / (os.cpu_count() or 1)
    lone = next((r["direct_p50_ms"] for r in found["handling"] if r["clients"] == 1), None)
    found["ratios"] = {
        "door over a bare starlette echo": door,
        "legacy path over a bare starlette hop + a bare gRPC stream hop": legacy_ratio,
    }
    found["bars"] = {
        "door <= 1.3 x a bare starlette echo": door <= 1.3,
        "legacy path <= 1.5 x its bare hops": legacy_ratio <= 1.5,
    }
    if lone is not None:
        found["bars"]["direct handling p50 <= 0.5 ms at one client"] = lone <= 0.5
    return found


def _handling(direct: str, legacy: str, calls: int, clients: int) -> dict[str, Any]:
    """Interleave rounds against both doors; return handling times and their ratio's interval."""
    times: dict[str, list[float]] = {"direct": [], "legacy": []}
    ratios = []
    for _ in range(_ROUNDS):
        medians = {}
        for name, url in (("direct", direct), ("legacy", legacy)):
            _, told = asyncio.run(request_s(url, calls // _ROUNDS + clients, clients))
            times[name] += told
            medians[name] = statistics.median(told)
        ratios.append(medians["legacy"] / medians["direct"])
    row: dict[str, Any] = {"clients": clients}
    for name, values in times.items():
        row[f"{name}_p50_ms"] = float(np.quantile(values, 0.5)) * 1e3
        row[f"{name}_p99_ms"] = float(np.quantile(values, 0.99)) * 1e3
    row["legacy_over_direct"] = statistics.median(ratios)
    row["interval"] = [min(ratios), max(ratios)]
    return row


async def _trips(direct: str, legacy: str, calls: int) -> dict[str, list[float]]:
    """Return the median round trip of one client against each thing, round by round."""
    config = LiveConfig()
    times: dict[str, list[float]] = {}
    door = build_app(InstantBackend(), config.limits)
    async with (
        bare_starlette() as echo,
        listen(door, "127.0.0.1", 0, config) as (_, instant),
        instant_legacy() as instant_path,
    ):
        urls = {
            "starlette": echo, "instant_door": instant, "instant_legacy": instant_path,
            "direct": direct, "legacy": legacy,
        }  # fmt: skip
        for _ in range(_ROUNDS):
            for name, url in urls.items():
                whole, _ = await request_s(url, calls // _ROUNDS + 5)
                times.setdefault(f"{name}_ms", []).append(statistics.median(whole))
            hops = await grpc_hop_s(calls // _ROUNDS + 5)
            times.setdefault("grpc_stream_ms", []).append(statistics.median(hops))
    return times


async def by_body(
    calls: int, clients: tuple[int, ...], sizes: tuple[int, ...]
) -> list[dict[str, Any]]:
    """Return the median round trip of both paths by prompt bytes and concurrent clients.

    Before devices that answer at once: what grows with the body is reading, passing on, writing.
    The clients share the process with the doors and weigh most where they are many: compare sizes.
    """
    config = LiveConfig()
    instant = InstantBackend()
    instant.context_tokens = max(sizes) + 2
    rows = []
    door = build_app(instant, config.limits)
    async with (
        listen(door, "127.0.0.1", 0, config) as (_, direct),
        instant_legacy(instant.context_tokens) as legacy,
    ):
        for count in clients:
            for size in sizes:
                body = {**_BODY, "prompt": "x" * size}
                row: dict[str, Any] = {"clients": count, "prompt_bytes": size}
                for name, url in (("direct", direct), ("legacy", legacy)):
                    whole, _ = await request_s(url, max(20, calls // 5, 3 * count), count, body)
                    row[f"{name}_p50_ms"] = statistics.median(whole) * 1e3
                rows.append(row)
    return rows


async def hold_streams(url: str, streams: int, seconds: float) -> dict[str, Any]:
    """Keep *streams* streams open for *seconds*; count what broke."""
    body = {**_BODY, "max_tokens": 4000, "stream": True}
    limits = httpx.Limits(max_connections=None)
    counts = {"opened": 0, "errors": 0, "chunks": 0, "completed": 0}
    stop = time.monotonic() + seconds
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=None) as http:

        async def hold() -> None:
            while time.monotonic() < stop:
                try:
                    async with http.stream("POST", "/v1/completions", json=body) as answer:
                        answer.raise_for_status()
                        counts["opened"] += 1
                        async for line in answer.aiter_lines():
                            counts["chunks"] += bool(line)
                            counts["completed"] += line == "data: [DONE]"
                            if time.monotonic() >= stop:
                                return
                except httpx.HTTPError:
                    counts["errors"] += 1
                    await asyncio.sleep(0.1)

        await asyncio.gather(*(hold() for _ in range(streams)))
    return counts


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process (Linux: /proc/PID/statm, in pages)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
