"""JSON lines with timestamp, input_length, output_length: Mooncake and its relatives."""

from collections.abc import Iterable
from typing import Any, Final

from dispatch import keyed
from traces import values
from traces.assemble import Facts
from traces.formats.base import Base, Format, Options, Record, simple
from traces.rows import BadRow, Row

_NO_FAILURES: Final = "requests that failed, were dropped or retried: only what was served is there"
_NO_MAX: Final = "the max_tokens that callers asked for"
_NO_MODEL: Final = "which model a request asked for"
_NO_SESSION: Final = "which requests belong to one conversation"
_NO_BLOCKS: Final = "which prompts share a prefix: it has no prefix blocks"


def _has_lengths(record: Record) -> bool:
    return "timestamp" in record and "input_length" in record and "output_length" in record


def _timed(record: Record, unit: str) -> Row:
    """Return a row of the common shape, without its blocks."""
    return Row(
        arrival_ns=values.time_ns(_got(record, "timestamp"), unit, "timestamp"),
        prompt=values.positive(_got(record, "input_length"), "input_length"),
        output=values.positive(_got(record, "output_length"), "output_length"),
    )


def _got(record: Record, key: str) -> Any:
    if key not in record:
        raise BadRow(f"{key} is missing")
    return record[key]


def _mooncake(record: Record, options: Options) -> Row:
    row = _timed(record, options.unit or "ms")
    if record.get("hash_ids") is not None:
        row.blocks = values.block_ids(record["hash_ids"])
    return row


_MOONCAKE_FACTS: Final = Facts(
    "mooncake", order="arrival", block_tokens=512,
    cannot_tell=(_NO_FAILURES, _NO_SESSION, _NO_MAX, _NO_MODEL),
)  # fmt: skip

MOONCAKE: Final = Format(
    "mooncake", "Mooncake JSON lines (timestamp in ms, 512-token blocks)", "json",
    simple(_mooncake, _MOONCAKE_FACTS),
    claims=lambda r: _has_lengths(r) and isinstance(r.get("hash_ids"), list)
    and "chat_id" not in r and "session_id" not in r,
    facts=_MOONCAKE_FACTS,
)  # fmt: skip


def _guidellm(record: Record, options: Options) -> Row:
    return _timed(record, options.unit or "s")


_GUIDELLM_FACTS: Final = Facts(
    "guidellm", order="arrival",
    cannot_tell=(_NO_FAILURES, _NO_BLOCKS, _NO_SESSION, _NO_MAX, _NO_MODEL),
)  # fmt: skip

GUIDELLM: Final = Format(
    "guidellm", "GuideLLM trace_synthetic JSON lines (timestamp in seconds, no blocks)", "json",
    simple(_guidellm, _GUIDELLM_FACTS),
    claims=lambda r: _has_lengths(r) and "hash_ids" not in r and "session_id" not in r
    and "chat_id" not in r,
    facts=_GUIDELLM_FACTS,
)  # fmt: skip


class _Bailian(Base):
    """Conversations by chat_id and parent_chat_id; a turn's session is its first chat."""

    def __init__(self, options: Options) -> None:
        self._unit = options.unit or "s"
        self._root: dict[str, str] = {}

    def rows(self, record: Record) -> Iterable[Row]:
        row = _timed(record, self._unit)
        chat = values.text(_got(record, "chat_id"))
        parent = values.text(record.get("parent_chat_id"))
        root = chat if parent in ("", "-1") else self._root.get(parent, parent)
        self._root[chat] = root
        row.session = root
        row.model = values.text(record.get("model"))
        if record.get("hash_ids") is not None:
            row.blocks = values.block_ids(record["hash_ids"])
        return (row,)

    def facts(self) -> Facts:
        return Facts("bailian", block_tokens=16, cannot_tell=(_NO_FAILURES, _NO_MAX, _NO_MODEL))


BAILIAN: Final = Format(
    "bailian", "Qwen-Bailian JSON lines (timestamp in seconds, 16-token blocks, chat ids)", "json",
    _Bailian, claims=lambda r: _has_lengths(r) and "chat_id" in r,
)  # fmt: skip


_PARTS: Final = ("sys_prompt", "passages_ids", "history", "web_search", "user_input")


def _ragpulse(record: Record, options: Options) -> Row:
    row = _timed(record, options.unit or "s")
    row.session = values.text(record.get("session_id")) or None
    parts = _got(record, "hash_ids")
    if not isinstance(parts, dict):
        raise BadRow(f"hash_ids is no object: {values.clip(parts)}")
    known = [name for name in _PARTS if name in parts]
    names = known + sorted(set(parts) - set(known))
    ids = [i for name in names for i in values.block_ids(parts[name], f"hash_ids.{name}")]
    row.blocks = _chained(ids)
    return row


def _chained(ids: list[int]) -> list[int]:
    """Return ids of content as ids of prefixes: the same piece behind another one is another."""
    chain, so_far = [], 0
    for item in ids:
        so_far = keyed.bits(so_far, item & ((1 << 64) - 1)) - (1 << 63)
        chain.append(so_far)
    return chain


_RAGPULSE_FACTS: Final = Facts(
    "ragpulse", tick_s=1.0, pieces=True,
    cannot_tell=(
        _NO_FAILURES, _NO_MAX, _NO_MODEL,
        "the order of the parts inside a prompt: taken as system prompt, passages, history, "
        "web search, user input",
    ),
)  # fmt: skip

RAGPULSE: Final = Format(
    "ragpulse", "RAGPulse JSON lines (timestamp in seconds as text, ids by part of the prompt)",
    "json", simple(_ragpulse, _RAGPULSE_FACTS),
    claims=lambda r: _has_lengths(r) and isinstance(r.get("hash_ids"), dict),
    facts=_RAGPULSE_FACTS,
)  # fmt: skip


class _Aiperf(Base):
    """AIPerf ``mooncake_trace``: sessions whose later turns give a delay instead of a time."""

    def __init__(self, options: Options) -> None:
        self._unit = options.unit or "ms"
        self._last_ns: dict[str, int] = {}
        self._dependent = 0

    def rows(self, record: Record) -> Iterable[Row]:
        session = values.text(record.get("session_id"))
        contents = [k for k in ("input_length", "text_input", "messages", "payload") if k in record]
        if len(contents) != 1:
            raise BadRow(
                f"has {len(contents)} of input_length, text_input, messages and payload; one is due"
            )
        row = Row(arrival_ns=self._time_ns(record, session), session=session or None)
        row.output = values.tokens(record.get("output_length"), "output_length")
        if row.output == 0:
            raise BadRow("output_length is 0; a request has at least one token")
        if contents[0] == "input_length":
            row.prompt = values.positive(record["input_length"], "input_length")
        else:
            row.prompt_guess = _bytes_of(record[contents[0]]) // 4
        if record.get("hash_ids") is not None:
            row.blocks = values.block_ids(record["hash_ids"])
        self._last_ns[session] = row.arrival_ns
        return (row,)

    def _time_ns(self, record: Record, session: str) -> int:
        if not values.is_absent(record.get("timestamp")):
            return values.time_ns(record["timestamp"], self._unit, "timestamp")
        if session not in self._last_ns:
            raise BadRow("timestamp is missing, and no earlier turn of the session has one")
        self._dependent += 1
        return self._last_ns[session] + values.time_ns(record.get("delay"), self._unit, "delay")

    def facts(self) -> Facts:
        from traces.formats.turns import dependent

        return Facts(
            "aiperf", block_tokens=512, quirks=dependent(self._dependent),
            cannot_tell=(_NO_FAILURES, _NO_MODEL),
        )  # fmt: skip


def _bytes_of(content: Any) -> int:
    """Return the bytes of the text inside a prompt of any shape."""
    if isinstance(content, str):
        return len(content.encode("utf-8", "replace"))
    if isinstance(content, dict):
        return sum(_bytes_of(item) for item in content.values())
    if isinstance(content, list):
        return sum(_bytes_of(item) for item in content)
    return 0


_AIPERF_CONTENT: Final = ("input_length", "text_input", "messages", "payload")

AIPERF: Final = Format(
    "aiperf", "AIPerf mooncake_trace JSON lines (ms; sessions, delays, text or lengths)", "json",
    _Aiperf,
    claims=lambda r: ("timestamp" in r or "delay" in r) and "chat_id" not in r
    and any(key in r for key in _AIPERF_CONTENT) and not isinstance(r.get("hash_ids"), dict)
    and ("session_id" in r or "delay" in r or "input_length" not in r),
)  # fmt: skip

FORMATS: Final = (BAILIAN, RAGPULSE, AIPERF, MOONCAKE, GUIDELLM)
