"""Backend of the legacy door: translate, pick by static weights, relay a gRPC stream.

It keeps the books with the same dispatcher and journal as the direct path, but decides as the
legacy layer did: the 47 keys, and no look at any device.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import grpc

from dispatch.dispatcher import Decision, Dispatcher
from dispatch.graph import TopologyGraph
from dispatch.journal import Journal
from dispatch.legacy import LegacyConfig, LegacyRouter, Translated
from dispatch.legacy.policy import legacy_devices, legacy_policy
from dispatch.outcomes import Outcome
from dispatch.request import Request
from live.config import LiveConfig
from live.flow import TIMED_OUT, Flow
from live.legacy import worker_pb2 as wire
from live.legacy.envelope import envelope
from live.legacy.workers import Workers
from live.record import Record, Recorder
from live.refusals import refusal, request_id
from live.sequence import Event, Job, Kind

_KINDS = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: (Kind.oom, "oom"),
    grpc.StatusCode.UNAVAILABLE: (Kind.failed, "fault"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (Kind.failed, "timeout"),
    grpc.StatusCode.CANCELLED: (Kind.cancelled, ""),
}
_OUTCOMES = {
    Kind.finished: Outcome.finished,
    Kind.oom: Outcome.oom,
    Kind.failed: Outcome.failed,
    Kind.cancelled: Outcome.cancelled,
}


@dataclass(slots=True)
class _Relay:
    request: Request
    job: Job
    flow: Flow
    record: Record
    rules: Translated
    task: "asyncio.Task[None] | None" = None
    satisfied: bool = False
    started: bool = False


class LegacyBackend:
    """The legacy router over *workers*."""

    def __init__(
        self, config: LiveConfig, workers: Workers, journal: Journal | None = None
    ) -> None:
        self.config = config
        self.workers = workers
        self.origin_s = time.monotonic()
        plain = [worker.info for worker in workers.items]
        legacy = LegacyConfig.from_settings(config.settings)
        self.router = LegacyRouter(legacy, {info.group for info in plain})
        infos = legacy_devices(self.router, plain)
        self.graph = TopologyGraph(infos)
        self.dispatcher = Dispatcher(
            legacy_policy(self.router, infos, seed=config.seed),
            self.graph,
            self.now_s,
            journal=journal,
            seed=config.seed,
        )
        self.recorder = Recorder(
            journal, lambda: [worker.snapshot for worker in workers.items], self.graph
        )
        self._relays: dict[int, _Relay] = {}
        self._requests = 0

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
        return self.workers.items[0].context_tokens

    @property
    def vocab(self) -> int:
        """Number of token ids."""
        return self.workers.items[0].vocab

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._relays)

    def health(self) -> list[tuple[str, bool]]:
        """Return each worker's device name and whether its process lives."""
        return [(worker.info.name, worker.up) for worker in self.workers.items]

    def next_id(self, headers: Mapping[str, str]) -> int:
        """Return the id of the next request: a replay's own, else the next free one."""
        self._requests += 1
        return request_id(headers, self._requests, self._relays)

    def open(
        self, request: Request, job: Job, headers: Mapping[str, str], received_s: float
    ) -> Flow:
        """Translate and pick, then start the relay; raise :class:`live.flow.Refused`."""
        rules = self.router.translate(
            headers,
            prompt_tokens=request.prompt_tokens,
            max_tokens=request.max_tokens,
            model=request.model,
        )
        record = self.recorder.begin(request, received_s - self.origin_s)
        if rules.reject is not None:
            record.decided(self.now_s())
            self.recorder.end(record, Outcome.rejected, self.now_s())
            raise refusal(rules.reject)
        # The translated model chose the group; the workers serve one model under its own name.
        request.group, request.precision = rules.group, rules.precision
        request.deadline_s = request.arrival_s + self.config.wait.deadline_s
        flow = Flow(request.id, self.config.limits.stream_buffer, self._drop)
        relay = _Relay(request, job, flow, record, rules)
        decision = self.dispatcher.submit(request)
        record.decided(self.now_s())
        if decision.device < 0:
            self.recorder.end(record, Outcome.rejected, self.now_s())
            raise refusal(decision.reason)
        self._relays[request.id] = relay
        relay.task = asyncio.ensure_future(self._run(relay, decision))
        return flow

    async def _run(self, relay: _Relay, decision: Decision) -> None:
        """Relay attempt after attempt until one counts."""
        while True:
            kind, failure, reason = await self._attempt(relay, decision.device)
            request = relay.request
            relay.record.oom_events += kind == Kind.oom
            if kind == Kind.finished:
                self.dispatcher.finished(request.id)
            elif kind == Kind.cancelled:
                self.dispatcher.cancelled(request.id)
            else:
                self.dispatcher.failed(request.id, fault=True)
                # Only a connection that never came about leaves the body unsent.
                unsent = failure == "fault" and not relay.started and "connect" in reason.lower()
                if not relay.record.output_tokens and relay.rules.may_retry(
                    failure, request.attempt, body_sent=not unsent
                ):
                    relay.record.wasted(self.now_s())
                    relay.request = replace(
                        request,
                        attempt=request.attempt + 1,
                        tried=(*request.tried, decision.device),
                    )
                    decision = self.dispatcher.submit(relay.request)
                    relay.record.decided(self.now_s())
                    if decision.device >= 0:
                        continue
            self._close(relay, kind, failure, reason)
            return

    async def _attempt(self, relay: _Relay, device: int) -> tuple[Kind, str, str]:
        """Run one call; return how it ended, its failure class, and the reason."""
        relay.record.device = device
        relay.started = False
        call = self.workers.items[device].stub.Generate(
            wire.Call(json_rpc=envelope(relay.job)), timeout=self._timeout_s(relay)
        )
        reason = None
        try:
            async for piece in call:  # to its very end: a call that is left early is reset
                self._note(relay, piece)
                if piece.kind == Kind.finished:
                    relay.record.preemptions += piece.preemptions
                    reason = piece.reason
            if reason is not None:
                return Kind.finished, "", reason
        except grpc.aio.AioRpcError as error:
            kind, failure = _KINDS.get(error.code(), (Kind.failed, "fault"))
            return kind, failure, TIMED_OUT if failure == "timeout" else str(error.details())
        except asyncio.CancelledError:
            call.cancel()
            return (Kind.finished if relay.satisfied else Kind.cancelled), "", "stop"
        return Kind.failed, "fault", "the worker's stream ended early"

    def _timeout_s(self, relay: _Relay) -> float:
        left_s = relay.request.deadline_s - self.now_s()
        return max(0.001, min(relay.rules.timeout_s, left_s))

    def _note(self, relay: _Relay, piece: Any) -> None:
        """Book what a piece says and hand its tokens on."""
        record, id_ = relay.record, relay.request.id
        if not relay.started:
            relay.started = True
            relay.flow.handed_over_s = piece.handed_over_s
            record.started_s = piece.started_s - self.origin_s
            record.handed_over_s = piece.handed_over_s - self.origin_s
            self.dispatcher.started(id_)
            relay.flow.push(Event(id_, Kind.started, piece.started_s))
        if not piece.tokens:
            return
        if not record.output_tokens:
            record.first_token_s = piece.time_s - self.origin_s
            self.dispatcher.first_token(id_)
        tokens = tuple(piece.tokens)
        record.output_tokens += len(tokens)
        relay.flow.push(Event(id_, Kind.tokens, piece.time_s, tokens, "", piece.fragmentation))

    def _close(self, relay: _Relay, kind: Kind, failure: str, reason: str) -> None:
        self._relays.pop(relay.record.request.id, None)
        late = failure == "timeout"
        outcome = Outcome.timed_out if late else _OUTCOMES[kind]
        self.recorder.end(relay.record, outcome, self.now_s())
        now = time.monotonic()
        relay.flow.push(Event(relay.record.request.id, kind, now, (), reason))

    def _drop(self, id_: int, satisfied: bool) -> None:
        relay = self._relays.get(id_)
        if relay is not None and relay.task is not None:
            relay.satisfied = satisfied
            relay.task.cancel()

    async def watch(self, interval_s: float) -> None:
        """Keep the workers' snapshots fresh for the journal; no decision ever sees them."""
        while True:
            for worker in self.workers.items:
                if worker.up:
                    try:
                        await worker.describe()
                    except grpc.aio.AioRpcError:
                        continue
            await asyncio.sleep(interval_s)

    async def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False where time ran out first."""
        limit = time.monotonic() + timeout_s
        while self._relays and time.monotonic() < limit:
            await asyncio.sleep(0.01)
        return not self._relays

    async def stop(self) -> None:
        """End what is left and close the books."""
        tasks = [relay.task for relay in self._relays.values() if relay.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.dispatcher.check_books()
