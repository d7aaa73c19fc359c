"""Rows of the journal in the live world: requests at their end, devices window by window."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dispatch.graph import TopologyGraph
from dispatch.journal import Journal
from dispatch.outcomes import Outcome, RootCause
from dispatch.request import Request
from live.snapshot import Snapshot

Views = Callable[[], Sequence[Snapshot]]

_NAN = math.nan


@dataclass(slots=True)
class Record:
    """What the journal will say of one request; times in seconds of the run."""

    request: Request
    received_s: float
    decision_start_s: float
    decision_end_s: float = _NAN
    started_s: float = _NAN
    first_token_s: float = _NAN
    output_tokens: int = 0
    device: int = -1
    oom_events: int = 0
    preemptions: int = 0
    wasted_s: float = 0.0
    attempts: int = 1
    attempt_from_s: float = _NAN
    handed_over_s: float = _NAN

    def decided(self, now_s: float) -> None:
        """The decision of this attempt is made."""
        self.decision_end_s = self.attempt_from_s = now_s

    def wasted(self, now_s: float) -> None:
        """This attempt is thrown away and another follows."""
        self.wasted_s += now_s - self.attempt_from_s
        self.attempts += 1
        self.started_s = self.first_token_s = _NAN


class Recorder:
    """Writes rows where there is a journal; works out root causes from the devices' memory."""

    def __init__(self, journal: Journal | None, views: Views, graph: TopologyGraph) -> None:
        self.journal = journal
        self.views = views
        self.graph = graph
        self.outcomes = dict.fromkeys(Outcome, 0)

    def begin(self, request: Request, received_s: float) -> Record:
        """Start the record of a request that the door received at *received_s*."""
        return Record(request, received_s, received_s)

    def end(self, record: Record, outcome: Outcome, now_s: float) -> None:
        """Write the row of a request that ended now."""
        self.outcomes[outcome] += 1
        if self.journal is None:
            return
        cause, fitting = self._cause(record, outcome)
        request = record.request
        self.journal.request(
            request.id,
            request.id,
            request.arrival_s,
            max(0.0, record.received_s - request.arrival_s),
            request.prompt_tokens,
            record.output_tokens,
            request.max_tokens,
            request.model,
            request.session,
            request.kernel_hint,
            outcome,
            cause,
            record.attempts,
            record.oom_events,
            record.preemptions,
            record.device,
            fitting,
            record.decision_start_s,
            record.decision_end_s,
            record.started_s,
            record.first_token_s,
            now_s,
            0.0,
            _first(record.handed_over_s, record.decision_end_s) - record.received_s,
            record.wasted_s,
            0,
        )

    def _cause(self, record: Record, outcome: Outcome) -> tuple[RootCause, int]:
        if outcome == Outcome.oom:
            return self._memory_cause(record)
        if outcome == Outcome.timed_out:
            started = record.started_s == record.started_s
            return (RootCause.none if started else RootCause.queue), -1
        if outcome == Outcome.cancelled:
            return RootCause.client, -1
        return (RootCause.fault if outcome == Outcome.failed else RootCause.none), -1

    def _memory_cause(self, record: Record) -> tuple[RootCause, int]:
        """Say why memory failed, from what every device has free right now."""
        views = self.views()
        needs = [self.graph.devices[at].need_bytes(record.request) for at in range(len(views))]
        for at, (view, need) in enumerate(zip(views, needs, strict=True)):
            if at != record.device and view.up and view.block_bytes >= need:
                return RootCause.memory_misjudged, at
        own, need = views[record.device], needs[record.device]
        if own.free_bytes >= need > own.block_bytes:
            return RootCause.fragmentation, -1
        return RootCause.fleet_full, -1


def _first(*times_s: float) -> float:
    """Return the first time that happened."""
    return next((t for t in times_s if not math.isnan(t)), _NAN)


class DeviceSeries:
    """Device rows: busy share exact from the worker, the rest means over the window's samples."""

    def __init__(self, journal: Journal, views: Views, origin_s: float) -> None:
        self._journal = journal
        self._views = views
        self._origin_s = origin_s
        self._open(time.monotonic())

    def _open(self, now_s: float) -> None:
        self._since_s = now_s
        views = self._views()
        self._busy = [seen.busy_s for seen in views]
        self._sums = [[0.0] * 6 for _ in views]
        self._samples = 0

    def sample(self, window_s: float = 1.0) -> None:
        """Take one sample of every device; write a row each when the window is full."""
        self._samples += 1
        for seen, sums in zip(self._views(), self._sums, strict=True):
            values = (
                seen.running,
                seen.waiting,
                seen.used_bytes,
                seen.free_bytes,
                seen.block_bytes,
                seen.fragmentation,
            )
            for at, value in enumerate(values):
                sums[at] += value
        if time.monotonic() - self._since_s >= window_s:
            self.close()

    def close(self) -> None:
        """Write the window so far, and begin the next."""
        now = time.monotonic()
        window_s = now - self._since_s
        if self._samples and window_s > 0:
            for at, (seen, sums) in enumerate(zip(self._views(), self._sums, strict=True)):
                busy = (seen.busy_s - self._busy[at]) / window_s
                means = [value / self._samples for value in sums]
                start_s = self._since_s - self._origin_s
                self._journal.device(at, start_s, window_s, min(1.0, busy), *means)
        self._open(now)
