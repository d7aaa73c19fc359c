"""Access logs of gateways: Envoy and the Envoy AI Gateway, nginx, LiteLLM spend logs."""

from collections.abc import Iterable
from typing import Any, Final

from traces import values
from traces.assemble import Facts
from traces.formats.base import Base, Format, Options, Record
from traces.rows import MISSING, BadRow, Row
from traces.trace import CACHED, FAILED, Quirk, counted

PROMPT_BYTES: Final = 4.5  # bytes a token of a JSON request of English text or code
STREAM_BYTES: Final = 130.0  # bytes a token as a server-sent event of the OpenAI shape
WHOLE_BYTES: Final = 4.5  # bytes a token of an answer that is not streamed
_MIXED_UP: Final = round(STREAM_BYTES / WHOLE_BYTES)  # how wrong a length is if that is mistaken

# Codes that any other front door would have answered the same way: no GPU was ever asked for.
_INVALID: Final = frozenset({400, 401, 403, 404, 405, 411, 413, 414, 415, 422})
_PROMPT_KEYS: Final = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm_input_token", "input_tokens",
    "prompt_tokens",
)  # fmt: skip
_OUTPUT_KEYS: Final = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm_output_token",
    "output_tokens", "completion_tokens",
)  # fmt: skip
_MODEL_KEYS: Final = ("gen_ai.request.model", "x-ai-eg-model", "model", "gen_ai.response.model")
_SESSION_KEYS: Final = ("session.id", "session_id", "x-session-id")
_PATH_KEYS: Final = ("x-envoy-origin-path", "path", "uri", "request_uri", ":path")
_METHOD_KEYS: Final = ("method", "request_method", ":method")
_ID_KEYS: Final = ("x-request-id", "request_id")
_STREAMED: Final = "whether an answer was streamed"
_NO_BLOCKS: Final = "which prompts share a prefix: it has no prefix blocks"


_ANSWER_KEYS: Final = (
    "sent_http_content_type", "upstream_http_content_type", "response_content_type",
)  # fmt: skip


def _event_stream(record: Record) -> bool | None:
    """Return whether the answer's content type says streamed; None where it was not logged."""
    kind = values.text(first(record, _ANSWER_KEYS)).lower()
    return None if not kind else "event-stream" in kind


def first(record: Record, keys: Iterable[str]) -> Any:
    """Return the first value of *keys* that is there, None where none is."""
    for key in keys:
        if not values.is_absent(record.get(key)):
            return record[key]
    return None


class _Access(Base):
    """What Envoy and nginx logs share: which lines are LLM requests, and how they ended."""

    name = ""
    limits: tuple[str, ...] = ()
    deciding = ""  # the fields that would say whether an answer was streamed
    streams = False  # what an answer is taken for where nothing says so

    def __init__(self, options: Options) -> None:
        self._options = options
        self._other = 0
        self._invalid = 0
        self._unclear = 0  # outputs from bytes of answers that may have been streamed or not
        self._answers = 0  # outputs from bytes

    def _is_request(self, record: Record) -> bool:
        method = values.text(first(record, _METHOD_KEYS)).upper()
        if method not in ("", "POST"):
            self._other += 1
            return False
        return True

    def _failed(self, code: Any) -> bool | None:
        """Return whether a status says failure; None for a request that was never valid."""
        number = values.tokens(code, "status")
        if number in _INVALID:
            self._invalid += 1
            return None
        return not 200 <= number < 300

    def _lengths(self, row: Row, record: Record) -> None:
        row.prompt = values.tokens(first(record, _PROMPT_KEYS), "input tokens")
        row.output = values.tokens(first(record, _OUTPUT_KEYS), "output tokens")
        # Zero is how a gateway writes "never counted": it marks a failure, it is no length.
        row.prompt = row.prompt or MISSING
        if row.output == 0:
            row.output = MISSING
            row.status = row.status or FAILED
        if row.status == FAILED:
            row.output = MISSING

    def _guess(self, row: Row, sent: Any, received: Any, streamed: bool | None) -> None:
        """Fill lengths from bytes; *streamed* is None where the log does not say."""
        prompt = values.tokens(received, "bytes received")
        output = values.tokens(sent, "bytes sent")
        if prompt > 0:
            row.prompt_guess = max(1, round(prompt / (self._options.prompt_bytes or PROMPT_BYTES)))
        if output > 0 and row.status == 0:
            if row.output == MISSING:
                self._answers += 1
                self._unclear += streamed is None
            each = STREAM_BYTES if (self.streams if streamed is None else streamed) else WHOLE_BYTES
            row.output_guess = max(1, round(output / (self._options.output_bytes or each)))

    def facts(self) -> Facts:
        quirks = []
        if self._other:
            text = f"{counted(self._other, 'line')} without POST (health checks, ...): left out"
            quirks.append(Quirk("other_lines", text, self._other))
        if self._invalid:
            text = f"{counted(self._invalid, 'request')} refused as invalid (4xx): left out"
            quirks.append(Quirk("invalid_requests", text, self._invalid))
        unclear = self._unclear and self._options.output_bytes is None
        own = [text for text in self.limits if not (unclear and text == _STREAMED)]
        limits = (
            *own,
            *((self._unsaid(),) if unclear else ()),
            "requests that clients gave up before the gateway logged them",
            "the max_tokens that callers asked for",
            _NO_BLOCKS,
        )
        return Facts(
            self.name, quirks=tuple(quirks), cannot_tell=limits,
            output_error=self._error() if unclear else "",
        )  # fmt: skip

    def _unsaid(self) -> str:
        return f"{_STREAMED}: {self._unclear:,} of {self._answers:,} lines lack {self.deciding}"

    def _error(self) -> str:
        """Say how wrong a length is where an answer is taken for what it was not."""
        taken, other, off = "unstreamed", "streamed", "too high"
        if self.streams:
            taken, other, off = "streamed", "unstreamed", "too low"
        each = STREAM_BYTES if other == "streamed" else WHOLE_BYTES
        return (
            f"{self._unclear:,} of them may be {_MIXED_UP} times {off}: nothing says whether they "
            f"were streamed, they are taken as {taken} ({STREAM_BYTES + WHOLE_BYTES - each:g} "
            f"bytes a token); if they were {other}, give --output-bytes {each:g}, or log "
            f"{self.deciding}; else a factor of 2 either way"
        )


class _Envoy(_Access):
    name = "envoy"
    limits = ("time to first token", _STREAMED)
    deciding = "the answer's content-type (key response_content_type)"
    streams = True

    def rows(self, record: Record) -> Iterable[Row]:
        if not self._is_request(record):
            return ()
        failed = self._failed(first(record, ("response_code", "status")))
        if failed is None:
            return ()
        row = Row(
            arrival_ns=values.time_ns(record.get("start_time"), "s", "start_time"),
            status=FAILED if failed else 0,
            request=values.text(first(record, _ID_KEYS)) or None,
            session=values.text(first(record, _SESSION_KEYS)) or None,
            model=values.text(first(record, _MODEL_KEYS)),
            duration_s=values.seconds(record.get("duration"), "duration", "ms"),
        )
        tries = values.tokens(record.get("upstream_request_attempt_count"), "attempts")
        row.tries = max(1, tries)
        self._lengths(row, record)
        sent, received = record.get("bytes_sent"), record.get("bytes_received")
        self._guess(row, sent, received, _event_stream(record))
        return (row,)


ENVOY: Final = Format(
    "envoy", "Envoy and Envoy AI Gateway JSON access log (start_time, duration in ms)", "json",
    _Envoy, claims=lambda r: "start_time" in r and "duration" in r
    and ("response_code" in r or "response_flags" in r) and "traceId" not in r,
)  # fmt: skip


class _Nginx(_Access):
    name = "nginx"
    limits = ("token counts, where nginx was not told to log them",)
    deciding = "sent_http_content_type, or upstream_header_time and upstream_response_time"

    def rows(self, record: Record) -> Iterable[Row]:
        if not self._is_request(record):
            return ()
        failed = self._failed(record.get("status"))
        if failed is None:
            return ()
        took_ns = values.time_ns(record.get("request_time"), "s", "request_time")
        end_ns = self._end_ns(record)
        if took_ns > end_ns:
            raise BadRow("request_time is longer than the time since 1970")
        statuses = values.text(record.get("upstream_status")).replace(" : ", ",").split(",")
        row = Row(
            arrival_ns=end_ns - took_ns,
            status=FAILED if failed else 0,
            request=values.text(first(record, _ID_KEYS)) or None,
            session=values.text(first(record, _SESSION_KEYS)) or None,
            model=values.text(first(record, _MODEL_KEYS)),
            duration_s=took_ns / 1e9,
            tries=max(1, len(statuses)),
        )
        header = _upstream_s(record.get("upstream_header_time"))
        whole = _upstream_s(record.get("upstream_response_time"))
        if header and whole and not failed:
            row.ttft_s = sum(whole[:-1]) + header[-1]
        streamed = _event_stream(record)
        if streamed is None and header and whole:
            # A first byte long before the last says that the answer was streamed.
            streamed = header[-1] < 0.7 * whole[-1]
        self._lengths(row, record)
        self._guess(row, record.get("bytes_sent"), record.get("request_length"), streamed)
        return (row,)

    def _end_ns(self, record: Record) -> int:
        for name in ("msec", "time_iso8601", "time_local", "timestamp", "@timestamp"):
            if not values.is_absent(record.get(name)):
                text = record[name]
                local = values.common_log_ns(text) if isinstance(text, str) else None
                return local if local is not None else values.time_ns(text, "s", name)
        raise BadRow("msec is missing; a missing time is not 0")


def _upstream_s(value: Any) -> list[float]:
    """Return the seconds of an upstream list such as "0.001, 0.310"; "-" entries are left out."""
    parts = values.text(value).replace(" : ", ",").split(",")
    return [values.seconds(part.strip(), "upstream time") for part in parts
            if not values.is_absent(part)]  # fmt: skip


NGINX: Final = Format(
    "nginx", "nginx JSON access log (msec at completion, request_time; lengths from bytes)",
    "json", _Nginx,
    claims=lambda r: "request_time" in r and "status" in r
    and any(k in r for k in ("msec", "time_iso8601", "time_local", "timestamp", "@timestamp")),
)  # fmt: skip

_NOT_GENERATION: Final = ("embed", "image", "transcription", "speech", "moderation", "rerank")


class _LiteLlm(Base):
    def __init__(self, options: Options) -> None:
        self._unit = options.unit or "s"
        self._other = 0

    def rows(self, record: Record) -> Iterable[Row]:
        kind = values.text(record.get("call_type")).lower()
        if any(word in kind for word in _NOT_GENERATION):
            self._other += 1
            return ()
        start = values.time_ns(record.get("startTime"), self._unit, "startTime")
        status = values.text(record.get("status")).lower()
        row = Row(
            arrival_ns=start,
            prompt=values.tokens(record.get("prompt_tokens"), "prompt_tokens") or MISSING,
            output=values.tokens(record.get("completion_tokens"), "completion_tokens") or MISSING,
            request=values.text(record.get("request_id")) or None,
            session=values.text(record.get("session_id")) or None,
            model=values.text(first(record, ("model_group", "model"))),
        )
        if values.text(record.get("cache_hit")).lower() == "true":
            row.status = CACHED
        elif status not in ("", "success", "ok") or row.output == MISSING:
            row.status, row.output = FAILED, MISSING
        first_ns = self._later(record, "completionStartTime", start)
        if first_ns is not None and row.status == 0:
            row.ttft_s = first_ns
        took = values.seconds(record.get("request_duration_ms"), "request_duration_ms", "ms")
        end = self._later(record, "endTime", start)
        row.duration_s = took if took == took or end is None else end
        return (row,)

    def _later(self, record: Record, name: str, start_ns: int) -> float | None:
        if values.is_absent(record.get(name)):
            return None
        at = values.time_ns(record[name], self._unit, name)
        if at < start_ns:
            raise BadRow(f"{name} is before startTime")
        return (at - start_ns) / 1e9

    def facts(self) -> Facts:
        quirks: tuple[Quirk, ...] = ()
        if self._other:
            text = f"{counted(self._other, 'call')} for no text (embeddings and the like): left out"
            quirks = (Quirk("other_calls", text, self._other),)
        return Facts(
            "litellm", quirks=quirks,
            cannot_tell=(
                "retries inside the proxy: a spend log has one row a call that it billed",
                "the max_tokens that callers asked for", _NO_BLOCKS,
            ),
        )  # fmt: skip


LITELLM: Final = Format(
    "litellm", "LiteLLM spend logs (LiteLLM_SpendLogs as JSON lines, array or CSV)", "json",
    _LiteLlm, columns=("startTime", "prompt_tokens", "completion_tokens"),
    claims=lambda r: "startTime" in r and ("completion_tokens" in r or "call_type" in r),
)  # fmt: skip

FORMATS: Final = (LITELLM, ENVOY, NGINX)
