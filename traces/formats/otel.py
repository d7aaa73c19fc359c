"""OpenTelemetry GenAI spans: one a line or OTLP JSON, attribute names old and new."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from traces import values
from traces.assemble import Facts
from traces.formats.base import Base, Format, Options, Record
from traces.formats.engine import dig
from traces.formats.gateway import first
from traces.rows import MISSING, BadRow, Row
from traces.trace import FAILED, Quirk, counted

_NO_BLOCKS: Final = "which prompts share a prefix: it has no prefix blocks"


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


class _Otel(Base):
    """GenAI spans, new and old names; a span inside another GenAI span is the same request."""

    def __init__(self, options: Options) -> None:
        self._spans: list[_Span] = []
        self._inside = 0

    def rows(self, record: Record) -> Iterable[Row]:
        self._spans.append(self._read(record))
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
            number=self.at,
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
            text = f"{counted(self._inside, 'span')} inside another: the same request, left out"
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
    return values.text(dig(span, "context", name))


def spans(record: Record) -> Iterator[Record]:
    """Yield the spans of a record: itself, or those inside an OTLP export."""
    if "resourceSpans" not in record and "resource_spans" not in record:
        yield record
        return
    for group in _listed(record, "resourceSpans", "resource_spans"):
        for scope in _listed(group, "scopeSpans", "scope_spans"):
            yield from _listed(scope, "spans")


def _listed(record: Record, *names: str) -> Iterator[Record]:
    """Yield the objects of a list under one of *names*; none where it is not there."""
    listed: Any = next((record[n] for n in names if record.get(n) is not None), [])
    if not isinstance(listed, list):
        raise BadRow(f"{names[0]} is no list: {values.clip(listed)}")
    for item in listed:
        if not isinstance(item, dict):
            raise BadRow(f"{names[0]} holds {values.clip(item)}, not an object")
        yield item


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
    split=spans,
)  # fmt: skip

FORMATS: Final = (OTEL,)
