"""One simulated run: door, dispatcher, replicas, and the life of every request between them."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from dispatch import registry
from dispatch.dispatcher import Decision, Dispatcher
from dispatch.graph import TopologyGraph
from dispatch.journal import Journal
from dispatch.legacy import LegacyConfig, LegacyRouter
from dispatch.legacy.policy import legacy_devices, legacy_policy
from dispatch.outcomes import Outcome, Reason, RootCause
from dispatch.policy import Policy
from dispatch.request import Request
from sim import causes, feed
from sim.call import Call
from sim.clock import Alarm, Clock, S, nanoseconds
from sim.config import Setup
from sim.engine import Engine
from sim.fleet import Replica, build_kinds, build_replicas, device_infos
from sim.sequence import Sequence
from traces.trace import Trace

if TYPE_CHECKING:
    from sim.doors import Door
    from sim.links import Links
    from sim.telemetry import Telemetry

_REFUSALS: Final = {
    Reason.queue_full: RootCause.queue,
    Reason.no_device: RootCause.fault,
    Reason.no_weight: RootCause.router,
    Reason.too_large: RootCause.fleet_full,
    Reason.slo: RootCause.queue,
    Reason.unknown_hint: RootCause.client,
    Reason.context: RootCause.context,
    Reason.deadline: RootCause.fleet_full,
}


class World:
    """Everything of one run; the door calls :meth:`place`, engines report to it as their host."""

    def __init__(
        self, trace: Trace, setup: Setup, seed: int, journal: Journal,
        progress: Callable[[int], None] | None,
    ) -> None:  # fmt: skip
        self.trace, self.setup, self.seed, self.journal = trace, setup, seed, journal
        self.progress = progress
        self.env = Clock()
        self.kinds = build_kinds(setup)
        self.replicas: list[Replica] = build_replicas(setup, self.kinds, self.env, self)
        self.engines = [replica.engine for replica in self.replicas]
        infos = device_infos(setup, self.replicas)
        self.router: LegacyRouter | None = None
        if setup.door.kind == "legacy":
            settings = {
                "timeout_s": setup.door.timeout_s, "retries": setup.door.retries,
                **setup.door.settings,
            }  # fmt: skip
            config = LegacyConfig.from_settings(settings, "door.settings")
            self.router = LegacyRouter(config, {d.group for d in infos})
            infos = legacy_devices(self.router, infos)
        self.graph = TopologyGraph(infos, reservations=setup.telemetry.reservations)
        self.policy = self._policy()
        self.dispatcher = Dispatcher(
            self.policy, self.graph, lambda: self.env.now_s, journal=journal,
            hold_limit=setup.wait.hold_limit, seed=seed, decision_time=lambda _: self.decision_s,
            on_placed=self._woken,
        )  # fmt: skip
        self.decision_s = 0.0
        self.live: dict[int, Call] = {}
        self.oldest = 0  # no row before it is live
        self.deadline_ns = nanoseconds(setup.wait.deadline_s)
        self.deadline = Alarm(self.env, self._deadline)
        self.deadline_set = False
        self.held_alarm = Alarm(self.env, self._wake)
        self.held_set = False
        self.outcomes = [0] * len(Outcome)
        self.causes = [0] * len(RootCause)
        self.attempts = self.oom_events = self.done = 0
        self.door: Door
        self.telemetry: Telemetry
        self.links: Links
        self.source_rows = trace.source_row

    def _policy(self) -> Policy:
        setup = self.setup
        if self.router is not None and setup.policy.name == "static_weights":
            infos = device_infos(setup, self.replicas)
            return legacy_policy(self.router, infos, seed=self.seed)
        return registry.policy(setup.policy.name, setup.policy.params, seed=self.seed)

    def arrivals(self) -> Iterator[Call]:
        """Yield the requests that reach the door, in order; those beyond the context do not."""
        contexts = {"": min(kind.context_tokens for kind in self.kinds)}
        for kind in self.kinds:
            name = kind.model_config.name
            contexts[name] = min(contexts.get(name, kind.context_tokens), kind.context_tokens)
        if any(pool.model is not None for pool in self.setup.fleet.pools):
            contexts[""] = contexts.get(self.setup.model.name, contexts[""])
        for call in feed.calls(self.trace, self.setup, contexts):
            self.live[call.row] = call
            if call.request.max_tokens < 1:
                self.close(call, Outcome.rejected_context, RootCause.context, call.arrival_ns)
                continue
            yield call

    def watch_deadline(self, call: Call) -> None:
        """See to it that somebody looks when the deadline of *call* has come."""
        if not self.deadline_set:
            self.deadline_set = True
            self.env.ring(self.deadline, max(self.env.ns, call.arrival_ns + self.deadline_ns))

    # -- placement -----------------------------------------------------------------------------

    def place(self, call: Call) -> None:
        """Have the dispatcher decide on *call*, and hand it on to the engine it chose."""
        call.handled_ns = self.env.ns
        call.attempts += 1
        self.attempts += 1
        decision = self.dispatcher.submit(call.request)
        if decision.device >= 0:
            self.deliver(call, decision.device)
        elif decision.reason == Reason.held:
            call.held = True
            if not self.held_set:
                self.held_set = True
                self.env.ring(self.held_alarm, self.telemetry.next_ns())
        else:
            self.refused(call, decision.reason)

    def _woken(self, request: Request, decision: Decision) -> None:
        """A held request got a device, or was given up."""
        call = self.live.get(request.id)
        if call is None:
            return
        call.held = False
        now = self.env.ns
        if decision.device < 0:
            self.refused(call, decision.reason)
            return
        call.handled_ns = now + nanoseconds(self.decision_s)
        self.env.call_at(call.handled_ns, self._deliver_woken, (call, decision.device))

    def _deliver_woken(self, pair: tuple[Call, int]) -> None:
        call, device = pair
        if call.outcome == Outcome.in_flight:
            self.deliver(call, device)

    def _wake(self, _: Alarm) -> None:
        """New samples have arrived while requests are held: see who fits now."""
        self.dispatcher.wake()
        self.held_set = bool(self.dispatcher.held)
        if self.held_set:
            self.env.ring(self.held_alarm, self.telemetry.next_ns())

    def refused(self, call: Call, reason: Reason) -> None:
        """The dispatcher or the router's rules turned *call* away."""
        cause = _REFUSALS[reason]
        outcome = Outcome.timed_out if reason == Reason.deadline else Outcome.rejected
        self.close(call, outcome, cause, self.env.ns)

    def deliver(self, call: Call, device: int) -> None:
        """Hand *call* to the engine of *device*."""
        call.device = device
        engine = self.engines[device]
        request = call.request
        sequence = Sequence(
            call, request.prompt_tokens, call.output, request.max_tokens, request.priority,
            request.block_hashes,
        )  # fmt: skip
        call.sequence = sequence
        if engine.down:
            self.failed(call, "fault", RootCause.fault)
        elif engine.waiting_count >= self.setup.engine.max_waiting:
            self.failed(call, "refused", RootCause.queue)
        elif not engine.optimistic and not engine.kv.ever_fits(sequence):
            self.failed(call, "refused", causes.of_memory(self, call, engine, sequence))
        else:
            engine.submit(sequence)

    # -- what engines report -------------------------------------------------------------------

    def started(self, sequence: Sequence) -> None:
        """Memory is allocated, the first kernel starts now."""
        call: Call = sequence.owner
        call.started_ns = self.env.ns
        self.dispatcher.started(call.row)

    def first_token(self, sequence: Sequence) -> None:
        """The first token is out."""
        call: Call = sequence.owner
        call.first_ns = self.env.ns
        self.dispatcher.first_token(call.row)

    def finished(self, sequence: Sequence) -> None:
        """The last token is out."""
        call: Call = sequence.owner
        call.preemptions += sequence.preemptions
        self.dispatcher.finished(call.row)
        self.close(call, Outcome.finished, RootCause.none, self.env.ns)

    def out_of_memory(self, engine: Engine, sequence: Sequence) -> None:
        """CUDA out-of-memory: it kills the request, or the process with all it held."""
        call: Call = sequence.owner
        call.oom_events += 1
        self.oom_events += 1
        cause = causes.of_memory(self, call, engine, sequence)
        if self.setup.engine.oom_kills == "process":
            self.restart(engine, self.setup.engine.restart_s, cause)
        self.failed(call, "oom", cause)

    def restart(self, engine: Engine, seconds: float, cause: RootCause) -> None:
        """Let the process of *engine* die with all it holds, and come back after *seconds*."""
        lost = engine.crash()
        self.env.call_at(self.env.ns + nanoseconds(seconds), self._back, engine)
        for sequence in lost:
            if sequence.owner is not None:
                self.failed(sequence.owner, "fault", cause)

    def _back(self, engine: Engine) -> None:
        engine.restart()

    # -- failure, retry, end -------------------------------------------------------------------

    def failed(self, call: Call, kind: str, cause: RootCause) -> None:
        """An attempt failed: try again where that is allowed, else the request has failed."""
        now = self.env.ns
        sequence = call.sequence
        if sequence is not None:
            call.preemptions += sequence.preemptions
            sequence.owner = None
        fault = kind == "fault" or (kind == "oom" and self.setup.engine.oom_kills == "process")
        if call.cause == RootCause.none:
            call.cause = cause
        self.dispatcher.failed(call.row, fault=fault)
        if call.rule is not None and call.rule.may_retry(kind, call.attempts - 1, body_sent=True):
            self.again(call, now, 0)
            return
        if self.may_retry(call, kind):
            self.again(call, now, nanoseconds(self.setup.wait.retry_backoff_s))
            return
        outcome = {"oom": Outcome.oom, "fault": Outcome.failed, "timeout": Outcome.timed_out}
        self.close(call, outcome.get(kind, Outcome.rejected), call.cause, now)

    def may_retry(self, call: Call, kind: str) -> bool:
        """Return whether the client tries again after a failure of *kind*."""
        wait = self.setup.wait
        if call.attempts > wait.retries:
            return False
        return kind == "refused" or kind in wait.retry_on

    def attempt_timed_out(self, call: Call) -> None:
        """The router has waited long enough for this attempt of *call*."""
        cause = causes.of_timeout(self, call, self.env.ns)
        sequence = call.sequence
        if sequence is not None and sequence.owner is not None:
            self.engines[call.device].cancel(sequence)
        self.failed(call, "timeout", cause)

    def lost_at_door(self, call: Call) -> None:
        """The door died with *call* in its hands, or is not there."""
        if call.outcome == Outcome.in_flight:
            call.attempts += 1
            self.attempts += 1
            self.failed(call, "fault", RootCause.router)

    def again(self, call: Call, now: int, backoff_ns: int) -> None:
        """Send *call* once more after a back-off."""
        request = call.request
        call.wasted_ns += now - call.attempt_ns
        if call.device >= 0:
            request.tried = (*request.tried, call.device)
        request.attempt += 1
        call.sequence = None
        call.first_ns = -1
        at = now + backoff_ns
        call.attempt_ns = at
        self.env.call_at(at, self._retry, call)

    def _retry(self, call: Call) -> None:
        if call.outcome == Outcome.in_flight:
            self.door.again(call)

    def _deadline(self, _: Alarm) -> None:
        """Time out every request whose deadline has come; set the next alarm."""
        now = self.env.ns
        live, row, last = self.live, self.oldest, len(self.trace)
        while row < last:
            call = live.get(row)
            if call is not None:
                due = call.arrival_ns + self.deadline_ns
                if due > now:
                    self.oldest = row
                    self.env.ring(self.deadline, due)
                    return
                self.time_out(call, causes.of_timeout(self, call, now))
            elif not live:
                break
            row += 1
        self.oldest = row
        self.deadline_set = False

    def time_out(self, call: Call, cause: RootCause) -> None:
        """Give *call* up: nobody waits for it any longer."""
        self.withdraw(call)
        self.close(call, Outcome.timed_out, cause, call.arrival_ns + self.deadline_ns)

    def withdraw(self, call: Call) -> None:
        """Take *call* out of wherever it is."""
        sequence = call.sequence
        if sequence is not None:
            call.preemptions += sequence.preemptions
            if sequence.owner is not None:
                self.engines[call.device].cancel(sequence)
        call.held = False
        self.dispatcher.cancelled(call.row)

    def close(self, call: Call, outcome: Outcome, cause: RootCause, end_ns: int) -> None:
        """Write the end of *call*."""
        call.outcome = outcome
        call.cause = cause
        del self.live[call.row]
        self.outcomes[outcome] += 1
        self.causes[cause] += 1
        self.done += 1
        self._write(call, end_ns)
        if self.progress is not None and self.done % 1024 == 0:
            self.progress(1024)

    def _write(self, call: Call, end_ns: int) -> None:
        request, sequence = call.request, call.sequence
        produced = 0
        if call.outcome == Outcome.finished:
            produced = call.output
        elif sequence is not None:
            produced = self.engines[call.device].emitted(sequence)
        rows = self.source_rows
        self.journal.request(
            call.row, call.row + 1 if rows is None else int(rows[call.row]), call.arrival_s, 0.0,
            request.prompt_tokens, produced, max(request.max_tokens, 0), request.model,
            request.session, request.kernel_hint, call.outcome, call.cause, call.attempts,
            call.oom_events, call.preemptions, call.device, call.fitting,
            _s(call.taken_ns), _s(call.handled_ns), _s(call.started_ns), _s(call.first_ns),
            _s(end_ns), call.wait_ns / S, call.service_ns / S, call.wasted_ns / S, call.cached,
        )  # fmt: skip

    def drain(self, arrivals: Iterator[Call]) -> None:
        """Account for what is left at the horizon: in flight, and never let in before it."""
        now = self.env.ns
        for call in list(self.live.values()):
            self.close(call, Outcome.in_flight, RootCause.none, -1)
        for call in arrivals:  # an overloaded door has not come to these
            if call.arrival_ns + self.deadline_ns <= now:
                self.time_out(call, RootCause.router)
            else:
                self.close(call, Outcome.in_flight, RootCause.none, -1)
        if self.progress is not None:
            self.progress(self.done % 1024)

    def was_up(self, device: int, when: int) -> bool:
        """Return whether *device* was up at *when*."""
        return not self.engines[device].down

    def blame(self, replica: Replica, call: Call, now: int) -> RootCause:
        """Return why the run of *call* on *replica* took too long."""
        return RootCause.queue


def _s(ns: int) -> float:
    return ns / S if ns >= 0 else float("nan")
