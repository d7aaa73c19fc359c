"""Logs of inference engines: vLLM request lines, SGLang request log, OpenTelemetry spans."""

import calendar
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from traces import values
from traces.assemble import Facts
from traces.formats.base import Format, Options, Record
from traces.formats.gateway import first
from traces.rows import MISSING, BadRow, Row
from traces.trace import FAILED, Quirk

_NO_BLOCKS: Final = "which prompts share a prefix: it has no prefix blocks"
_RECEIVED: Final = re.compile(
    r"(?:(?P<month>\d\d)-(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:[.,](?P<fraction>\d{1,9}))?|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]?\d*))"
    r".*?Received request (?P<id>[^\s:]+?)[:.]"
)
_MAX_TOKENS: Final = re.compile(r"\bmax_tokens=(\d+|None)\b")
_TOKEN_IDS: Final = re.compile(r"prompt_token_ids: \[([0-9,\s]*)\]")
_LORA: Final = re.compile(r"lora_name='([^']*)'")


class _VllmLog:
    """Lines "Received request": time to the second without a year, max_tokens, rarely a prompt."""

    def __init__(self, options: Options) -> None:
        self._year = 2024  # a leap year: every day of any year exists in it
        self._last_ns = 0
        self._whole_seconds = True

    def rows(self, record: Record) -> Iterable[Row]:
        line = record["line"]
        if "Received request" not in line:
            return ()
        found = _RECEIVED.search(line)
        if found is None:
            raise BadRow("has no time before 'Received request'; a missing time is not 0")
        # A prompt may hold anything, so what follows it is looked for from the end.
        after = line[line.rfind("SamplingParams(") :] if "SamplingParams(" in line else line
        most = _MAX_TOKENS.search(after)
        ids = _TOKEN_IDS.search(after)
        row = Row(arrival_ns=self._time_ns(found), request=found["id"])
        if most and most[1] != "None":
            row.max_tokens = values.tokens(most[1], "max_tokens")
        if ids and ids[1].strip():
            row.prompt = ids[1].count(",") + 1
        lora = _LORA.search(after)
        row.model = lora[1] if lora else ""
        return (row,)

    def _time_ns(self, found: "re.Match[str]") -> int:
        if found["iso"]:
            at = values.time_ns(found["iso"].replace(",", "."), "s")
            self._whole_seconds &= at % 10**9 == 0
            return at
        day = [int(found[name]) for name in ("month", "day", "hour", "minute", "second")]
        month, of_month, hour, minute, second = day
        if not (1 <= month <= 12 and 1 <= of_month <= 31 and hour < 24 and minute < 60):
            raise BadRow(f"time is impossible: {found[0][:20]!r}")
        fraction = int((found["fraction"] or "0").ljust(9, "0"))
        self._whole_seconds &= not found["fraction"]
        at = self._in_year(month, of_month, hour, minute, second) + fraction
        # The log names no year: a step back by half a year is New Year.
        if self._last_ns - at > 183 * 86400 * 10**9:
            self._year += 1
            at = self._in_year(month, of_month, hour, minute, second) + fraction
        self._last_ns = max(self._last_ns, at)
        return at

    def _in_year(self, *day: int) -> int:
        return calendar.timegm((self._year, *day)) * 10**9

    def finish(self) -> Iterable[Row]:
        return ()

    def facts(self) -> Facts:
        return Facts(
            "vllm-log", tick_s=1.0 if self._whole_seconds else 0.0,
            cannot_tell=(
                "output lengths: the line is written on arrival",
                "prompt lengths, except in old or DEBUG logs that print the prompt's token ids",
                "requests that a gateway dropped before they reached the engine", _NO_BLOCKS,
            ),
        )  # fmt: skip


VLLM_LOG: Final = Format(
    "vllm-log", "vLLM server log with 'Received request' lines", "text", _VllmLog
)


class _SglangLog:
    """Events request.received and request.finished of one rid are one request."""

    def __init__(self, options: Options) -> None:
        self._open: dict[str, Row] = {}
        self._alone = 0
        self._unfinished = 0
        self._other = 0

    def rows(self, record: Record) -> Iterable[Row]:
        event = values.text(record.get("event"))
        if event not in ("request.received", "request.finished"):
            self._other += 1
            return ()
        rid = values.text(record.get("rid"))
        if not rid:
            raise BadRow("rid is missing")
        at = values.time_ns(record.get("timestamp"), "s", "timestamp")
        wanted = _dig(record, "obj", "sampling_params", "max_new_tokens")
        most = values.tokens(wanted, "max_new_tokens")
        if event == "request.received":
            self._open[rid] = Row(arrival_ns=at, request=rid, max_tokens=most or MISSING)
            return ()
        return (self._finished(record, rid, at, most or MISSING),)

    def _finished(self, record: Record, rid: str, at: int, most: int) -> Row:
        meta = _dig(record, "out", "meta_info")
        if not isinstance(meta, dict):
            raise BadRow("out.meta_info is missing")
        latency_s = values.seconds(meta.get("e2e_latency"), "e2e_latency")
        row = self._open.pop(rid, None)
        if row is None:
            if latency_s != latency_s:
                raise BadRow("finished without request.received and without e2e_latency: no time")
            arrival = at - round(latency_s * 1e9)
            if arrival < 0:
                raise BadRow("e2e_latency is longer than the time since 1970")
            row = Row(arrival_ns=arrival, request=rid, max_tokens=most)
            self._alone += 1
        row.duration_s = latency_s
        row.prompt = values.tokens(meta.get("prompt_tokens"), "prompt_tokens") or MISSING
        row.output = values.tokens(meta.get("completion_tokens"), "completion_tokens") or MISSING
        reason = meta.get("finish_reason")
        kind = reason.get("type") if isinstance(reason, dict) else reason
        if row.output == MISSING or kind == "abort":
            row.status, row.output = FAILED, MISSING
        return row

    def finish(self) -> Iterable[Row]:
        self._unfinished = len(self._open)
        return list(self._open.values())

    def facts(self) -> Facts:
        quirks = []
        if self._alone:
            text = f"{self._alone} arrivals are the finish less e2e_latency"
            quirks.append(Quirk("arrival_from_finish", text, self._alone))
        if self._unfinished:
            text = f"{self._unfinished} requests were received and never finished in this log"
            quirks.append(Quirk("unfinished", text, self._unfinished))
        limits = ["requests that a gateway dropped before they reached the engine", _NO_BLOCKS]
        if self._unfinished:
            limits.append(f"lengths of the {self._unfinished} requests that the log cuts short")
        return Facts("sglang-log", quirks=tuple(quirks), cannot_tell=tuple(limits))


def _dig(record: Any, *path: str) -> Any:
    for key in path:
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


SGLANG: Final = Format(
    "sglang-log", "SGLang --log-requests-format json (request.received, request.finished)",
    "json", _SglangLog, claims=lambda r: "rid" in r and "event" in r,
)  # fmt: skip


@dataclass(slots=True)
class _Span:
    key: tuple[str, str]
    parent: tuple[str, str]
    row: Row | None


_PROMPT: Final = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens",
)  # fmt: skip
_OUTPUT: Final = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens",
)  # fmt: skip
_FIRST: Final = (
    "gen_ai.response.time_to_first_chunk", "gen_ai.server.time_to_first_token",
    "gen_ai.latency.time_to_first_token",
)  # fmt: skip
_GENERATES: Final = ("chat", "text_completion", "completion", "generate_content", "responses")


class _Otel:
    """GenAI spans, new and old names; a span inside another GenAI span is the same request."""

    def __init__(self, options: Options) -> None:
        self._spans: list[_Span] = []
        self._inside = 0

    def rows(self, record: Record) -> Iterable[Row]:
        for span in _spans_of(record):
            self._spans.append(self._read(span))
        return ()

    def _read(self, span: Record) -> _Span:
        trace = values.text(first(span, ("traceId", "trace_id"))) or _ctx(span, "trace_id")
        own = values.text(first(span, ("spanId", "span_id"))) or _ctx(span, "span_id")
        up = values.text(first(span, ("parentSpanId", "parent_span_id", "parent_id")))
        found = _Span((trace, own), (trace, up), None)
        has = _attributes(span.get("attributes"))
        if _generates(span, has):
            found.row = self._row(span, has, f"{trace}/{own}" if own else "")
        return found

    def _row(self, span: Record, has: dict[str, Any], key: str) -> Row:
        start = _start_ns(span)
        end = _span_ns(span, "end")
        if end is not None and end < start:
            raise BadRow("the span ends before it starts")
        failed = not values.is_absent(has.get("error.type")) or _is_error(span.get("status"))
        row = Row(
            arrival_ns=start,
            prompt=values.tokens(first(has, _PROMPT), "input tokens") or MISSING,
            output=values.tokens(first(has, _OUTPUT), "output tokens") or MISSING,
            status=FAILED if failed else 0,
            request=key or None,
            session=values.text(has.get("gen_ai.conversation.id")) or None,
            model=values.text(first(has, ("gen_ai.request.model", "gen_ai.response.model"))),
            max_tokens=values.tokens(has.get("gen_ai.request.max_tokens"), "max_tokens") or MISSING,
            ttft_s=values.seconds(first(has, _FIRST), "time to first token"),
        )
        if end is not None:
            row.duration_s = (end - start) / 1e9
        if failed or row.output == MISSING:
            row.status, row.output = FAILED, MISSING
        return row

    def finish(self) -> Iterable[Row]:
        known = {span.key: span for span in self._spans if span.key[1]}
        for span in self._spans:
            if span.row is None:
                continue
            if _has_llm_above(span, known):
                self._inside += 1
            else:
                yield span.row

    def facts(self) -> Facts:
        quirks: tuple[Quirk, ...] = ()
        if self._inside:
            text = f"{self._inside} spans lie inside another GenAI span: the same request; left out"
            quirks = (Quirk("nested_spans", text, self._inside),)
        return Facts(
            "otel", quirks=quirks,
            cannot_tell=("requests that sampling left out of the traces", _NO_BLOCKS),
        )  # fmt: skip


def _has_llm_above(span: _Span, known: dict[tuple[str, str], _Span]) -> bool:
    seen = {span.key}
    above = known.get(span.parent)
    while above is not None and above.key not in seen:
        if above.row is not None:
            return True
        seen.add(above.key)
        above = known.get(above.parent)
    return False


def _ctx(span: Record, name: str) -> str:
    """Return an id from the ``context`` object that console exporters write."""
    return values.text(_dig(span, "context", name))


def _spans_of(record: Record) -> Iterator[Record]:
    """Yield the spans of a record: itself, or those inside an OTLP export."""
    groups = record.get("resourceSpans", record.get("resource_spans"))
    if not isinstance(groups, list):
        yield record
        return
    for group in groups:
        scopes = group.get("scopeSpans", group.get("scope_spans")) if isinstance(group, dict) else 0
        for scope in scopes if isinstance(scopes, list) else ():
            spans = scope.get("spans") if isinstance(scope, dict) else None
            yield from (s for s in spans or () if isinstance(s, dict))


def _attributes(found: Any) -> dict[str, Any]:
    """Return attributes as an object; OTLP writes a list of key and typed value."""
    if isinstance(found, dict):
        return found
    if not isinstance(found, list):
        return {}
    pairs = {}
    for item in found:
        if isinstance(item, dict) and isinstance(item.get("key"), str):
            value = item.get("value")
            inside = next(iter(value.values()), None) if isinstance(value, dict) else value
            pairs[item["key"]] = inside
    return pairs


def _generates(span: Record, has: dict[str, Any]) -> bool:
    operation = values.text(has.get("gen_ai.operation.name")).lower()
    if operation:
        return operation in _GENERATES
    named = any(key.startswith("gen_ai.") or key.startswith("llm.") for key in has)
    return named and (span.get("name") == "llm_request" or first(has, _OUTPUT) is not None)


def _is_error(status: Any) -> bool:
    code = status.get("code", status.get("status_code")) if isinstance(status, dict) else status
    return code in (2, "2", "STATUS_CODE_ERROR", "ERROR", "Error")


def _start_ns(span: Record) -> int:
    start = _span_ns(span, "start")
    if start is None:
        raise BadRow("startTimeUnixNano is missing; a missing time is not 0")
    return start


def _span_ns(span: Record, which: str) -> int | None:
    for name, unit in (
        (f"{which}TimeUnixNano", "ns"), (f"{which}_time_unix_nano", "ns"),
        (f"{which}_time", "ns"), (f"{which}Time", "ns"),
    ):  # fmt: skip
        if not values.is_absent(span.get(name)):
            return values.time_ns(span[name], unit, name)
    return None


OTEL: Final = Format(
    "otel", "OpenTelemetry GenAI spans, one a line or OTLP JSON, new and old attribute names",
    "json", _Otel,
    claims=lambda r: "resourceSpans" in r or "resource_spans" in r
    or ("attributes" in r and any(k in r for k in ("startTimeUnixNano", "start_time_unix_nano",
                                                   "start_time", "startTime"))),
)  # fmt: skip

FORMATS: Final = (OTEL, SGLANG, VLLM_LOG)
