"""The device series: busy time, queue and memory of one replica per window, integrated exactly."""

from collections.abc import Callable
from typing import Any

from sim.clock import S

Memory = Callable[[], tuple[float, float, float]]


class Series:
    """Integrals of one replica over windows of equal length.

    Between two notes ``busy``, ``running`` and ``waiting`` are constant and ``kv`` (bytes in use)
    is a straight line: so the means are those of the model, whatever the window. Free bytes,
    largest block and fragmentation are those at the end of the window.
    """

    __slots__ = (
        "_busy", "_end", "_kv", "_memory", "_row", "_running", "_start", "_waiting", "_window",
        "at", "busy", "busy_ns", "device", "kv", "running", "waiting", "waiting_at",
    )  # fmt: skip

    def __init__(self, device: int, window_ns: int, row: Callable[..., None], memory: Memory):
        self.device = device
        self._window = window_ns
        self._row = row
        self._memory = memory
        self._start = 0
        self._end = window_ns
        self.at = self.waiting_at = 0
        self.busy = self.running = self.waiting = 0
        self.kv = 0.0
        self._busy = self._running = self._waiting = 0
        self._kv = 0.0
        self.busy_ns = 0

    def wait(self, now: int, waiting: int, kv: Callable[[int], float]) -> None:
        """Note that *waiting* requests wait from *now* on."""
        if now >= self._end:
            self.note(now, kv(now))
        self._waiting += (now - self.waiting_at) * self.waiting
        self.waiting_at = now
        self.waiting = waiting

    def note(self, now: int, kv: float) -> None:
        """Account for the time up to *now*, at which *kv* bytes are still in use."""
        if now >= self._end:
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
        slope = (kv - self.kv) / (now - self.at) if now > self.at else 0.0
        free, largest, fragmentation = self._memory()
        used = self.kv
        while self._end <= now:
            end = self._end
            span = end - self.at
            then = self.kv + slope * span
            self._busy += span * self.busy
            self._running += span * self.running
            self._kv += span * (self.kv + then) * 0.5
            self._waiting += (end - self.waiting_at) * self.waiting
            self.at = self.waiting_at = end
            self.kv = then
            if slope:
                free, largest = free - (then - used), largest - (then - used)
                used = then
            self._close(self._window, free, largest, fragmentation)

    def _close(self, span: int, free: float, largest: float, fragmentation: float) -> None:
        self.busy_ns += self._busy
        self._row(
            self.device, self._start / S, span / S, self._busy / span, self._running / span,
            self._waiting / span, self._kv / span, free, largest, fragmentation,
        )  # fmt: skip
        self._start = self._end
        self._end += self._window
        self._busy = self._running = self._waiting = 0
        self._kv = 0.0

    def finish(self, now: int, kv: float) -> None:
        """Close the last window, short as it may be."""
        self.note(now, kv)
        self._waiting += (now - self.waiting_at) * self.waiting
        self.waiting_at = now
        if now > self._start:
            self._close(now - self._start, *self._memory())


def no_row(*_: Any) -> None:
    """Take a row of the device series and drop it."""
