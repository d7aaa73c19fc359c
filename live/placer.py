"""The direct path: the shared dispatcher on an event loop, devices behind it, a journal beside it.

Everything here runs on the loop's thread; devices reach it by ``call_soon_threadsafe``.
"""

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dispatch.dispatcher import Decision, Dispatcher
from dispatch.graph import TopologyGraph
from dispatch.journal import Journal
from dispatch.outcomes import Outcome, Reason
from dispatch.registry import policy
from dispatch.request import Request
from live.config import LiveConfig
from live.device import Device, DeviceLost, build_devices
from live.engine import Deliver
from live.flow import TIMED_OUT, Flow
from live.record import Record, Recorder
from live.refusals import refusal, request_id
from live.sequence import Event, Job, Kind
from live.snapshot import Snapshot
from live.telemetry.ring import rings

_FINAL = {
    Kind.finished: Outcome.finished,
    Kind.oom: Outcome.oom,
    Kind.failed: Outcome.failed,
    Kind.cancelled: Outcome.cancelled,
}

_AGAIN_S = 0.5  # an unchanged snapshot is taken again after so long, to show that it is still true


@dataclass(slots=True)
class _Flight:
    request: Request
    job: Job
    flow: Flow
    record: Record
    device: int = -1
    satisfied: bool = False
    expired: bool = False
    timer: asyncio.TimerHandle | None = None


class Placer:
    """Backend of the direct door: places, hands over, follows each request to its end."""

    def __init__(self, config: LiveConfig, journal: Journal | None = None) -> None:
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.origin_s = time.monotonic()
        self._flights: dict[int, _Flight] = {}
        self._requests = 0
        self.devices: list[Device] = build_devices(
            config.devices, config.engine, config.model, self._deliver_for
        )
        infos = [device.info() for device in self.devices]
        for members in rings(config.devices).values():
            for at in members:  # the graph ranks rings of those that have more than one GPU
                infos[at] = replace(infos[at], gpus=len(members))
        self.graph = TopologyGraph(infos)
        self._seen: list[Snapshot | None] = [None] * len(infos)
        self._seen_s = [-math.inf] * len(infos)
        self.dispatcher = Dispatcher(
            policy(config.policy.name, config.policy.params, seed=config.seed),
            self.graph,
            self.now_s,
            journal=journal,
            hold_limit=config.wait.hold_limit,
            seed=config.seed,
        )
        self.dispatcher.on_placed = self._placed_later
        self.recorder = Recorder(journal, self.views, self.graph)

    def now_s(self) -> float:
        """Return seconds since the start of this run."""
        return time.monotonic() - self.origin_s

    @property
    def model_name(self) -> str:
        """Name that the API serves."""
        return self.graph.devices[0].model

    @property
    def context_tokens(self) -> int:
        """Most tokens of prompt and output together."""
        return self.devices[0].model.shape.context_tokens

    @property
    def vocab(self) -> int:
        """Number of token ids."""
        return self.devices[0].model.shape.vocab

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._flights)

    def views(self) -> list[Snapshot]:
        """Return the latest snapshot of every device."""
        return [device.seen()[0] for device in self.devices]

    def health(self) -> list[tuple[str, bool]]:
        """Return each device's name and whether it takes requests."""
        return [(device.setup.name, device.up) for device in self.devices]

    def next_id(self, headers: Mapping[str, str]) -> int:
        """Return the id of the next request: a replay's own, else the next free one."""
        self._requests += 1
        return request_id(headers, self._requests, self._flights)

    def open(
        self, request: Request, job: Job, headers: Mapping[str, str], received_s: float
    ) -> Flow:
        """Place *request* and hand *job* to its device, or hold it; raise :class:`Refused`."""
        flow = Flow(request.id, self.config.limits.stream_buffer, self._drop)
        record = self.recorder.begin(request, received_s - self.origin_s)
        flight = _Flight(request, job, flow, record)
        deadline_s = self.config.wait.deadline_s
        request.deadline_s = request.arrival_s + deadline_s
        decision = self.dispatcher.submit(request)
        record.decided(self.now_s())
        if decision.device < 0 and decision.reason != Reason.held:
            self.recorder.end(record, Outcome.rejected, self.now_s())
            raise refusal(decision.reason)
        self._flights[request.id] = flight
        flight.timer = self.loop.call_later(
            max(0.0, request.deadline_s - self.now_s()), self._expire, request.id
        )
        if decision.device >= 0:
            self._hand_over(flight, decision)
        return flow

    # -- from the dispatcher and the devices ----------------------------------------------------

    def _placed_later(self, request: Request, decision: Decision) -> None:
        flight = self._flights.get(request.id)
        if flight is None:
            return
        if decision.device >= 0:
            self._hand_over(flight, decision)
            return
        why = str(refusal(decision.reason))
        late = decision.reason == Reason.deadline
        self._close(flight, Outcome.timed_out if late else Outcome.rejected)
        flight.flow.push(Event(request.id, Kind.failed, time.monotonic(), (), why))

    def _hand_over(self, flight: _Flight, decision: Decision) -> None:
        flight.device = decision.device
        flight.record.device = decision.device
        flight.record.decided(self.now_s())
        flight.flow.handed_over_s = time.monotonic()
        flight.record.handed_over_s = flight.flow.handed_over_s - self.origin_s
        try:
            self.devices[decision.device].submit(flight.job)
        except DeviceLost as lost:
            gone = Event(flight.request.id, Kind.failed, time.monotonic(), (), str(lost))
            self.loop.call_soon(self._on_events, decision.device, [gone])

    def _deliver_for(self, device: int) -> Deliver:
        def deliver(events: list[Event]) -> None:
            if not self.loop.is_closed():
                self.loop.call_soon_threadsafe(self._on_events, device, events)

        return deliver

    def _on_events(self, device: int, events: list[Event]) -> None:
        for event in events:
            flight = self._flights.get(event.id)
            if flight is None or flight.device != device:
                continue
            if event.kind == Kind.started:
                flight.record.started_s = event.time_s - self.origin_s
                self.dispatcher.started(event.id)
            elif event.kind == Kind.tokens:
                if not flight.record.output_tokens:
                    flight.record.first_token_s = event.time_s - self.origin_s
                    self.dispatcher.first_token(event.id)
                flight.record.output_tokens += len(event.tokens)
            elif self._ended(flight, event):
                continue
            flight.flow.push(event)

    def _ended(self, flight: _Flight, event: Event) -> bool:
        """Book the end of an attempt; True where another attempt follows."""
        kind, request = event.kind, flight.request
        flight.record.preemptions += event.preemptions
        if flight.satisfied or kind == Kind.finished:
            self.dispatcher.finished(request.id)
            self._close(flight, Outcome.finished)
            return False
        if kind == Kind.cancelled:
            self.dispatcher.cancelled(request.id)
            outcome = Outcome.timed_out if flight.expired else Outcome.cancelled
            event.reason = TIMED_OUT if flight.expired else event.reason
            self._close(flight, outcome)
            return False
        self.dispatcher.failed(request.id, fault=kind == Kind.failed)
        flight.record.oom_events += kind == Kind.oom
        if kind == Kind.failed and not self.devices[flight.device].up:
            self.graph.set_health(flight.device, False, self.now_s())
        if self._retry(flight, kind):
            return True
        self._close(flight, _FINAL[kind])
        return False

    def _retry(self, flight: _Flight, kind: Kind) -> bool:
        wait, request = self.config.wait, flight.request
        allowed = ("oom" if kind == Kind.oom else "fault") in wait.retry_on
        if not allowed or request.attempt >= wait.retries or flight.record.output_tokens:
            return False
        flight.record.wasted(self.now_s())
        flight.request = replace(
            request, attempt=request.attempt + 1, tried=(*request.tried, flight.device)
        )
        decision = self.dispatcher.submit(flight.request)
        if decision.device < 0 and decision.reason != Reason.held:
            return False
        if decision.device >= 0:
            self._hand_over(flight, decision)
        return True

    # -- from the door --------------------------------------------------------------------------

    def _drop(self, id_: int, satisfied: bool) -> None:
        flight = self._flights.get(id_)
        if flight is None:
            return
        flight.satisfied = satisfied
        if id_ in self.dispatcher.held:
            self.dispatcher.cancelled(id_)
            self._close(flight, Outcome.cancelled)
        else:
            self.devices[flight.device].cancel(id_)

    def _expire(self, id_: int) -> None:
        flight = self._flights.get(id_)
        if flight is None:
            return
        flight.expired = True
        flight.timer = None
        if id_ in self.dispatcher.held:
            self.dispatcher.expire(self.now_s())
        else:
            self.devices[flight.device].cancel(id_)

    def _close(self, flight: _Flight, outcome: Outcome) -> None:
        del self._flights[flight.request.id]
        if flight.timer is not None:
            flight.timer.cancel()
        self.recorder.end(flight.record, outcome, self.now_s())

    def observe(self) -> None:
        """Take the devices' latest snapshots into the graph and wake what fits now.

        A device that does nothing shows the same snapshot each time: that one is taken again only
        every ``_AGAIN_S``, which tells as much and costs a tenth.
        """
        graph, paged = self.graph, self.config.engine.kv == "paged"
        for at, device in enumerate(self.devices):
            seen, source_s = device.seen()
            if not device.up:
                graph.set_health(at, False, self.now_s())
            if seen is self._seen[at] and source_s < self._seen_s[at] + _AGAIN_S:
                continue
            self._seen[at], self._seen_s[at] = seen, source_s
            source_s -= self.origin_s
            graph.observe_memory(at, seen.free_bytes, seen.block_bytes, source_s)
            graph.observe_queue(at, seen.waiting, seen.running, source_s)
            if paged:
                graph.observe_kv(at, seen.kv_usage_ratio, seen.free_blocks, source_s)
        if self.dispatcher.held:
            self.dispatcher.expire(self.now_s())
            self.dispatcher.wake()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False where time ran out first."""
        limit = time.monotonic() + timeout_s
        while self._flights and time.monotonic() < limit:
            await asyncio.sleep(0.01)
        return not self._flights

    async def stop(self) -> None:
        """Stop the devices, let their last events arrive, and close the books."""
        for device in self.devices:
            await self.loop.run_in_executor(None, device.stop)
        for _ in range(3):
            await asyncio.sleep(0)
        self.dispatcher.check_books()
