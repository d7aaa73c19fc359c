"""How the life of a request ends, or begins anew: failures, retries, time-outs, the last row."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from dispatch.dispatcher import Dispatcher
from dispatch.journal import Journal
from dispatch.outcomes import Outcome, RootCause
from sim import causes
from sim.call import FINISHED, IN_FLIGHT, NAN, NO_CAUSE, Call
from sim.clock import Alarm, Clock, S, nanoseconds
from sim.config import Setup
from sim.engine import Engine
from sim.feed import Parts
from sim.handover import PREFILL, Handover

if TYPE_CHECKING:
    from sim.doors import Door
    from sim.world import World


class Ends:
    """The part of a world that knows how requests fail and end."""

    # Slots: beyond 30 attributes Python looks methods and values up the slow way.
    __slots__ = (
        "attempts", "causes", "deadline", "deadline_ns", "deadline_set", "dispatcher", "done",
        "door", "engines", "env", "handover", "journal", "live", "oldest", "oom_events",
        "outcomes", "parts", "progress", "setup",
    )  # fmt: skip

    parts: Parts
    setup: Setup
    journal: Journal
    progress: Callable[[int], None] | None
    env: Clock
    engines: list[Engine]
    dispatcher: Dispatcher
    handover: Handover | None
    door: "Door"

    def __init__(self) -> None:
        self.live: dict[int, Call] = {}
        self.oldest = 0  # no row before it is live
        self.deadline_ns = nanoseconds(self.setup.wait.deadline_s)
        self.deadline = Alarm(self.env, self._deadline)
        self.deadline_set = False
        self.outcomes = [0] * len(Outcome)
        self.causes = [0] * len(RootCause)
        self.attempts = self.oom_events = self.done = 0

    def watch_deadline(self, call: Call) -> None:
        """See to it that somebody looks when the deadline of *call* has come."""
        if not self.deadline_set:
            self.deadline_set = True
            self.env.ring(self.deadline, max(self.env.ns, call.arrival_ns + self.deadline_ns))

    def _timeout_cause(self, call: Call, now: int) -> RootCause:
        world: World = self  # type: ignore[assignment]
        return causes.of_timeout(world, call, now)

    def failed(self, call: Call, kind: str, cause: RootCause) -> None:
        """An attempt failed: try again where that is allowed, else the request has failed."""
        now = self.env.ns
        sequence = call.sequence
        if sequence is not None:
            call.preemptions += sequence.preemptions
            sequence.owner = None
        fault = kind == "fault" or (kind == "oom" and self.setup.engine.oom_kills == "process")
        if call.cause == NO_CAUSE:
            call.cause = cause
        if self.handover is not None:
            self.handover.stop(call)
        if call.held:
            call.held = False
            self.dispatcher.cancelled(call.row)
        else:
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
        cause = self._timeout_cause(call, self.env.ns)
        sequence = call.sequence
        if sequence is not None and sequence.owner is not None:
            self.engines[call.device].cancel(sequence)
        self.failed(call, "timeout", cause)

    def lost_at_door(self, call: Call) -> None:
        """The door died with *call* in its hands, or is not there."""
        if call.outcome is IN_FLIGHT:
            call.attempts += 1
            self.attempts += 1
            self.failed(call, "fault", RootCause.router)

    def again(self, call: Call, now: int, backoff_ns: int) -> None:
        """Send *call* once more after a back-off."""
        request = call.request
        call.handed = False
        if self.handover is not None:
            request.group = PREFILL
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
        if call.outcome is IN_FLIGHT:
            self.door.again(call)

    def _deadline(self, _: Alarm) -> None:
        """Time out every request whose deadline has come; set the next alarm."""
        now = self.env.ns
        live, row, last = self.live, self.oldest, self.parts.rows
        while row < last:
            call = live.get(row)
            if call is not None:
                due = call.arrival_ns + self.deadline_ns
                if due > now:
                    self.oldest = row
                    self.env.ring(self.deadline, due)
                    return
                self.time_out(call, self._timeout_cause(call, now))
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
        if self.handover is not None:
            self.handover.stop(call)
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
        if self.handover is not None:
            self.handover.stop(call)
        call.sequence = None  # no cycle is left behind for the garbage collector
        if self.progress is not None and self.done % 1024 == 0:
            self.progress(1024)

    def _write(self, call: Call, end_ns: int) -> None:
        request, sequence = call.request, call.sequence
        produced = 0
        if call.outcome is FINISHED:
            produced = call.output
        elif sequence is not None:
            produced = self.engines[call.device].emitted(sequence)
        elif call.handed:
            produced = 1
        self.journal.request(
            call.row, call.source_row, call.arrival_s, 0.0,
            request.prompt_tokens, produced, max(request.max_tokens, 0), request.model,
            request.session, request.kernel_hint, call.outcome, call.cause, call.attempts,
            call.oom_events, call.preemptions, call.device, call.fitting,
            call.taken_ns / S if call.taken_ns >= 0 else NAN,
            call.handled_ns / S if call.handled_ns >= 0 else NAN,
            call.started_ns / S if call.started_ns >= 0 else NAN,
            call.first_ns / S if call.first_ns >= 0 else NAN,
            end_ns / S if end_ns >= 0 else NAN, call.wait_ns / S, call.service_ns / S,
            call.wasted_ns / S, call.cached,
        )  # fmt: skip

    def drain(self, arrivals: Iterator[Call]) -> None:
        """Account for what is left at the horizon: in flight, and never let in before it."""
        now = self.env.ns
        for call in list(self.live.values()):
            self.close(call, IN_FLIGHT, NO_CAUSE, -1)
        for call in arrivals:  # an overloaded door has not come to these
            if call.arrival_ns + self.deadline_ns <= now:
                self.time_out(call, RootCause.router)
            else:
                self.close(call, IN_FLIGHT, NO_CAUSE, -1)
        if self.progress is not None:
            self.progress(self.done % 1024)
