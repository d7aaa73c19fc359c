"""What a completions request may say, and the error envelope that answers what it may not."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dispatch.request import HINTS
from live.tokens import encode

_KNOWN: Final = frozenset(
    (
        *("model", "prompt", "max_tokens", "n", "best_of", "stream", "stream_options", "stop"),
        *("echo", "seed", "temperature", "top_p", "user", "suffix", "logprobs", "logit_bias"),
        *("presence_penalty", "frequency_penalty", "ignore_eos", "output_tokens"),
    )
)
_MAX_CHOICES: Final = 128
_MAX_STOPS: Final = 4


class ApiError(Exception):
    """An answer that is no completion: HTTP status and OpenAI's error envelope."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.body = {
            "error": {"message": message, "type": type, "param": param, "code": code},
        }


@dataclass(frozen=True, slots=True)
class Ask:
    """A completions request that holds: one choice for each prompt and each of ``n``."""

    model: str
    prompts: tuple[tuple[int, ...], ...]
    texts: tuple[str | None, ...]  # None where the prompt came as ids
    max_tokens: int
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    echo: bool = False
    stop: tuple[str, ...] = ()
    seed: int = 0
    temperature: float = 0.0
    output_tokens: int | None = None
    hint: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def parse(
    body: Any,
    headers: Mapping[str, str],
    *,
    model: str,
    context_tokens: int,
    vocab: int,
    default_max_tokens: int,
) -> Ask:
    """Check the JSON *body* and the headers; raise :class:`ApiError` at the first fault."""
    if not isinstance(body, dict):
        raise ApiError(400, "the body is no JSON object")
    if unknown := sorted(set(body) - _KNOWN):
        raise ApiError(400, f"unknown field {unknown[0]!r}", param=unknown[0])
    named = body.get("model")
    if not isinstance(named, str) or not named:
        raise ApiError(400, "model must be a string", param="model")
    if named != model:
        message = f"the model {named!r} does not exist; served: {model}"
        raise ApiError(404, message, param="model", code="model_not_found")
    _refuse_unsupported(body)
    prompts, texts = _prompts(body.get("prompt"), vocab)
    max_tokens = _whole(body, "max_tokens", default_max_tokens, 1, context_tokens)
    longest = max(len(prompt) for prompt in prompts)
    if longest + max_tokens > context_tokens:
        message = (
            f"{longest} prompt tokens + max_tokens {max_tokens} exceed the context of "
            f"{context_tokens}"
        )
        raise ApiError(400, message, param="max_tokens", code="context_length_exceeded")
    n = _whole(body, "n", 1, 1, _MAX_CHOICES)
    if _whole(body, "best_of", n, 1, _MAX_CHOICES) != n:
        raise ApiError(400, "best_of other than n is not supported", param="best_of")
    if n * len(prompts) > _MAX_CHOICES:
        raise ApiError(400, f"more than {_MAX_CHOICES} choices in one request", param="n")
    stream = _flag(body, "stream")
    return Ask(
        model=named,
        prompts=prompts,
        texts=texts,
        max_tokens=max_tokens,
        n=n,
        stream=stream,
        include_usage=_include_usage(body.get("stream_options"), stream),
        echo=_flag(body, "echo"),
        stop=_stops(body.get("stop")),
        seed=_whole(body, "seed", 0, -(2**63), 2**63 - 1),
        temperature=_temperature(body.get("temperature")),
        output_tokens=_output_tokens(body),
        hint=_hint(headers),
        headers=headers,
    )


def _output_tokens(body: Mapping[str, Any]) -> int | None:
    """``output_tokens`` (ours): the engine ends there; the dispatcher never sees it."""
    if body.get("output_tokens") is None:
        return None
    return _whole(body, "output_tokens", 1, 1, 1 << 30)


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    neutral: dict[str, tuple[Any, ...]] = {
        "logprobs": (None,),
        "suffix": (None, ""),
        "logit_bias": (None, {}),
        "presence_penalty": (None, 0),
        "frequency_penalty": (None, 0),
        "top_p": (None, 1),
    }
    for name, allowed in neutral.items():
        if body.get(name) not in allowed:
            raise ApiError(400, f"{name} is not supported", param=name, code="unsupported_value")


def _prompts(given: Any, vocab: int) -> tuple[tuple[tuple[int, ...], ...], tuple[str | None, ...]]:
    """Accept a string, a list of strings, a list of ids, or a list of lists of ids."""
    if isinstance(given, str) or (isinstance(given, list) and given and isinstance(given[0], int)):
        given = [given]
    if not isinstance(given, list) or not given:
        raise ApiError(400, "prompt must be a string, strings, or token ids", param="prompt")
    if len(given) > _MAX_CHOICES:
        raise ApiError(400, f"more than {_MAX_CHOICES} prompts", param="prompt")
    prompts, texts = [], []
    for one in given:
        ids = _bytes_of(one) if isinstance(one, str) else one
        if not isinstance(ids, list) or not ids:
            raise ApiError(400, "a prompt is empty or of a wrong type", param="prompt")
        if not all(type(t) is int and 0 <= t < vocab for t in ids):
            raise ApiError(400, f"token ids must be whole numbers below {vocab}", param="prompt")
        prompts.append(tuple(ids))
        texts.append(one if isinstance(one, str) else None)
    return tuple(prompts), tuple(texts)


def _bytes_of(text: str) -> list[int]:
    try:
        return encode(text)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        raise ApiError(400, "the prompt is no valid Unicode text", param="prompt") from None


def _whole(body: Mapping[str, Any], name: str, default: int, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise ApiError(400, f"{name} must be a whole number from {low} to {high}", param=name)
    return value


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ApiError(400, f"{name} must be true or false", param=name)
    return value


def _temperature(value: Any) -> float:
    if value is None:
        return 0.0  # greedy: two runs give the same tokens
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 2:
        raise ApiError(400, "temperature must be a number from 0 to 2", param="temperature")
    return float(value)


def _include_usage(options: Any, stream: bool) -> bool:
    if options is None:
        return False
    if not isinstance(options, dict) or set(options) - {"include_usage"}:
        raise ApiError(400, "stream_options knows include_usage only", param="stream_options")
    if not stream:
        raise ApiError(400, "stream_options needs stream", param="stream_options")
    return _flag(options, "include_usage")


def _stops(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    good = isinstance(stops, list) and all(isinstance(s, str) and s for s in stops)
    if not good or len(stops) > _MAX_STOPS:
        raise ApiError(400, f"stop must be at most {_MAX_STOPS} strings, none empty", param="stop")
    return tuple(stops)


def _hint(headers: Mapping[str, str]) -> str:
    hint = headers.get("x-kernel-hint", "")
    if hint and hint not in HINTS:
        message = f"x-kernel-hint {hint[:64]!r} is unknown; use one of {', '.join(HINTS)}"
        raise ApiError(400, message, param="x-kernel-hint", code="unknown_kernel_hint")
    return hint
