"""The device series: busy time, queue and memory of one replica per window, integrated exactly."""

from collections.abc import Callable
from typing import Any

from sim.clock import S

Memory = Callable[[], tuple[float, float, float]]


class Series:
    """Integrals of one replica over windows of equal length.

    Between two notes ``busy``, ``running`` and ``waiting`` are constant and ``kv`` (bytes in use)
    is a straight line: so the means are those of the model, whatever the window. Free bytes,
    largest block and fragmentation are those at the end of the window: of the arena that KV comes
    from, or under paged KV of the segments beside the pool.
    """

    __slots__ = (
        "_busy", "_kv", "_memory", "_row", "_running", "_start", "_waiting", "_window", "at",
        "busy", "busy_ns", "device", "end", "kv", "running", "waiting", "waiting_at",
    )  # fmt: skip

    def __init__(self, device: int, window_ns: int, row: Callable[..., None], memory: Memory):
        self.device = device
        self._window = window_ns
        self._row = row
        self._memory = memory
        self._start = 0
        self.end = window_ns  # of the window under way
        self.at = self.waiting_at = 0
        self.busy = self.running = self.waiting = 0
        self.kv = 0.0
        self._busy = self._running = self._waiting = 0
        self._kv = 0.0
        self.busy_ns = 0

    def wait(self, now: int, waiting: int) -> None:
        """Note that *waiting* requests wait from *now* on, in the window under way."""
        self._waiting += (now - self.waiting_at) * self.waiting
        self.waiting_at = now
        self.waiting = waiting

    def note(self, now: int, kv: float) -> None:
        """Account for the time up to *now*, at which *kv* bytes are still in use."""
        if now >= self.end:
            self._cross(now, kv)
        span = now - self.at
        if span:
            if self.busy:
                self._busy += span
            self._running += span * self.running
            self._kv += span * (self.kv + kv) * 0.5
            self.at = now
        self.kv = kv

    def _cross(self, now: int, kv: float) -> None:
        """Close every window that ends by *now*."""
        used, window, row, device = self.kv, self._window, self._row, self.device
        slope = (kv - used) / (now - self.at) if now > self.at else 0.0
        free, largest, fragmentation = self._memory()
        busy, running, waiting = self.busy, self.running, self.waiting
        start, end = self._start, self.end
        # The window under way has a part behind it; those after it are whole.
        span = end - self.at
        busy_ns, running_ns = self._busy + span * busy, self._running + span * running
        waiting_ns = self._waiting + (end - self.waiting_at) * waiting
        kv_ns = self._kv
        while True:
            then = used + slope * span
            kv_ns += span * (used + then) * 0.5
            if slope:
                used = then
            self.busy_ns += busy_ns
            row(
                device, start / S, window / S, busy_ns / window, running_ns / window,
                waiting_ns / window, kv_ns / window, free, largest, fragmentation,
            )  # fmt: skip
            start = end
            end += window
            if end > now:
                break
            span, kv_ns = window, 0.0
            busy_ns, running_ns, waiting_ns = window * busy, window * running, window * waiting
        self._start, self.end = start, end
        self.at = self.waiting_at = start
        self.kv = used
        self._busy = self._running = self._waiting = 0
        self._kv = 0.0

    def finish(self, now: int, kv: float) -> None:
        """Close the last window, short as it may be."""
        self.note(now, kv)
        self._waiting += (now - self.waiting_at) * self.waiting
        self.waiting_at = now
        span = now - self._start
        if span > 0:
            self.busy_ns += self._busy
            self._row(
                self.device, self._start / S, span / S, self._busy / span, self._running / span,
                self._waiting / span, self._kv / span, *self._memory(),
            )  # fmt: skip


def no_row(*_: Any) -> None:
    """Take a row of the device series and drop it."""
