"""What stands between arrival and placement: the legacy router as a station, or nothing but a core.

Both are first-come-first-served stations. A request's service time is known when it comes (keyed,
or a constant), so its start and end follow at once from when servers fall free: no process a
request, one event for its end.
"""

import math
from collections import deque
from collections.abc import Iterator
from heapq import heapreplace
from statistics import NormalDist
from typing import TYPE_CHECKING, Protocol

from dispatch import keyed
from dispatch.outcomes import Outcome, RootCause
from sim.call import IN_FLIGHT, Call
from sim.clock import Alarm, nanoseconds
from sim.config import DoorConfig

if TYPE_CHECKING:
    from sim.world import World


class Door(Protocol):
    """Lets requests in, handles them, and has the world place them."""

    busy_ns: int
    servers: int

    def open(self, arrivals: Iterator[Call]) -> None:
        """Begin to let *arrivals* in."""

    def again(self, call: Call) -> None:
        """Take a further attempt of *call* in now."""

    def crash(self, until_ns: int) -> None:
        """Lose everything in the door's hands; nothing is let in before *until_ns*."""


class DirectDoor:
    """No layer: dispatchers decide one request after another, each in a constant time."""

    def __init__(self, world: "World", config: DoorConfig, decision_s: float) -> None:
        self.world, self.env = world, world.env
        self.servers = config.dispatchers
        self.service_ns = max(1, nanoseconds(decision_s))
        self.free = [0] * self.servers
        self.busy_ns = 0
        self.alarm = Alarm(self.env, self._decided)
        self.arrivals: Iterator[Call] = iter(())
        self.next: Call | None = None
        self.due = -1
        self.down_until = -1

    def open(self, arrivals: Iterator[Call]) -> None:
        """Begin to let *arrivals* in."""
        self.arrivals = arrivals
        self._take(next(arrivals, None))

    def _serve(self, call: Call, ready_ns: int) -> int:
        """Return when a dispatcher will have decided on *call*, which is there at *ready_ns*."""
        free, service = self.free, self.service_ns
        start = free[0]
        if start < ready_ns:
            start = ready_ns
        end = start + service
        heapreplace(free, end)
        self.busy_ns += service
        call.wait_ns += start - ready_ns
        call.service_ns += service
        if call.taken_ns < 0:
            call.taken_ns = start
        return end

    def _take(self, call: Call | None) -> None:
        self.next = call
        if call is None:
            return
        world = self.world
        if not world.deadline_set:
            world.watch_deadline(call)
        self.due = self._serve(call, call.arrival_ns)
        self.env.ring(self.alarm, self.due)

    def _decided(self, _: Alarm) -> None:
        if self.env.ns != self.due:
            return
        call = self.next
        assert call is not None
        if self.down_until > self.env.ns:
            self.world.lost_at_door(call)
        elif call.outcome is IN_FLIGHT:
            self.world.place(call)
        self._take(next(self.arrivals, None))

    def again(self, call: Call) -> None:
        """Take a further attempt of *call* in now."""
        self.env.call_at(self._serve(call, self.env.ns), self._again, call)

    def _again(self, call: Call) -> None:
        if call.outcome is not IN_FLIGHT:
            return
        if self.down_until > self.env.ns:
            self.world.lost_at_door(call)
        else:
            self.world.place(call)

    def crash(self, until_ns: int) -> None:
        """Lose what is being decided on; nothing is let in before *until_ns*."""
        self.down_until = max(self.down_until, until_ns)


class LegacyDoor:
    """The routing layer: workers, a bounded queue, keyed handling times, header rules.

    The router's own time-out runs from the hand-over to an engine; a request that fails by a class
    in the router's ``retry_on`` is picked again at once, after another handling time.
    """

    def __init__(self, world: "World", config: DoorConfig) -> None:
        self.world, self.env = world, world.env
        assert world.router is not None
        self.router = world.router
        self.servers = config.workers
        self.queue_limit = config.queue_limit
        self.free = [0] * config.workers
        self.busy_ns = 0
        self.starts: deque[int] = deque()  # of those that may still wait for a worker
        self.mean_ns = config.handling_mean_ms * 1e6
        self.exponential = config.handling == "exponential"
        cv = config.handling_cv
        self.sigma = math.sqrt(math.log1p(cv * cv))
        self.normal = NormalDist(-self.sigma * self.sigma / 2, self.sigma) if cv else None
        self.key = keyed.stream(world.seed, "handling")
        self.alarm = Alarm(self.env, self._arrived)
        self.arrivals: Iterator[Call] = iter(())
        self.next: Call | None = None
        self.down_until = -1
        self.life = 0

    def service_ns(self, call: Call) -> int:
        """Return the handling time of the next attempt of *call*, keyed by request and attempt."""
        if self.exponential:
            factor = keyed.exponential(self.key, call.row, call.attempts)
        elif self.normal is None:
            factor = 1.0
        else:
            draw = keyed.uniform(self.key, call.row, call.attempts)
            factor = math.exp(self.normal.inv_cdf(draw or 2.0**-54))
        return max(1, round(self.mean_ns * factor))

    def open(self, arrivals: Iterator[Call]) -> None:
        """Begin to let *arrivals* in."""
        self.arrivals = arrivals
        self._expect(next(arrivals, None))

    def _expect(self, call: Call | None) -> None:
        self.next = call
        if call is not None:
            self.env.ring(self.alarm, call.arrival_ns)

    def _arrived(self, _: Alarm) -> None:
        call = self.next
        assert call is not None
        if not self.world.deadline_set:
            self.world.watch_deadline(call)
        self._enter(call)
        self._expect(next(self.arrivals, None))

    def _enter(self, call: Call) -> None:
        now = self.env.ns
        if now < self.down_until:
            self.world.lost_at_door(call)
            return
        starts = self.starts
        while starts and starts[0] <= now:
            starts.popleft()
        start = self.free[0]
        if start <= now:
            start = now
        elif len(starts) >= self.queue_limit:
            self.world.close(call, Outcome.rejected, RootCause.router, now)
            return
        deadline = call.arrival_ns + self.world.deadline_ns
        if start >= deadline:  # it leaves the queue before a worker takes it up
            call.wait_ns += deadline - now
            return
        starts.append(start)
        service = self.service_ns(call)
        end = start + service
        heapreplace(self.free, end)
        self.busy_ns += service
        call.wait_ns += start - now
        call.service_ns += service
        if call.taken_ns < 0:
            call.taken_ns = start
        self.env.call_at(end, self._handled, (call, self.life))

    def _handled(self, pair: tuple[Call, int]) -> None:
        call, life = pair
        if call.outcome is not IN_FLIGHT:
            return
        if life != self.life:
            self.world.lost_at_door(call)
            return
        request = call.request
        rule = self.router.translate(request)
        if rule.reject is not None:
            call.attempts += 1
            self.world.refused(call, rule.reject)
            return
        request.group = rule.group
        call.rule = rule
        self.world.place(call)
        if call.outcome is IN_FLIGHT and rule.timeout_s < self.world.setup.wait.deadline_s:
            at = self.env.ns + nanoseconds(rule.timeout_s)
            self.env.call_at(at, self._timed_out, (call, call.attempts))

    def _timed_out(self, pair: tuple[Call, int]) -> None:
        call, attempt = pair
        if call.outcome is IN_FLIGHT and call.attempts == attempt:
            self.world.attempt_timed_out(call)

    def again(self, call: Call) -> None:
        """Take a further attempt of *call* in now."""
        self._enter(call)

    def crash(self, until_ns: int) -> None:
        """Lose all that waits or is being handled; nothing is let in before *until_ns*."""
        self.life += 1
        self.down_until = max(self.down_until, until_ns)
        self.free = [until_ns] * self.servers
        self.starts.clear()
