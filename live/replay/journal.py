"""A replay as a journal: what the client saw, completed by the server's own rows."""

import math
from typing import Any

from dispatch.journal import REQUESTS, Journal
from dispatch.outcomes import Outcome, RootCause
from live.replay.run import Replay
from traces.trace import Trace

_FROM_SERVER = (
    "root_cause",
    "attempts",
    "oom_events",
    "preemptions",
    "device",
    "fitting_device",
    "door_wait_s",
    "door_service_s",
    "wasted_s",
    "cached_tokens",
)
_SERVER_TIMES = ("decision_start_s", "decision_end_s", "started_s")
_BY_CLIENT = {
    Outcome.oom: RootCause.fleet_full,
    Outcome.rejected_context: RootCause.context,
    Outcome.failed: RootCause.fault,
}


def write(
    run: Replay,
    trace: Trace,
    journal: Journal,
    server: dict[str, Any] | None = None,
    server_origin_s: float = 0.0,
) -> None:
    """Append the replay to *journal*; *server* are the door's tables, their clock shifted to ours.

    Server rows carry the trace row as request id (``x-request-id: replay-N``).
    """
    shift_s = server_origin_s - run.origin_s
    known = _by_request(server)
    for at, seen in enumerate(run.seen):
        row = _client_row(run, trace, at)
        if (there := known.get(seen.row)) is not None:
            row |= {name: there[name] for name in _FROM_SERVER}
            row |= {name: there[name] + shift_s for name in _SERVER_TIMES}
            row["decision_start_s"] = max(row["decision_start_s"], seen.planned_s)
        journal.request(*(row[name] for name in REQUESTS))
    if server is not None:
        for table in ("decisions", "devices"):
            frame = server[table]
            frame = frame.assign(time_s=frame.time_s + shift_s)
            if len(frame):
                journal.columns(table, {name: frame[name].to_numpy() for name in frame.columns})


def _by_request(server: dict[str, Any] | None) -> dict[int, dict[str, Any]]:
    if server is None:
        return {}
    return {int(row["request"]): row for row in server["requests"].to_dict("records")}


def _client_row(run: Replay, trace: Trace, at: int) -> dict[str, Any]:
    seen = run.seen[at]
    session = trace.session[at] if trace.session is not None else -1
    hint = _name(trace, trace.kernel_hint, at)
    nan = math.nan
    return {
        "request": seen.row,
        "source_row": int(trace.source_row[at]) if trace.source_row is not None else at + 1,
        "arrival_s": seen.planned_s,
        "lag_s": seen.lag_s,
        "prompt_tokens": int(trace.prompt_tokens[at]),
        "output_tokens": seen.output_tokens,
        "max_tokens": run.max_tokens[at],
        "model": _name(trace, trace.model, at),
        "session": int(session),
        "kernel_hint": hint,
        "outcome": int(seen.outcome),
        "root_cause": int(_BY_CLIENT.get(seen.outcome, RootCause.none)),
        "attempts": 1,
        "oom_events": int(seen.outcome == Outcome.oom),
        "preemptions": 0,
        "device": -1,
        "fitting_device": -1,
        "decision_start_s": seen.sent_s,
        "decision_end_s": nan,
        "started_s": nan,
        "first_token_s": seen.first_token_s,
        "end_s": seen.end_s,
        "door_wait_s": nan,
        "door_service_s": nan,
        "wasted_s": 0.0,
        "cached_tokens": 0,
    }


def _name(trace: Trace, column: Any, at: int) -> str:
    return trace.names[column[at]] if column is not None and column[at] >= 0 else ""
