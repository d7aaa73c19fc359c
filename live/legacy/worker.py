"""A worker process of the legacy path: one device behind a gRPC server.

``python -m live.legacy.worker`` reads its configuration as JSON from stdin and prints its port.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from typing import Any

import grpc

from live.config import LiveConfig
from live.device import Device, DeviceLost
from live.flow import Flow
from live.legacy import worker_pb2 as wire
from live.legacy import worker_pb2_grpc as stubs
from live.legacy.envelope import job_of
from live.sequence import Event, Kind

_STATUS = {
    Kind.oom: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Kind.failed: grpc.StatusCode.UNAVAILABLE,
    Kind.cancelled: grpc.StatusCode.CANCELLED,
}


class WorkerService(stubs.WorkerServicer):
    """Serves one device on one event loop."""

    def __init__(self, config: LiveConfig, index: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._flows: dict[int, Flow] = {}
        self._calls = 0
        self._buffer = config.limits.stream_buffer
        setup = config.devices[index]
        self.device = Device(setup, config.engine, config.model, self._deliver)

    def _deliver(self, events: list[Event]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._on_events, events)

    def _on_events(self, events: list[Event]) -> None:
        for event in events:
            if (flow := self._flows.get(event.id)) is not None:
                flow.push(event)

    async def Generate(self, call: Any, context: Any) -> AsyncIterator[Any]:
        """Run one call; the stream ends with a finished piece or with a status."""
        try:
            job = job_of(call.json_rpc)
        except (ValueError, TypeError, KeyError) as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"bad JSON-RPC call: {error}")
            return
        self._calls += 1
        job.id = self._calls
        flow = self._flows[job.id] = Flow(job.id, self._buffer, self._drop)
        flow.handed_over_s = time.monotonic()
        try:
            try:
                self.device.submit(job)
            except DeviceLost as lost:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(lost))
                return
            while True:
                event = await flow.next()
                tokens = event.tokens
                if event.kind == Kind.started:
                    continue  # goes out with the first token: a message costs more than it says
                if event.kind == Kind.tokens and flow.ready:
                    event = await flow.next()
                    tokens += event.tokens
                if tokens or event.kind == Kind.finished:
                    yield piece_of(event, tokens, flow)
                if event.kind in _STATUS:
                    await context.abort(_STATUS[event.kind], event.reason)
                    return
                if event.is_end:
                    return
        finally:  # the caller left, its deadline passed, or all is done
            flow.close()
            self._flows.pop(job.id, None)

    def _drop(self, id_: int, satisfied: bool) -> None:
        self.device.cancel(id_)

    async def Describe(self, question: Any, context: Any) -> Any:
        """Say what this worker is and holds."""
        shape = self.device.model.shape
        return wire.About(
            device=json.dumps(asdict(self.device.info())),
            shape=json.dumps({"context": shape.context_tokens, "vocab": shape.vocab}),
            snapshot=json.dumps(asdict(self.device.snapshot())),
        )


def piece_of(event: Event, tokens: tuple[int, ...], flow: Flow) -> Any:
    """Return the wire form of an event that brings *tokens*."""
    return wire.Piece(
        kind=int(Kind.finished if event.kind == Kind.finished else Kind.tokens),
        time_s=event.time_s,
        tokens=tokens,
        reason=event.reason,
        fragmentation=event.fragmentation or 0.0,
        handed_over_s=flow.handed_over_s,
        preemptions=event.preemptions,
        started_s=flow.started_s,
    )


async def serve(config: LiveConfig, index: int) -> None:
    """Serve device *index* of *config* until stdin closes: then the router is gone."""
    import torch

    torch.set_num_threads(1)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    service = WorkerService(config, index)
    register: Any = stubs.add_WorkerServicer_to_server
    register(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(grace=0.2)
    service.device.stop()


def main() -> None:
    """Read ``{"config": ..., "index": ...}`` from the first line of stdin and serve."""
    given = json.loads(sys.stdin.readline())
    asyncio.run(serve(LiveConfig.model_validate(given["config"]), int(given["index"])))


if __name__ == "__main__":
    main()
