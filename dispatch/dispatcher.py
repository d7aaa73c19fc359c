"""The dispatcher: choose and reserve in one step, keep exact books until every request has ended.

One object for both worlds. It has no clock of its own, does no I/O and starts no thread; every
call runs to its end, so that a decision and its reservation cannot be torn apart.
"""

from collections.abc import Callable
from typing import Any, Final

from dispatch.audit import check_books
from dispatch.books import Flight
from dispatch.breaker import Breaker
from dispatch.decision import Counts, Decision
from dispatch.errors import InputError
from dispatch.graph import TopologyGraph
from dispatch.hints import PLANS
from dispatch.journal import Journal
from dispatch.line import Line
from dispatch.outcomes import Reason
from dispatch.policy import Choice, Policy
from dispatch.record import Recorder
from dispatch.request import Request

_PLACED: Final = Reason.placed  # a member costs more than a global to look up
_HELD: Final = Reason.held

__all__ = ["Counts", "Decision", "Dispatcher", "Placed"]

Placed = Callable[[Request, Decision], None]


class Dispatcher:
    """Places requests by *policy* on *graph*, holds what does not fit, keeps the books.

    ``clock`` returns seconds. ``hold_limit`` bounds the requests held while nothing fits; 0 rejects
    at once. ``decision_time`` gives the duration of a decision (a calibration, in simulation);
    without it the clock is read twice. ``on_placed`` is called for held requests that got a device.
    ``breaker`` puts devices out that keep failing. Several dispatchers may share a graph (one set
    of reservations) or each have a fork of it (credit of their own).
    """

    def __init__(
        self,
        policy: Policy,
        graph: TopologyGraph,
        clock: Callable[[], float],
        *,
        journal: Journal | None = None,
        hold_limit: int = 0,
        seed: int = 0,
        decision_time: Callable[[Request], float] | None = None,
        on_placed: Placed | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        self.policy, self.graph, self.clock = policy, graph, clock
        self.journal, self.hold_limit, self.seed = journal, hold_limit, seed
        self.decision_time, self.on_placed = decision_time, on_placed
        self.breaker = breaker
        self.counts = Counts()
        self.flights: dict[int, Flight] = {}
        self._line = Line()
        self.held = self._line.held
        """Held requests by id, in the order of their arrival here."""
        self._choice = Choice(-1, Reason.held)
        self._choose = policy.choose
        self._signals = policy.signals
        self._record = Recorder(journal, graph, policy.signals) if journal is not None else None
        names = ("on_start", "on_first_token", "on_finish", "on_failure", "on_cancel")
        calls: list[Any] = [getattr(policy, name, None) for name in names]
        self._on_start, self._on_first_token, *calls = calls
        self._on_finish, self._on_failure, self._on_cancel = calls
        self._waking = False

    @property
    def n(self) -> Any:
        """Requests in flight per device (all dispatchers of the graph)."""
        return self.graph.n

    # -- arrivals ------------------------------------------------------------------------------

    def submit(self, request: Request) -> Decision:
        """Decide on *request* now: placed, held, or rejected with the reason."""
        if request.id in self.flights or request.id in self.held:
            raise InputError.at(f"request {request.id}", "is submitted while still in flight")
        now = self.clock()
        self.counts.submitted += 1
        if request.kernel_hint and request.kernel_hint not in PLANS:
            return self._reject(request, Reason.unknown_hint, now)
        if self.held and self._line_remains((request.model, request.group), now):
            return self._hold(request, now, 0)  # no one overtakes those that wait
        try:
            decision = self._decide(request, now)
        except BaseException:  # a policy of the user's own: the books balance all the same
            self.counts.submitted -= request.id not in self.flights
            raise
        if decision is not None:
            return decision
        return self._hold(request, now, self._choice.candidates)

    def _decide(self, request: Request, now: float) -> Decision | None:
        """Place or reject *request*; None where it would have to be held."""
        graph = self.graph
        if graph.source is not None:
            graph.source.refresh(now, self._signals)
        if graph.watches:
            graph.age(now)
        if self.breaker is not None and now >= self.breaker.next_s:
            self.breaker.release(now)
        choice = self._choice = self._choose(request, graph, now)
        device = choice.device
        if device < 0:
            if choice.reason is _HELD:
                return None
            reason = choice.reason if choice.reason is not _PLACED else Reason.no_device
            self.counts.rejected += 1
            return self._refuse(request, reason, now, choice.candidates)
        may = graph.eligible(request.model, request.group)
        if device >= graph.count or not may.cells[device] or device in request.tried:
            raise self._ineligible(request, device)
        need = choice.need_bytes
        if need < 0.0:
            need = graph.need_bytes(request, device)
        record = self._record
        room = graph.room_cells[device] if record is not None else 0.0
        flight = graph.take(request, device, need, choice.cached_tokens)
        self.flights[request.id] = flight
        self.counts.placed += 1
        if self._on_start is not None:
            self._on_start(request, device, now)
        took = self.clock() - now if self.decision_time is None else self.decision_time(request)
        if record is not None:
            record.placed(request, now, took, choice, need, room)
        return Decision(device, _PLACED, flight.generation, request, took)

    def _ineligible(self, request: Request, device: int) -> InputError:
        """Return the error of a policy that names a device which may not take *request*."""
        return InputError.at(
            f"policy {self.policy.name}",
            f"chose device {device} for request {request.id}, which it may not take",
            "choose one of graph.eligible(request.model, request.group), none of request.tried",
        )

    def _reject(self, request: Request, reason: Reason, now: float) -> Decision:
        self.counts.rejected += 1
        return self._refuse(request, reason, now)

    def _refuse(
        self, request: Request, reason: Reason, now: float, candidates: int = 0
    ) -> Decision:
        took = self.clock() - now if self.decision_time is None else self.decision_time(request)
        if self._record is not None:
            self._record.refused(request, now, took, reason, candidates)
        return Decision(-1, reason, -1, request, took)

    # -- holding -------------------------------------------------------------------------------

    def _hold(self, request: Request, now: float, candidates: int) -> Decision:
        if now >= request.deadline_s:
            return self._reject(request, Reason.deadline, now)
        if len(self.held) >= self.hold_limit:
            return self._reject(request, Reason.queue_full, now)
        self._line.add(request)
        return self._refuse(request, Reason.held, now, candidates)

    def wake(self) -> int:
        """Place held requests in the order of arrival as far as they fit; return how many.

        Runs by itself whenever a request ends; call it after new samples while anything is held.
        Within a (model, group) class nobody overtakes; classes do not wait for each other.
        """
        if not self.held or self._waking:
            return 0
        self._waking = True
        woken = 0
        try:
            now = self.clock()
            for key in self._line.classes():
                woken += self._drain(key, now)
        finally:
            self._waking = False
        return woken

    def _line_remains(self, key: tuple[str, str], now: float) -> bool:
        """Whether anyone of a class still waits, after a try by what is known now."""
        if self._line.first(key) is None:
            return False
        if not self._waking:
            self._waking = True
            try:
                self._drain(key, now)
            finally:
                self._waking = False
        return self._line.first(key) is not None

    def _drain(self, key: tuple[str, str], now: float) -> int:
        woken = 0
        while (request := self._line.first(key)) is not None:
            if now >= request.deadline_s:
                self._expire(request, now)
                continue
            decision = self._decide(request, now)
            if decision is None:
                break
            del self.held[request.id]
            woken += decision.device >= 0
            if self.on_placed is not None:
                self.on_placed(request, decision)
        return woken

    def _expire(self, request: Request, now: float) -> Decision:
        del self.held[request.id]
        self.counts.expired += 1
        decision = self._refuse(request, Reason.deadline, now)
        if self.on_placed is not None:
            self.on_placed(request, decision)
        return decision

    def expire(self, now_s: float) -> list[Request]:
        """Give up the held requests whose deadline has passed by *now_s*; return them.

        ``on_placed`` is told of each, with device -1 and reason ``deadline``.
        """
        late = [r for r in self.held.values() if r.deadline_s <= now_s]
        for request in late:
            self._expire(request, now_s)
        return late

    # -- the life of a placed request ------------------------------------------------------------

    def started(self, request_id: int, attempt: int | None = None) -> bool:
        """The engine has allocated the request's memory; False where it is not in flight."""
        flight = self.flights.get(request_id)
        if flight is None or attempt is not None:
            flight = self._flying(request_id, attempt)
            if flight is None:
                return False
        self.graph.confirm(flight, self.clock())
        return True

    def first_token(self, request_id: int, attempt: int | None = None) -> bool:
        """The first token is out: prefill is done, and a retry would repeat what was streamed.

        A prefill replica is done with the request here; its decode is a request of its own.
        """
        flight = self.flights.get(request_id)
        if flight is None or attempt is not None:
            flight = self._flying(request_id, attempt)
            if flight is None:
                return False
        self.graph.first_token(flight)
        if self._on_first_token is not None:
            self._on_first_token(flight.request, flight.device, self.clock())
        if self.graph.hands_over[flight.device]:
            self.finished(request_id, attempt)
        return True

    def finished(self, request_id: int, attempt: int | None = None) -> bool:
        """The request ended well. A late, duplicate or unknown end changes nothing."""
        flight = self._end(request_id, attempt)
        if flight is None:
            return False
        self.counts.finished += 1
        if self.breaker is not None:
            self.breaker.success(flight.device)
        if self._on_finish is not None:
            self._on_finish(flight.request, flight.device, self.clock())
        if self.held:
            self.wake()
        return True

    def failed(self, request_id: int, fault: bool = False, attempt: int | None = None) -> bool:
        """The attempt failed; *fault* blames the device (a client's error is not its fault)."""
        flight = self._end(request_id, attempt)
        if flight is None:
            return False
        self.counts.failed += 1
        if fault and self.breaker is not None:
            self.breaker.fault(flight.device, self.clock())
        if self._on_failure is not None:
            self._on_failure(flight.request, flight.device, self.clock(), fault)
        if self.held:
            self.wake()
        return True

    def cancelled(self, request_id: int) -> bool:
        """The client left, whether the request is in flight or held."""
        if self.held.pop(request_id, None) is not None:
            self.counts.left += 1
            return True
        flight = self._end(request_id, None)
        if flight is None:
            return False
        self.counts.cancelled += 1
        if self._on_cancel is not None:
            self._on_cancel(flight.request, flight.device, self.clock())
        if self.held:
            self.wake()
        return True

    def _flying(self, request_id: int, attempt: int | None) -> Flight | None:
        """Return the flight of that request and attempt; None, and counted, where there is none."""
        flight = self.flights.get(request_id)
        if flight is None or (attempt is not None and flight.request.attempt != attempt):
            self.counts.stray += 1
            return None
        return flight

    def _end(self, request_id: int, attempt: int | None) -> Flight | None:
        flight = self.flights.get(request_id)
        if flight is None or attempt is not None:
            flight = self._flying(request_id, attempt)
            if flight is None:
                return None
        del self.flights[request_id]
        self.graph.release(flight)
        return flight

    def check_books(self) -> None:
        """Raise InvariantError unless every request is accounted for, once."""
        check_books([self])
