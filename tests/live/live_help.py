"""A direct door on its own thread, for tests that talk to it over real HTTP."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from dispatch.journal import Journal
from live.config import LiveConfig
from live.legacy.serve import legacy_door
from live.serve import Running, direct_door

http = httpx.Client(timeout=120)  # one for all: each new one reads the system's certificates


def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Wait for *condition*; the limit only ends a test that would hang."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, what
        time.sleep(0.005)


class DoorThread:
    """Runs one door; ``call`` runs a function on its loop."""

    def __init__(self, config: LiveConfig, **options: Any) -> None:
        self.journal = Journal(arm="live")
        self._ready = threading.Event()
        self._stop: asyncio.Event
        self._options = options
        self._config = config
        self.error: BaseException | None = None
        self.running: Running
        self._thread = threading.Thread(target=self._main, daemon=True)

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self.error = error
            self._ready.set()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        async with direct_door(self._config, journal=self.journal, **self._options) as running:
            self.running = running
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> "DoorThread":
        self._thread.start()
        assert self._ready.wait(30)
        if self.error:
            raise self.error
        return self

    def __exit__(self, *error: Any) -> None:
        self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self.error:
            raise self.error

    @property
    def url(self) -> str:
        return self.running.url

    def call(self, function: Any) -> Any:
        async def run() -> Any:
            return function()

        return self.wait(run())

    def wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)


@contextmanager
def door(**sections: Any) -> Iterator[DoorThread]:
    with DoorThread(LiveConfig.model_validate(sections)) as thread:
        yield thread


class LegacyThread(DoorThread):
    """A legacy door with its worker processes."""

    def __init__(self, **sections: Any) -> None:
        super().__init__(LiveConfig.model_validate(sections))
        self.running: Any

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        async with legacy_door(self._config, journal=self.journal) as running:
            self.running = running
            self._ready.set()
            await self._stop.wait()
