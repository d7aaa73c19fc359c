"""One request of a replay: sent, read token by token, and noted."""

import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from dispatch.outcomes import Outcome

_NAN = math.nan
_CODES = {
    "gpu_out_of_memory": Outcome.oom,
    "timeout": Outcome.timed_out,
    "deadline": Outcome.timed_out,
    "context_length_exceeded": Outcome.rejected_context,
    "device_failed": Outcome.failed,
    "slow_reader": Outcome.failed,
}


@dataclass(slots=True)
class Seen:
    """What the client saw of one row; times in seconds of the run, NaN for what never came."""

    row: int
    planned_s: float
    sent_s: float = _NAN
    first_token_s: float = _NAN
    end_s: float = _NAN
    output_tokens: int = 0
    outcome: Outcome = Outcome.in_flight
    chunks: int = 0
    error: str = ""
    kernel_dispatch_ms: float = _NAN
    fragmentation: float = _NAN
    token_times_s: list[float] = field(default_factory=list)

    @property
    def lag_s(self) -> float:
        """Actual send minus planned arrival."""
        return self.sent_s - self.planned_s


class Client:
    """Sends bodies to one server and reads their streams."""

    def __init__(self, http: httpx.AsyncClient, origin_s: float) -> None:
        self._http = http
        self._origin_s = origin_s

    def now_s(self) -> float:
        """Return seconds since the start of the run."""
        return time.monotonic() - self._origin_s

    async def send(self, seen: Seen, body: dict[str, Any], headers: dict[str, str]) -> None:
        """Send *body* and follow its stream to the end; never raises for what a server does."""
        seen.sent_s = self.now_s()
        try:
            async with self._http.stream(
                "POST", "/v1/completions", json=body, headers=headers
            ) as answer:
                if answer.status_code == 200:
                    await self._read(seen, answer)
                else:
                    await answer.aread()
                    self._refused(seen, answer)
        except httpx.TimeoutException:
            seen.outcome, seen.error = Outcome.timed_out, "no answer in time"
        except (httpx.HTTPError, ValueError) as error:
            seen.outcome, seen.error = Outcome.failed, f"{type(error).__name__}: {error}"
        seen.end_s = self.now_s() if seen.outcome != Outcome.finished else seen.end_s

    async def _read(self, seen: Seen, answer: httpx.Response) -> None:
        async for line in answer.aiter_lines():
            if not line.startswith("data: "):
                continue
            data = line[6:]
            if data == "[DONE]":
                done = seen.output_tokens > 0
                seen.outcome = Outcome.finished if done else Outcome.failed
                return
            chunk = json.loads(data)
            if "error" in chunk:
                self._failed(seen, chunk["error"])
                return
            self._take(seen, chunk)
        seen.outcome, seen.error = Outcome.failed, "the stream ended without [DONE]"

    def _take(self, seen: Seen, chunk: dict[str, Any]) -> None:
        now = self.now_s()
        if chunk.get("choices"):
            seen.chunks += 1
            seen.end_s = now
            if math.isnan(seen.first_token_s):
                seen.first_token_s = now
            seen.token_times_s.append(now)
            seen.output_tokens = max(seen.output_tokens, seen.chunks)
        if (usage := chunk.get("usage")) is not None:
            seen.output_tokens = int(usage.get("completion_tokens") or seen.chunks)
            wait, score = (
                usage.get("kernel_dispatch_time_ms"),
                usage.get("memory_fragmentation_score"),
            )
            seen.kernel_dispatch_ms = _NAN if wait is None else float(wait)
            seen.fragmentation = _NAN if score is None else float(score)

    def _refused(self, seen: Seen, answer: httpx.Response) -> None:
        try:
            error = answer.json()["error"]
        except (ValueError, KeyError, TypeError):
            error = {"message": answer.text[:200], "code": None}
        self._failed(seen, error, answer.status_code)

    def _failed(self, seen: Seen, error: dict[str, Any], status: int = 500) -> None:
        seen.error = str(error.get("message"))[:300]
        known = _CODES.get(str(error.get("code")))
        if known is None and status in (408, 504):
            known = Outcome.timed_out
        if known is None and status in (400, 413) and "context" in seen.error.lower():
            known = Outcome.rejected_context
        if known is None:
            known = Outcome.rejected if status in (400, 404, 413, 429, 503) else Outcome.failed
        seen.outcome = known
