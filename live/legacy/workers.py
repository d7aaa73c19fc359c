"""The worker processes of a legacy router: start them, reach them, end them."""

import asyncio
import json
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from dispatch.errors import NotMeasurable
from dispatch.fleet import DeviceInfo
from live.config import LiveConfig
from live.legacy import worker_pb2 as wire
from live.legacy import worker_pb2_grpc as stubs
from live.snapshot import Snapshot

_START_S = 120.0


class Worker:
    """One worker process and the channel to it."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        make: Any = stubs.WorkerStub
        self.stub: Any = make(self.channel)
        self.info: DeviceInfo
        self.context_tokens = 0
        self.vocab = 0
        self.snapshot: Snapshot

    @property
    def up(self) -> bool:
        """Whether the process lives."""
        return self.process.returncode is None

    async def describe(self) -> None:
        """Ask the worker what it is and holds."""
        about = await self.stub.Describe(wire.Question(), timeout=10, wait_for_ready=True)
        self.info = DeviceInfo(**json.loads(about.device))
        shape = json.loads(about.shape)
        self.context_tokens, self.vocab = shape["context"], shape["vocab"]
        self.snapshot = Snapshot(**json.loads(about.snapshot))


class Workers:
    """All workers of one configuration; an async context manager."""

    def __init__(self, config: LiveConfig) -> None:
        self._config = config
        self.items: list[Worker] = []

    async def __aenter__(self) -> "Workers":
        try:
            starts = [self._start(at) for at in range(len(self._config.devices))]
            self.items = list(await asyncio.gather(*starts))
            await asyncio.gather(*(worker.describe() for worker in self.items))
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._end()

    async def _start(self, index: int) -> Worker:
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "live.legacy.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        setup = {"config": self._config.model_dump(mode="json"), "index": index}
        process.stdin.write(json.dumps(setup).encode() + b"\n")
        try:
            line = await asyncio.wait_for(process.stdout.readline(), _START_S)
        except TimeoutError:
            process.kill()
            raise NotMeasurable(f"worker {index} did not start within {_START_S:.0f} s") from None
        if not line.strip().isdigit():
            await process.wait()
            raise NotMeasurable(f"worker {index} ended with {process.returncode} before serving")
        return Worker(process, int(line))

    async def _end(self) -> None:
        for worker in self.items:
            await worker.channel.close()
            if worker.up and worker.process.stdin is not None:
                worker.process.stdin.close()
        for worker in self.items:
            try:
                await asyncio.wait_for(worker.process.wait(), 5)
            except TimeoutError:
                worker.process.kill()
                await worker.process.wait()
