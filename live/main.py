"""A door as a process of its own: ``python -m live.main``.

Reads one line of JSON from stdin (``config``, ``door``, ``host``, ``port``, ``cpus``, ``journal``,
``steps``, ``tape``), prints one (``url``, ``origin_s``, ``model``, ...), and serves until stdin
closes or SIGTERM comes; then it drains, and writes its journal into the folder ``journal``.
"""

import asyncio
import json
import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from dispatch.journal import Journal
from live import journals
from live.config import LiveConfig
from live.serve import direct_door, until_signal
from live.tape import Tape


def open_door(
    kind: str, config: LiveConfig, journal: Journal | None, **options: Any
) -> AbstractAsyncContextManager[Any]:
    """Return the context manager of a direct or legacy door."""
    if kind == "legacy":
        from live.legacy.serve import legacy_door

        return legacy_door(config, journal=journal, **options)
    import torch

    torch.set_num_threads(1)  # each device has a thread; more of torch's own wait for each other
    return direct_door(config, journal=journal, **options)


def backend_of(running: Any) -> Any:
    """Return what stands behind a running door of either kind."""
    return running.placer if hasattr(running, "placer") else running.backend


async def _serve(given: dict[str, Any]) -> None:
    config = LiveConfig.model_validate(given["config"])
    journal = Journal(arm=given.get("arm", "live")) if given.get("journal") else None
    options = {"host": given.get("host", "127.0.0.1"), "port": int(given.get("port", 0))}
    try:
        door = open_door(given.get("door", "direct"), config, journal, **options)
        async with door as running:
            backend = backend_of(running)
            told = {
                "url": running.url,
                "origin_s": backend.origin_s,
                "model": backend.model_name,
                "context_tokens": backend.context_tokens,
                "vocab": backend.vocab,
            }
            print(json.dumps(told), flush=True)
            if given.get("steps"):
                for device in backend.devices:
                    device.engine.log = []
            tape = Tape()
            if given.get("tape"):
                tape.attach(backend.dispatcher)
            await _until_told()
            if given.get("tape"):
                infos = backend.graph.devices
                tape.save(Path(given["tape"]), infos, config.policy.name, config.seed)
            if given.get("steps"):
                journals.save_steps([d.engine.log for d in backend.devices], given["steps"])
    finally:
        if journal is not None:
            journals.save(journal, Path(given["journal"]))


async def _until_told() -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(reader)
    await loop.connect_read_pipe(lambda: protocol, sys.stdin)
    waits = [asyncio.ensure_future(reader.read()), asyncio.ensure_future(until_signal())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()


def main() -> None:
    """Serve as told on stdin."""
    line = bytearray()  # unbuffered: the rest of stdin belongs to the loop
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit(2)
        line += byte
    given = json.loads(line)
    if given.get("cpus"):
        os.sched_setaffinity(0, set(given["cpus"]))
    asyncio.run(_serve(given))


if __name__ == "__main__":
    main()
