"""The events of one request on their way to one reader: bounded, and ended exactly once."""

import asyncio
from collections import deque
from collections.abc import Callable

from live.sequence import Event, Kind

TOO_SLOW = "the reader is too slow"
TIMED_OUT = "timed out"


class Refused(Exception):
    """The backend takes the request nowhere; the door answers with this."""

    def __init__(self, status: int, message: str, code: str, retry: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.retry = retry


class Flow:
    """Events of request *id*; *limit* tokens may wait for the reader, one more drops it.

    Used from one event loop. ``drop(satisfied)`` tells the backend that no more is wanted:
    satisfied where the reader has what it came for (a stop string), else it left.
    """

    def __init__(self, id_: int, limit: int, drop: Callable[[int, bool], None]) -> None:
        self.id = id_
        self.handed_over_s = float("nan")
        self.started_s = float("nan")
        self._limit = limit
        self._drop = drop
        self._events: deque[Event] = deque()
        self._tokens = 0
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the last event is here, or the reader has left."""
        return self._ended

    def push(self, event: Event) -> None:
        """Append an event; nothing after the end."""
        if self._ended:
            return
        self._ended = event.is_end
        if event.kind == Kind.started:
            self.started_s = event.time_s
        self._tokens += len(event.tokens)
        if self._tokens > self._limit:
            self._drop(self.id, False)
            self._ended = True
            self._events.clear()
            event = Event(self.id, Kind.failed, event.time_s, (), TOO_SLOW)
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @property
    def ready(self) -> bool:
        """Whether the next event is here already."""
        return bool(self._events)

    async def next(self) -> Event:
        """Wait for the next event."""
        while not self._events:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._events.popleft()
        self._tokens -= len(event.tokens)
        return event

    def close(self, satisfied: bool = False) -> None:
        """Want no more; safe to call at any time, any number of times."""
        if not self._ended:
            self._ended = True
            self._drop(self.id, satisfied)

    @property
    def kernel_dispatch_ms(self) -> float | None:
        """Time from hand-over to the first kernel; None where it never began."""
        wait_s = self.started_s - self.handed_over_s
        return max(0.0, wait_s) * 1e3 if wait_s == wait_s else None
