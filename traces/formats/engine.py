"""Logs of inference engines: vLLM request lines and the SGLang request log."""

import calendar
import re
from collections.abc import Iterable
from typing import Any, Final

from traces import values
from traces.assemble import Facts
from traces.formats.base import Base, Format, Options, Record
from traces.rows import MISSING, BadRow, Row
from traces.trace import FAILED, Quirk, counted

_NO_BLOCKS: Final = "which prompts share a prefix: it has no prefix blocks"
_RECEIVED: Final = re.compile(
    r"(?:(?P<month>\d\d)-(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
    r"(?:[.,](?P<fraction>\d{1,9}))?|(?P<iso>\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]?\d*))"
    r".*?Received request (?P<id>[^\s:]+?)[:.]"
)
_MAX_TOKENS: Final = re.compile(r"\bmax_tokens=(\d+|None)\b")
_TOKEN_IDS: Final = re.compile(r"prompt_token_ids: \[([0-9,\s]*)\]")
_LORA: Final = re.compile(r"lora_name='([^']*)'")


class _VllmLog(Base):
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


class _SglangLog(Base):
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
        wanted = dig(record, "obj", "sampling_params", "max_new_tokens")
        most = values.tokens(wanted, "max_new_tokens")
        if event == "request.received":
            self._open[rid] = Row(
                arrival_ns=at, request=rid, max_tokens=most or MISSING, number=self.at
            )
            return ()
        return (self._finished(record, rid, at, most or MISSING),)

    def _finished(self, record: Record, rid: str, at: int, most: int) -> Row:
        meta = dig(record, "out", "meta_info")
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
            text = f"{counted(self._alone, 'arrival')} reckoned as the finish less e2e_latency"
            quirks.append(Quirk("arrival_from_finish", text, self._alone))
        if self._unfinished:
            text = f"{counted(self._unfinished, 'request')} received, but not finished in this log"
            quirks.append(Quirk("unfinished", text, self._unfinished))
        limits = ["requests that a gateway dropped before they reached the engine", _NO_BLOCKS]
        if self._unfinished:
            limits.append(
                f"lengths of {counted(self._unfinished, 'request')} that the log cuts short"
            )
        return Facts("sglang-log", quirks=tuple(quirks), cannot_tell=tuple(limits))


def dig(record: Any, *path: str) -> Any:
    """Return what lies at *path* inside nested objects, None where it does not."""
    for key in path:
        if not isinstance(record, dict):
            return None
        record = record.get(key)
    return record


SGLANG: Final = Format(
    "sglang-log", "SGLang --log-requests-format json (request.received, request.finished)",
    "json", _SglangLog, claims=lambda r: "rid" in r and "event" in r,
)  # fmt: skip


FORMATS: Final = (SGLANG, VLLM_LOG)
