"""The clock of a simulation: SimPy's event loop in whole nanoseconds, with events that cost little.

``env.now`` is an integer count of nanoseconds. Engines keep their own exact time in femtoseconds,
so that sums over a million iterations lose nothing; what others see of it is rounded up to 1 ns.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

import simpy
from simpy.events import Event

S: Final = 10**9  # nanoseconds a second
FS_PER_NS: Final = 10**6
FS_PER_S: Final = 10**15

# At one instant: arrivals, faults and cancels first, then engines turn over their batches.
FIRST: Final = 0
NORMAL: Final = 1
LAST: Final = 2

Callback = Callable[[Any], None]


class Alarm(Event):
    """A SimPy event that rings at given times and can be set again, at no new allocation.

    Setting it again does not take an earlier setting back: SimPy cannot unschedule. *callback* is
    called with the alarm at every ring and tells a stale one by looking at the clock.
    """

    def __init__(self, env: "Clock", callback: Callback) -> None:
        self.env = env
        self.call = callback
        self.callbacks = self._calls = [self._again, callback]
        self._ok = True
        self._value = None

    def _again(self, _: Event) -> None:
        self.callbacks = self._calls


class Once(Event):
    """A SimPy event that calls *callback(value)* once."""

    def __init__(self, env: "Clock", callback: Callback, value: Any) -> None:
        self.env = env
        self.callbacks = [self._ring]
        self._ok = True
        self._value = value
        self.call = callback

    def _ring(self, _: Event) -> None:
        self.call(self._value)


class Clock(simpy.Environment):
    """SimPy's environment, counting nanoseconds."""

    def __init__(self) -> None:
        super().__init__(initial_time=0)
        self._eid = count()
        self.ns = 0
        """Nanoseconds since the start."""

    @property
    def events(self) -> int:
        """Events scheduled so far."""
        return int(repr(self._eid)[6:-1])

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return self.ns / S

    def seconds(self) -> float:
        """Return the seconds since the start: the clock of a dispatcher."""
        return self.ns / S

    def ring(self, alarm: Event, at_ns: int, priority: int = NORMAL) -> None:
        """Let *alarm* ring at *at_ns*, which is now or later."""
        assert at_ns >= self._now
        heappush(self._queue, (at_ns, priority, next(self._eid), alarm))  # type: ignore[misc]

    def call_at(
        self, at_ns: int, callback: Callback, value: Any = None, priority: int = NORMAL
    ) -> None:
        """Call *callback(value)* at *at_ns*, which is now or later."""
        assert at_ns >= self._now
        once = Once(self, callback, value)
        heappush(self._queue, (at_ns, priority, next(self._eid), once))  # type: ignore[misc]

    def run_to(self, until_ns: int) -> None:
        """Let all happen that is due before *until_ns*, as SimPy's ``run`` does, in less time.

        The two kinds of events above are called directly; any other goes SimPy's way.
        """
        queue: list[tuple[int, int, int, Event]] = self._queue  # type: ignore[assignment]
        while queue:
            entry = heappop(queue)
            at_ns = entry[0]
            if at_ns >= until_ns:
                heappush(queue, entry)
                break
            event = entry[3]
            if type(event) is Alarm:
                self.ns = self._now = at_ns
                call = event.call  # a callback is no method: looked up as a value it costs half
                call(event)
            elif type(event) is Once:
                self.ns = self._now = at_ns
                event.callbacks = None  # type: ignore[assignment]  # as SimPy does; no cycle stays
                call = event.call
                call(event._value)
            else:
                heappush(queue, entry)
                self.step()
        self.ns = self._now = until_ns

    def step(self) -> None:
        """Let SimPy process the next event."""
        if self._queue:
            self.ns = self._queue[0][0]  # type: ignore[assignment]
        super().step()


def nanoseconds(seconds: float) -> int:
    """Return *seconds* as whole nanoseconds, rounded to the nearest."""
    return round(seconds * S)
