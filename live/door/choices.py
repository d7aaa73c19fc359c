"""A completions request as its choices: open each, follow each, and say what it used."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dispatch.request import Request
from live.door.metrics import Metrics
from live.door.protocol import ApiError, Ask
from live.door.text import Text
from live.flow import TIMED_OUT, TOO_SLOW, Flow, Refused
from live.sequence import Event, Job, Kind


class Backend(Protocol):
    """What stands behind a door."""

    @property
    def model_name(self) -> str:
        """Name that the API serves."""

    @property
    def context_tokens(self) -> int:
        """Most tokens of prompt and output together."""

    @property
    def vocab(self) -> int:
        """Number of token ids."""

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""

    def next_id(self, headers: Mapping[str, str]) -> int:
        """Return the id of the next request."""

    def now_s(self) -> float:
        """Return seconds since the start of this run."""

    def health(self) -> list[tuple[str, bool]]:
        """Return each device's name and whether it takes requests."""

    def open(self, request: Request, job: Job, headers: Any, received_s: float) -> Flow:
        """Take the request, or raise :class:`live.flow.Refused`."""

    async def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is in flight; False where time ran out first."""


@dataclass(slots=True)
class Piece:
    """New text of one choice, with its finish reason on the last."""

    index: int
    text: str
    finish_reason: str | None = None


@dataclass(slots=True)
class Choice:
    """One prompt on its way through one flow."""

    index: int
    flow: Flow
    text: Text
    prompt: str
    last_s: float = 0.0
    fragmentation: float | None = None


class Choices:
    """All choices of one request; close it whatever happens."""

    def __init__(self, ask: Ask, backend: Backend, metrics: Metrics, received_s: float) -> None:
        self.ask = ask
        self.backend = backend
        self.metrics = metrics
        self.received_s = received_s
        self.items: list[Choice] = []

    def open(self) -> None:
        """Open a flow for every choice, all or none."""
        ask = self.ask
        try:
            for at, prompt in enumerate(ask.prompts):
                for copy in range(ask.n):
                    index = at * ask.n + copy
                    self.items.append(self._open_one(index, at, prompt, copy))
        except Refused as refused:
            self.close()
            raise ApiError(
                refused.status,
                str(refused),
                type="invalid_request_error" if refused.status == 400 else "server_error",
                code=refused.code,
                retry_after_s=1 if refused.retry else None,
            ) from None
        self.metrics.prompt_tokens.inc(sum(map(len, ask.prompts)) * ask.n)

    @property
    def handling_s(self) -> float:
        """From arrival to the hand-over of the last choice; NaN where none was handed over."""
        return max(c.flow.handed_over_s for c in self.items) - self.received_s

    def _open_one(self, index: int, at: int, prompt: tuple[int, ...], copy: int) -> Choice:
        ask, backend = self.ask, self.backend
        id_ = backend.next_id(ask.headers)
        request = Request(
            id=id_,
            arrival_s=backend.now_s(),
            prompt_tokens=len(prompt),
            max_tokens=ask.max_tokens,
            model=ask.model,
            precision=ask.headers.get("x-precision-preference", ""),
            kernel_hint=ask.hint,
        )
        job = Job(
            id=id_,
            prompt=list(prompt),
            max_tokens=ask.max_tokens,
            output_tokens=ask.output_tokens,
            temperature=ask.temperature,
            seed=ask.seed + copy,
            kernel_hint=ask.hint,
        )
        flow = backend.open(request, job, ask.headers, self.received_s)
        given = ask.texts[at]
        text = given if given is not None else "".join(f"<{t}>" for t in prompt)
        return Choice(index, flow, Text(ask.stop), text)

    async def pieces(self, choice: Choice) -> AsyncIterator[Piece]:
        """Yield the text of one choice; raise :class:`ApiError` where it dies."""
        if self.ask.echo:
            yield Piece(choice.index, choice.prompt)
        event = await choice.flow.next()
        while not event.is_end:
            text, after = "", None
            if event.kind == Kind.tokens:
                self._time(choice, event)
                text = choice.text.feed(event.tokens)
                if choice.text.stopped:
                    choice.flow.close(satisfied=True)
                    self.metrics.success.labels("stop").inc()
                    yield Piece(choice.index, text, "stop")
                    return
                after = await choice.flow.next() if choice.flow.ready else None
                if after is not None and after.kind == Kind.finished:
                    yield self._finish(choice, after, text)  # with its last token
                    return
                yield Piece(choice.index, text)  # one piece a token, text or not
            event = after or await choice.flow.next()
        if event.kind != Kind.finished:
            raise self._error(event)
        yield self._finish(choice, event, "")

    def _finish(self, choice: Choice, event: Event, text: str) -> Piece:
        self.metrics.success.labels(event.reason).inc()
        self.metrics.e2e.observe(event.time_s - self.received_s)
        return Piece(choice.index, text + choice.text.end(), event.reason)

    def _time(self, choice: Choice, event: Event) -> None:
        if not choice.last_s:
            self.metrics.ttft.observe(event.time_s - self.received_s)
            self.metrics.dispatch.observe(choice.flow.handed_over_s - self.received_s)
            if (wait_ms := choice.flow.kernel_dispatch_ms) is not None:
                self.metrics.queue.observe(wait_ms / 1e3)
        else:
            self.metrics.itl.observe(event.time_s - choice.last_s)
        choice.last_s = event.time_s
        choice.fragmentation = event.fragmentation
        self.metrics.generation_tokens.inc(len(event.tokens))

    def _error(self, event: Event) -> ApiError:
        if event.kind == Kind.oom:
            self.metrics.oom.inc()
            message = f"out of GPU memory: {event.reason}"
            return ApiError(
                503, message, type="server_error", code="gpu_out_of_memory", retry_after_s=1
            )
        if event.reason == TIMED_OUT:
            return ApiError(504, "no success before the deadline", type="timeout", code="timeout")
        if event.reason == TOO_SLOW:
            return ApiError(408, TOO_SLOW, type="timeout", code="slow_reader")
        message = f"the device failed: {event.reason}"
        return ApiError(503, message, type="server_error", code="device_failed", retry_after_s=1)

    def usage(self) -> dict[str, Any]:
        """Return tokens and the two figures; of several choices the largest of each."""
        prompt = sum(map(len, self.ask.prompts)) * self.ask.n
        output = sum(choice.text.tokens for choice in self.items)
        waits = [w for c in self.items if (w := c.flow.kernel_dispatch_ms) is not None]
        scores = [c.fragmentation for c in self.items if c.fragmentation is not None]
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "kernel_dispatch_time_ms": max(waits) if waits else None,
            "memory_fragmentation_score": max(scores) if scores else None,
        }

    def close(self) -> None:
        """Want no more of any choice."""
        for choice in self.items:
            choice.flow.close()
