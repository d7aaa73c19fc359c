"""``AutoTuneSession`` and its asynchronous twin: OpenAI's client with a tuning profile.

    with AutoTuneSession("http://127.0.0.1:8000/v1", "tiny", "latency_optimized") as session:
        answer = session.complete("hello", max_tokens=8)
        print(answer.text, answer.kernel_dispatch_time_ms, answer.memory_fragmentation_score)
        with session.stream("hello", max_tokens=8) as stream:
            for text in stream:
                print(text, end="")
        session.switch("throughput_optimized")

Errors are openai's own. Figures that a server does not give are None, never 0: 0 ms is a claim.
"""

from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import openai

TuningProfile = Literal["latency_optimized", "throughput_optimized", "memory_efficient"]
PROFILES: Final[tuple[str, ...]] = get_args(TuningProfile)
HEADER: Final = "x-kernel-hint"


class TuningProfileError(ValueError):
    """A tuning profile that does not exist."""

    def __init__(self, profile: object) -> None:
        super().__init__(f"unknown tuning profile {profile!r}; use one of {', '.join(PROFILES)}")


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one prompt. ``retries`` counts attempts that the client threw away."""

    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    kernel_dispatch_time_ms: float | None
    memory_fragmentation_score: float | None
    request_id: str | None
    retries: int
    usage: Any = None
    raw: Any = None


class _Session:
    """What both sessions share; it does no I/O."""

    def __init__(self, model: str, profile: str) -> None:
        self.model = model
        self.switch(profile)

    @property
    def profile(self) -> str:
        """The tuning profile of the next request."""
        return self._profile

    def switch(self, profile: str) -> None:
        """Use another tuning profile from the next request on."""
        if profile not in PROFILES:
            raise TuningProfileError(profile)
        self._profile = profile

    def _kwargs(self, prompt: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        headers = {HEADER: self._profile, **(given.get("extra_headers") or {})}
        return {"model": self.model, **given, "prompt": prompt, "extra_headers": headers}

    def _streaming(self, prompt: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        options = {"include_usage": True, **(given.get("stream_options") or {})}
        return {**self._kwargs(prompt, given), "stream": True, "stream_options": options}


def _completion(answer: Any, request_id: str | None, retries: int) -> Completion:
    choice = answer.choices[0]
    return _result(choice.text, choice.finish_reason, answer.usage, request_id, retries, answer)


def _result(
    text: str,
    reason: str | None,
    usage: Any,
    request_id: str | None,
    retries: int,
    raw: Any = None,
) -> Completion:
    def figure(name: str) -> Any:
        return getattr(usage, name, None)

    return Completion(
        text=text,
        finish_reason=reason,
        prompt_tokens=figure("prompt_tokens"),
        completion_tokens=figure("completion_tokens"),
        kernel_dispatch_time_ms=figure("kernel_dispatch_time_ms"),
        memory_fragmentation_score=figure("memory_fragmentation_score"),
        request_id=request_id,
        retries=retries,
        usage=usage,
        raw=raw,
    )


class _Gathered:
    """What a stream has said so far."""

    def __init__(self, request_id: str | None, retries: int) -> None:
        self._texts: list[str] = []
        self._reason: str | None = None
        self._usage: Any = None
        self._id = request_id
        self._retries = retries

    def take(self, chunk: Any) -> str:
        """Note one chunk; return its text."""
        if chunk.usage is not None:
            self._usage = chunk.usage
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self._reason = choice.finish_reason or self._reason
        self._texts.append(choice.text)
        return str(choice.text)

    @property
    def result(self) -> Completion:
        """The completion as far as it has come."""
        return _result("".join(self._texts), self._reason, self._usage, self._id, self._retries)


class CompletionStream:
    """Texts of a running completion; leaving the ``with`` block ends it on the server too."""

    def __init__(self, response: Any) -> None:
        self._stream = response.parse()
        self._gathered = _Gathered(response.headers.get("x-request-id"), response.retries_taken)

    def __enter__(self) -> "CompletionStream":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        try:
            for chunk in self._stream:
                if text := self._gathered.take(chunk):
                    yield text
        finally:
            self.close()

    @property
    def result(self) -> Completion:
        """The completion as far as it has come; usage once the stream has ended."""
        return self._gathered.result

    def close(self) -> None:
        """Close the connection; the server stops generating."""
        self._stream.close()


class AsyncCompletionStream:
    """The asynchronous twin of :class:`CompletionStream`."""

    def __init__(self, response: Any, stream: Any) -> None:
        self._stream = stream
        self._gathered = _Gathered(response.headers.get("x-request-id"), response.retries_taken)

    async def __aenter__(self) -> "AsyncCompletionStream":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[str]:
        try:
            async for chunk in self._stream:
                if text := self._gathered.take(chunk):
                    yield text
        finally:
            await self.close()

    @property
    def result(self) -> Completion:
        """The completion as far as it has come; usage once the stream has ended."""
        return self._gathered.result

    async def close(self) -> None:
        """Close the connection; the server stops generating."""
        await self._stream.close()


class AutoTuneSession(_Session):
    """A session with one server and model under a tuning profile; use it in a ``with`` block."""

    def __init__(
        self,
        base_url: str,
        model: str,
        tuning_profile: TuningProfile = "latency_optimized",
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        max_retries: int = 2,
        http_client: Any = None,
    ) -> None:
        super().__init__(model, tuning_profile)
        self._client = openai.OpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            timeout=timeout,
            max_retries=max_retries,
            http_client=http_client,
        )

    def __enter__(self) -> "AutoTuneSession":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def complete(self, prompt: Any, **kwargs: Any) -> Completion:
        """Complete *prompt*; keywords are those of ``openai``'s ``completions.create``."""
        create: Any = self._client.completions.with_raw_response.create
        response = create(**self._kwargs(prompt, kwargs))
        return _completion(
            response.parse(), response.headers.get("x-request-id"), response.retries_taken
        )

    def stream(self, prompt: Any, **kwargs: Any) -> CompletionStream:
        """Start a completion whose text comes piece by piece; use it in a ``with`` block."""
        create: Any = self._client.completions.with_raw_response.create
        return CompletionStream(create(**self._streaming(prompt, kwargs)))


class AsyncAutoTuneSession(_Session):
    """The asynchronous twin of :class:`AutoTuneSession`."""

    def __init__(
        self,
        base_url: str,
        model: str,
        tuning_profile: TuningProfile = "latency_optimized",
        *,
        api_key: str | None = None,
        timeout: float = 600.0,
        max_retries: int = 2,
        http_client: Any = None,
    ) -> None:
        super().__init__(model, tuning_profile)
        self._client = openai.AsyncOpenAI(
            base_url=base_url,
            api_key=api_key or "none",
            timeout=timeout,
            max_retries=max_retries,
            http_client=http_client,
        )

    async def __aenter__(self) -> "AsyncAutoTuneSession":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def complete(self, prompt: Any, **kwargs: Any) -> Completion:
        """Complete *prompt*; keywords are those of ``openai``'s ``completions.create``."""
        create: Any = self._client.completions.with_raw_response.create
        response = await create(**self._kwargs(prompt, kwargs))
        return _completion(
            response.parse(), response.headers.get("x-request-id"), response.retries_taken
        )

    def stream(self, prompt: Any, **kwargs: Any) -> "Opening":
        """Start a completion whose text comes piece by piece; ``async with session.stream(..)``."""
        create: Any = self._client.completions.with_raw_response.create
        return Opening(create, self._streaming(prompt, kwargs))


class Opening:
    """A stream that is still to be opened: by ``async with``, or by ``await``."""

    def __init__(self, create: Any, kwargs: dict[str, Any]) -> None:
        self._create = create
        self._kwargs = kwargs
        self._stream: AsyncCompletionStream | None = None

    async def _open(self) -> AsyncCompletionStream:
        response = await self._create(**self._kwargs)
        self._stream = AsyncCompletionStream(response, response.parse())
        return self._stream

    def __await__(self) -> Generator[Any, None, AsyncCompletionStream]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncCompletionStream:
        return await self._open()

    async def __aexit__(self, *error: object) -> None:
        if self._stream is not None:
            await self._stream.close()
