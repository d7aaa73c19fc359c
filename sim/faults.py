"""Faults of a run: drawn by key alone, so that all arms meet the same ones.

A fault by schedule comes once; one by rate comes in a Poisson process keyed by (seed, number of the
fault). A replica that is not named is drawn by key too. Each strike sets the next, so that a run
need not know its own end.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from dispatch import keyed
from dispatch.errors import InputError
from dispatch.outcomes import Outcome, RootCause
from sim.call import IN_FLIGHT
from sim.clock import FIRST, nanoseconds
from sim.config import FaultConfig
from traces.trace import Trace

if TYPE_CHECKING:
    from sim.call import Call
    from sim.fleet import Replica
    from sim.world import World

_LEAK_STEP_S: Final = 1.0
_OF_REQUESTS: Final = ("slow_client", "cancel")


@dataclass(frozen=True, slots=True)
class Strike:
    """One occurrence of a fault."""

    config: FaultConfig
    number: int
    """Number of the fault in the scenario."""
    turn: int
    start_ns: int
    end_ns: int


def strikes(
    faults: tuple[FaultConfig, ...], seed: int, horizon_s: float, kinds: tuple[str, ...] = ()
) -> Iterator[Strike]:
    """Yield every occurrence that begins before *horizon_s*; of *kinds* where any is given."""
    for number, fault in enumerate(faults):
        if not kinds or fault.kind in kinds:
            yield from _of_one(fault, number, seed, horizon_s)


def _of_one(fault: FaultConfig, number: int, seed: int, horizon_s: float) -> Iterator[Strike]:
    for turn, at_s in enumerate(_begins(fault, number, seed)):
        if at_s >= horizon_s:
            return
        start = nanoseconds(at_s)
        yield Strike(fault, number, turn, start, start + nanoseconds(fault.duration_s))


def _begins(fault: FaultConfig, number: int, seed: int) -> Iterator[float]:
    if fault.at_s is not None:
        yield fault.at_s
        return
    if fault.rate_per_h is None:
        raise InputError.at(
            f"faults[{number}]", f"{fault.kind} has no time", "give at_s or rate_per_h"
        )
    key = keyed.stream(seed, f"fault {number}")
    at_s, turn = 0.0, 0
    while True:
        at_s += keyed.exponential(key, turn) * 3600.0 / fault.rate_per_h
        turn += 1
        yield at_s


def surges(trace: Trace, faults: tuple[FaultConfig, ...], seed: int) -> list[Strike]:
    """Return the surges that begin before the last arrival of *trace*."""
    end_s = max(float(trace.arrival_s[-1]), 1e-9) if len(trace) else 0.0
    return list(strikes(faults, seed, end_s, ("arrival_surge",)))


def with_surges(trace: Trace, faults: tuple[FaultConfig, ...], seed: int) -> Trace:
    """Return *trace* with the further arrivals of every surge: more requests, no faster ones.

    In a surge by *factor* each request of its window comes factor - 1 times more (a fraction by
    chance), as copies at times drawn evenly over the window; ``ratio`` thins the copies.
    """
    end_s = float(trace.arrival_s[-1])
    rows, times = [np.arange(len(trace))], [trace.arrival_s]
    for strike in surges(trace, faults, seed):
        start_s = strike.start_ns / 1e9
        stop_s = min(strike.end_ns / 1e9, end_s)
        first, last = np.searchsorted(trace.arrival_s, [start_s, stop_s])
        inside = np.arange(first, last)
        rng = keyed.generator(seed, f"surge {strike.number} {strike.turn}")
        extra = max(0.0, strike.config.factor - 1.0) * strike.config.ratio
        copies = int(extra) + (rng.random(len(inside)) < extra - int(extra))
        rows.append(np.repeat(inside, copies))
        times.append(rng.uniform(start_s, stop_s, len(rows[-1])))
    if len(rows) == 1:
        return trace
    arrival = np.concatenate(times)
    order = np.argsort(arrival, kind="stable")
    return trace.take(np.concatenate(rows)[order], arrival[order])


class _Touching:
    """The strikes of one fault of requests, as far as arrivals, which come in order, have come."""

    def __init__(self, coming: Iterator[Strike]) -> None:
        self._coming = coming
        self._next = next(coming, None)
        self._now: list[Strike] = []
        self.struck = 0

    def at(self, when: int) -> list[Strike]:
        """Return the strikes under way at *when*."""
        while self._next is not None and self._next.start_ns <= when:
            self._now.append(self._next)
            self.struck += 1
            self._next = next(self._coming, None)
        if self._now:
            self._now = [strike for strike in self._now if strike.end_ns > when]
        return self._now


class Faults:
    """Strikes the fleet of one world."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self._struck = 0
        self._touching: list[_Touching] = []
        self._begin: dict[str, Callable[[Strike], None]] = {
            "gpu_lost": self._gpu_lost, "link_degraded": self._link_degraded,
            "ecc_slow": self._ecc_slow, "telemetry_outage": self._telemetry_outage,
            "router_crash": self._router_crash, "memory_leak": self._memory_leak,
        }  # fmt: skip
        for number, fault in enumerate(world.setup.faults):
            coming = _of_one(fault, number, world.seed, math.inf)
            if fault.kind in _OF_REQUESTS:
                self._touching.append(_Touching(coming))
            elif fault.kind in self._begin:
                self._expect(coming)

    def _expect(self, coming: Iterator[Strike]) -> None:
        """Let the next of *coming* strike when its time has come, and then the one after it."""
        strike = next(coming, None)
        if strike is not None:
            self._candidates(strike)
            self.world.env.call_at(strike.start_ns, self._strike, (strike, coming), FIRST)

    def _strike(self, struck: tuple[Strike, Iterator[Strike]]) -> None:
        strike, coming = struck
        self._struck += 1
        self._begin[strike.config.kind](strike)
        self._expect(coming)

    # -- whom it hits -------------------------------------------------------------------------

    def _candidates(self, strike: Strike) -> "list[Replica]":
        fault, replicas = strike.config, self.world.replicas
        if fault.pool is not None:
            replicas = [r for r in replicas if r.kind.pool.name == fault.pool]
        where = f"faults[{strike.number}]"
        if not replicas:
            raise InputError.at(f"{where}.pool", f"{fault.pool!r} has no replica")
        if fault.replica is not None and fault.replica >= len(replicas):
            raise InputError.at(
                f"{where}.replica", f"{fault.replica}", f"expected an index below {len(replicas)}"
            )
        return replicas

    def _target(self, strike: Strike) -> "Replica":
        """Return the named replica, or one drawn by key."""
        replicas = self._candidates(strike)
        if strike.config.replica is not None:
            return replicas[strike.config.replica]
        key = keyed.stream(self.world.seed, f"fault {strike.number} replica")
        return replicas[int(keyed.uniform(key, strike.turn) * len(replicas))]

    def _until(self, strike: Strike, end: Callable[[], None]) -> None:
        self.world.env.call_at(strike.end_ns, lambda _: end(), None, FIRST)

    # -- faults of devices ---------------------------------------------------------------------

    def _gpu_lost(self, strike: Strike) -> None:
        replica = self._target(strike)
        self.world.take_down(replica, RootCause.fault)
        self._until(strike, lambda: self.world.bring_up(replica))

    def _link_degraded(self, strike: Strike) -> None:
        """The ring of a replica slows down; where it is one GPU, its host link and NIC do."""
        replica, links = self._target(strike), self.world.links
        factor = strike.config.factor
        if replica.kind.pool.tp == 1:
            hurt = (links.root(replica), links.nic(replica))

            def set_links(by: float) -> None:
                for link in hurt:
                    links.network.degrade(link, by)

            set_links(factor)
            self._until(strike, lambda: set_links(1.0))
            return

        def scale(by: float) -> None:
            now = self.world.env.ns
            whole = links.ring_factor(replica, now) * by
            links.set_ring(replica, 1.0 if abs(whole - 1.0) < 1e-9 else whole, now)
            replica.set_pace(links.ring_factor(replica, now))
            self.world.telemetry.note(replica.index, "ring", "pcie")

        scale(factor)
        self._until(strike, lambda: scale(1.0 / factor))

    def _ecc_slow(self, strike: Strike) -> None:
        replica, factor = self._target(strike), strike.config.factor

        def pace() -> None:
            ring = self.world.links.ring_factor(replica, self.world.env.ns)
            replica.set_pace(ring)

        def end() -> None:
            replica.slow.remove(factor)
            pace()

        replica.slow.append(factor)
        pace()
        self._until(strike, end)

    def _memory_leak(self, strike: Strike) -> None:
        """*factor* GB a minute go, step by step; all comes back when the process is restarted.

        One GPU leaks: a replica of several can use as many times what the least of them has left.
        """
        replica, env = self._target(strike), self.world.env
        step = strike.config.factor * 1e9 / 60.0 * _LEAK_STEP_S * replica.kind.pool.tp

        def leak(_: None) -> None:
            if env.ns >= strike.end_ns:
                self.world.leak(replica, -replica.leaked_bytes)
                return
            self.world.leak(replica, step)
            env.call_at(env.ns + nanoseconds(_LEAK_STEP_S), leak, None, FIRST)

        leak(None)

    # -- faults of what stands around ----------------------------------------------------------

    def _telemetry_outage(self, strike: Strike) -> None:
        """A replica's samples do not arrive; those of a pool, or of all, where none is named."""
        hit = self._candidates(strike)
        if strike.config.replica is not None:
            hit = [self._target(strike)]
        telemetry = self.world.telemetry
        telemetry.refresh(self.world.env.now_s, frozenset())  # what has arrived is there
        for replica in hit:
            telemetry.cut_off(replica.index, strike.start_ns, strike.end_ns)
        self._until(strike, lambda: telemetry.note_all([r.index for r in hit]))

    def _router_crash(self, strike: Strike) -> None:
        self.world.door.crash(strike.end_ns)

    # -- faults of requests --------------------------------------------------------------------

    def touch(self, call: "Call") -> None:
        """Make *call* a slow or a leaving client where a strike at its arrival says so."""
        for strike in (s for t in self._touching for s in t.at(call.arrival_ns)):
            fault = strike.config
            key = keyed.stream(self.world.seed, f"fault {strike.number} requests")
            if keyed.uniform(key, call.row) >= fault.ratio:
                continue
            if fault.kind == "slow_client":
                call.slow_client = max(call.slow_client, fault.factor)
                continue
            stays = nanoseconds(fault.factor * keyed.exponential(key, call.row, 1))
            at = max(self.world.env.ns, call.arrival_ns + max(1, stays))
            self.world.env.call_at(at, self._leave, call, FIRST)

    @property
    def count(self) -> int:
        """Strikes so far: of requests, those that an arrival has met or seen go by."""
        return self._struck + sum(t.struck for t in self._touching)

    @property
    def touching(self) -> bool:
        """Whether any strike touches requests."""
        return bool(self._touching)

    def _leave(self, call: "Call") -> None:
        if call.outcome is IN_FLIGHT and call.row in self.world.live:
            self.world.withdraw(call)
            self.world.close(call, Outcome.cancelled, RootCause.client, self.world.env.ns)
