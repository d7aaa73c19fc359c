"""Replay a trace open loop: arrivals as planned, never waiting for an answer."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from dispatch.errors import InputError
from dispatch.outcomes import Outcome
from live.replay.client import Client, Seen
from live.replay.prompts import Prompts
from traces.trace import Trace

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Target:
    """A server: its base URL (without /v1), model, and whether it is one of ours."""

    url: str
    model: str
    ours: bool
    context_tokens: int = 4096
    vocab: int = 256
    api_key: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a trace is sent; ``lag_limit_s`` is where the p99 of send lag degrades the run."""

    max_tokens_default: int = 1024
    deadline_s: float = 30.0
    drain_s: float = 60.0
    lag_limit_s: float = 0.01
    seed: int = 0
    max_error_ratio: float = 1.0
    """Stop sending where more than this share of the requests that ended did not finish."""


@dataclass(slots=True)
class Replay:
    """What came of a replay."""

    seen: list[Seen]
    origin_s: float
    offered_s: float
    max_tokens: list[int]
    problems: list[str] = field(default_factory=list)

    def lag_s(self, quantile: float) -> float:
        """Return a quantile of the send lag."""
        lags = [s.lag_s for s in self.seen if s.lag_s == s.lag_s]
        return float(np.quantile(lags, quantile)) if lags else float("nan")

    def notes(self) -> list[str]:
        """Return what a reader of the latencies must know; nothing of it spoils the run."""
        tokens, chunks = (
            sum(getattr(s, n) for s in self.seen) for n in ("output_tokens", "chunks")
        )
        if chunks and tokens > 1.05 * chunks:
            return [
                f"{tokens / chunks:.2f} tokens a chunk: gaps between chunks are no gaps between "
                "tokens; read TPOT, (last - first token) / (tokens - 1)"
            ]
        return []

    def summary(self) -> dict[str, Any]:
        """Return counts, rates and lags as a JSON-able dict."""
        outcomes = {o.name: sum(s.outcome == o for s in self.seen) for o in Outcome}
        tokens = sum(s.output_tokens for s in self.seen)
        chunks = sum(s.chunks for s in self.seen)
        sent = [s.sent_s for s in self.seen if s.sent_s == s.sent_s]
        span = max(sent) - min(sent) if len(sent) > 1 else 0.0
        planned = self.seen[-1].planned_s - self.seen[0].planned_s if self.seen else 0.0
        return {
            "offered": len(self.seen),
            "outcomes": {name: count for name, count in outcomes.items() if count},
            "planned_rate_per_s": (len(self.seen) - 1) / planned if planned else None,
            "achieved_rate_per_s": (len(sent) - 1) / span if span else None,
            "lag_p50_ms": self.lag_s(0.5) * 1e3,
            "lag_p99_ms": self.lag_s(0.99) * 1e3,
            "lag_max_ms": self.lag_s(1.0) * 1e3,
            "tokens_per_chunk": tokens / chunks if chunks else None,
            "in_flight_max": _most_at_once(self.seen),
            "notes": self.notes(),
            "degraded": bool(self.problems),
            "problems": self.problems,
        }


def _most_at_once(seen: list[Seen]) -> int:
    """Return the most requests that were sent and had not ended at any one time."""
    sent = [s for s in seen if s.sent_s == s.sent_s]
    edges = [(s.sent_s, 1) for s in sent] + [(s.end_s, -1) for s in sent if s.end_s == s.end_s]
    most = now = 0
    for _, change in sorted(edges):
        now += change
        most = max(most, now)
    return most


async def find_target(url: str, api_key: str = "", model: str = "") -> Target:
    """Ask the server at *url* what it serves and whether it is one of ours."""
    base = url.rstrip("/").removesuffix("/v1")
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with httpx.AsyncClient(base_url=base, headers=headers, timeout=10) as http:
            answer = await http.get("/v1/models")
            answer.raise_for_status()
            served = answer.json()["data"]
    except (httpx.HTTPError, ValueError, KeyError) as error:
        raise InputError.at(url, f"does not list its models: {error}", "is it running?") from None
    names = [entry["id"] for entry in served]
    if model and model not in names:
        raise InputError.at(url, f"does not serve {model!r}", f"it serves {', '.join(names)}")
    entry = next(e for e in served if not model or e["id"] == model)
    ours = entry.get("owned_by") == "zerolayer"
    limit = int(entry.get("context_tokens") or entry.get("max_model_len") or 4096)
    return Target(base, entry["id"], ours, limit, int(entry.get("vocab") or 256), api_key)


async def replay(
    trace: Trace, target: Target, plan: Plan, progress: Progress | None = None
) -> Replay:
    """Send every row of *trace* at its arrival; wait ``drain_s`` after the last."""
    prompts = Prompts(trace, min(target.vocab, 256), plan.seed)
    max_tokens = [_max_tokens(trace, row, target, plan) for row in range(len(trace))]
    headers = {"authorization": f"Bearer {target.api_key}"} if target.api_key else {}
    seen = [Seen(row, float(trace.arrival_s[row])) for row in range(len(trace))]
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=target.url,
                headers=headers,
                timeout=httpx.Timeout(plan.deadline_s, pool=None),
                limits=httpx.Limits(max_connections=None, max_keepalive_connections=256),
            )
        )
        await http.get("/healthz")  # the first connection is not the first request's to pay
        bodies = _bodies(trace, target, prompts, max_tokens)
        origin_s = time.monotonic() + 0.05
        client = Client(http, origin_s)
        tasks = await _send_all(trace, seen, client, bodies, plan, progress)
        if tasks:
            await asyncio.wait(tasks, timeout=plan.drain_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    run = Replay(seen, origin_s, trace.span_s, max_tokens)
    _judge(run, plan)
    return run


async def _send_all(
    trace: Trace,
    seen: list[Seen],
    client: Client,
    bodies: "Bodies",
    plan: Plan,
    progress: Progress | None,
) -> "list[asyncio.Task[None]]":
    tasks: list[asyncio.Task[None]] = []
    for row, one in enumerate(seen):
        if not await _due(client, seen, row, plan):
            break
        body, headers = bodies(row)
        tasks.append(asyncio.ensure_future(_bounded(client, one, body, headers, plan)))
        if progress is not None and row % 64 == 0:
            progress(row, len(trace))
    if progress is not None:
        progress(len(tasks), len(trace))
    return tasks


_LOOK_S = 0.25  # between two looks at the error rate
_LEAST_ENDED = 50  # before that a share of errors says little


async def _due(client: Client, seen: list[Seen], row: int, plan: Plan) -> bool:
    """Wait for the planned arrival of *row*; False where the replay is to stop before it."""
    watched = plan.max_error_ratio < 1.0
    if watched and row % 100 == 0 and _failing(seen, row, plan):
        return False
    while (wait_s := seen[row].planned_s - client.now_s()) > 0:
        await asyncio.sleep(min(wait_s, _LOOK_S) if watched else wait_s)
        if watched and wait_s > _LOOK_S and _failing(seen, row, plan):
            return False
    return True


def _failing(seen: list[Seen], sent: int, plan: Plan) -> bool:
    ended = [s.outcome for s in seen[:sent] if s.outcome != Outcome.in_flight]
    bad = sum(outcome != Outcome.finished for outcome in ended)
    return len(ended) >= _LEAST_ENDED and bad > plan.max_error_ratio * len(ended)


async def _bounded(
    client: Client, one: Seen, body: dict[str, Any], headers: dict[str, str], plan: Plan
) -> None:
    """Send one; no success ``deadline_s`` after its planned arrival is a time-out."""
    left_s = one.planned_s + plan.deadline_s - client.now_s()
    try:
        await asyncio.wait_for(client.send(one, body, headers), max(0.001, left_s))
    except TimeoutError:
        one.outcome, one.end_s = Outcome.timed_out, client.now_s()


Bodies = Callable[[int], tuple[dict[str, Any], dict[str, str]]]


def _bodies(trace: Trace, target: Target, prompts: Prompts, max_tokens: list[int]) -> Bodies:
    """Return what makes body and headers of a row; only our doors learn the true length apart."""

    def make(row: int) -> tuple[dict[str, Any], dict[str, str]]:
        output = int(trace.output_tokens[row])
        body: dict[str, Any] = {
            "model": target.model,
            "prompt": prompts.ids(row),
            "stream": True,
            "stream_options": {"include_usage": True},
            "ignore_eos": True,
        }
        if target.ours:
            body |= {"max_tokens": max_tokens[row], "output_tokens": min(output, max_tokens[row])}
        else:
            body["max_tokens"] = output
        headers = {"x-request-id": f"replay-{row}"}
        for header, column in (
            ("x-kernel-hint", trace.kernel_hint),
            ("x-precision-preference", trace.precision),
            ("x-model-hint", trace.model),
        ):
            if column is not None and column[row] >= 0:
                headers[header] = trace.names[column[row]]
        return body, headers

    return make


def _max_tokens(trace: Trace, row: int, target: Target, plan: Plan) -> int:
    """Return max_tokens by the rule that never looks at the true output."""
    if trace.max_tokens is not None and trace.max_tokens[row] > 0:
        return int(trace.max_tokens[row])
    room = target.context_tokens - int(trace.prompt_tokens[row])
    return max(1, min(plan.max_tokens_default, room))


def _judge(run: Replay, plan: Plan) -> None:
    lag = run.lag_s(0.99)
    if lag > plan.lag_limit_s:
        run.problems.append(
            f"sent late: p99 of send lag {lag * 1e3:.1f} ms exceeds {plan.lag_limit_s * 1e3:.1f} ms"
        )
    unsent = sum(s.sent_s != s.sent_s for s in run.seen)
    if unsent:
        run.problems.append(
            f"stopped: more than {plan.max_error_ratio:.0%} of the answers were errors; "
            f"{unsent} requests were never sent"
        )
    left = sum(s.outcome == Outcome.in_flight for s in run.seen) - unsent
    if left:
        run.problems.append(f"{left} requests were still in flight when the drain ended")
