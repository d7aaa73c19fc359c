"""The face of the simulator: one trace through one arm."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from dispatch.errors import InputError, InvariantError
from dispatch.journal import Journal
from dispatch.outcomes import Outcome, RootCause
from sim.clock import S, nanoseconds
from sim.config import Setup
from sim.decision import decision_time
from sim.doors import DirectDoor, Door, LegacyDoor
from sim.engine import Engine
from sim.facts import RunFacts
from sim.faults import Faults, surges, with_surges
from sim.feed import Parts
from sim.memory import ContiguousKv
from sim.series import Memory, Series
from sim.telemetry import Telemetry
from sim.watch import Watch
from sim.world import World
from traces.trace import Trace


def replay(
    trace: Trace | Iterable[Trace],
    setup: Setup,
    seed: int,
    journal: Journal,
    *,
    progress: Callable[[int], None] | None = None,
) -> RunFacts:
    """Replay *trace* through the door, the policy and the engines of *setup*.

    A trace may come in parts of rising arrival times, so that a week of traffic needs no more
    memory than an hour; then without surges, whose copies may come before what they are copies of
    and so need the whole. Rows go to *journal*; *progress* is told how many requests have ended
    since its last call. Raises InputError where the set-up cannot serve at all. Time is quantised
    to 1 ns.
    """
    surging = [f"faults[{i}]" for i, f in enumerate(setup.faults) if f.kind == "arrival_surge"]
    if surging and not isinstance(trace, Trace):
        raise InputError.at(
            surging[0], "arrival_surge copies requests of a whole window; the trace is in parts",
            "give the trace whole, or leave the surge out: every other fault works",
        )  # fmt: skip
    surged = 0
    if isinstance(trace, Trace) and len(trace):
        surged = len(surges(trace, setup.faults, seed))
        trace = with_surges(trace, setup.faults, seed)
    run = _Run(trace, setup, seed, journal, progress)
    run.surged = surged
    run.go()
    return run.facts()


@contextmanager
def _no_collector() -> Iterator[None]:
    """Hold the cycle collector still: the run leaves no cycles, and would be searched for them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _memory(engine: Engine) -> Memory:
    """Return who says what of a replica's memory could be handed out, and as one block."""
    if isinstance(engine.kv, ContiguousKv):
        return engine.kv.state
    assert engine.segments is not None
    return engine.segments.state


class _Run:
    """A world with its door and telemetry, from start to horizon."""

    def __init__(
        self,
        trace: Trace | Iterable[Trace],
        setup: Setup,
        seed: int,
        journal: Journal,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.setup = setup
        parts = self.parts = Parts(trace)
        if not parts.pull():
            raise InputError.at("trace", "has no requests", "give at least one row")
        self.notes: list[str] = []
        self.surged = 0
        """Surges that are in the trace already."""
        world = self.world = World(parts, setup, seed, journal, progress)
        self.telemetry = Telemetry(world, setup.telemetry)
        self.series = [
            Series(i, nanoseconds(setup.device_window_s), journal.device, _memory(engine))
            for i, engine in enumerate(world.engines)
        ]
        for engine, series in zip(world.engines, self.series, strict=True):
            watch = Watch(engine, series, self.telemetry.followed, self.telemetry.keep_ns)
            engine.watch = watch
            self.telemetry.watches.append(watch)
        self.telemetry.prime()
        world.graph.source = self.telemetry
        world.telemetry = self.telemetry
        self.door = self._door()
        world.door = self.door
        self.faults: Faults | None = None
        if setup.faults:
            self.faults = Faults(world)
            world.faults = self.faults if self.faults.touching else None

    @property
    def last_ns(self) -> int:
        """The last arrival that is known of."""
        return nanoseconds(self.parts.last_s)

    @property
    def horizon_ns(self) -> int:
        """The end of the run, once all parts are loaded."""
        return self.last_ns + max(1, nanoseconds(self.setup.drain_s))

    def _door(self) -> Door:
        config = self.setup.door
        if config.kind == "legacy":
            return LegacyDoor(self.world, config)
        if config.decision_us is not None:
            seconds, note = (
                config.decision_us * 1e-6,
                f"decision time given: {config.decision_us} us",
            )
        else:
            measured = decision_time(
                config.decision_calibration, self.setup.policy.name, len(self.world.replicas)
            )
            seconds, note = measured.seconds, measured.note
        self.notes.append(note)
        self.world.decision_s = seconds
        return DirectDoor(self.world, config, seconds)

    def go(self) -> None:
        """Run to the horizon, and account for every request."""
        world = self.world
        arrivals = world.arrivals()
        self.door.open(arrivals)
        with _no_collector():
            while True:
                known = self.last_ns  # the horizon is later than any arrival
                if not self.parts.pull():
                    break
                world.env.run_to(known)
            world.env.run_to(self.horizon_ns)
        world.drain(arrivals)
        for engine, series in zip(world.engines, self.series, strict=True):
            series.finish(self.horizon_ns, engine.kv_used_at(self.horizon_ns))
        if sum(world.outcomes) != self.parts.rows:
            raise InvariantError(f"{self.parts.rows} offered, {sum(world.outcomes)} accounted for")
        for engine in world.engines:
            engine.check_memory()
        world.dispatcher.check_books()
        if self.faults is not None:
            self.notes.append(f"{self.surged + self.faults.count} faults struck")

    def facts(self) -> RunFacts:
        """Return the counts and conditions of the run."""
        world, door = self.world, self.door
        busy_until = max(self.last_ns, 1)
        placed = world.graph.placed
        devices = [
            {
                "device": r.index,
                "name": r.name,
                "pool": r.kind.pool.name,
                "gpu": r.kind.gpu.name,
                "placed": int(placed[r.index]),
                "busy_ratio": self.series[r.index].busy_ns / self.horizon_ns,
                "iterations": r.engine.iterations,
                "preemptions": r.engine.preemptions,
                "capacity_tokens": r.kind.plan.capacity_tokens,
            }
            for r in world.replicas
        ]
        extrapolated = sorted({note for kind in world.kinds for note in kind.cost.extrapolated})
        interval_s = self.setup.telemetry.interval_ms / 1e3
        span_s = self.parts.last_s - self.parts.first_s
        return RunFacts(
            offered=self.parts.rows,
            outcomes={o.name: world.outcomes[o] for o in Outcome},
            causes={c.name: world.causes[c] for c in RootCause if c},
            attempts=world.attempts,
            oom_events=world.oom_events,
            preemptions=sum(e.preemptions for e in world.engines),
            span_s=span_s,
            horizon_s=self.horizon_ns / S,
            router_utilisation=door.busy_ns / (door.servers * busy_until),
            door={
                "kind": self.setup.door.kind,
                "servers": door.servers,
                "busy_s": door.busy_ns / S,
                "decision_s": world.decision_s,
            },
            arrivals_per_window=self.parts.rows / span_s * interval_s if span_s else 0.0,
            telemetry={
                "interval_s": interval_s,
                "looks": self.telemetry.looks,
                "deliveries": self.telemetry.deliveries,
            },
            devices=devices,
            idle_devices=tuple(r.name for r in world.replicas if not placed[r.index]),
            iterations=sum(e.iterations for e in world.engines),
            events=world.env.events,
            extrapolated=tuple(extrapolated),
            notes=tuple(self.notes),
        )
