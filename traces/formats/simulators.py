"""Files of other simulators and benchmarks: LLMServingSim, Weka, vLLM and SGLang results."""

import math
from collections.abc import Iterable
from typing import Any, Final

from traces import values
from traces.assemble import Facts
from traces.formats.base import Base, Format, Options, Record
from traces.formats.made import Poisson
from traces.formats.turns import dependent
from traces.rows import MISSING, BadRow, Row
from traces.trace import FAILED, Quirk

_NO_BLOCKS: Final = "which prompts share a prefix: it has no prefix blocks"
_NO_FAILURES: Final = "requests that failed, were dropped or retried: only what was served is there"
_NO_MAX: Final = "the max_tokens that callers asked for"
_NO_MODEL: Final = "which model a request asked for"


class _Servingsim(Base):
    """Flat requests, and sessions whose calls wait for the one before and for a tool."""

    def __init__(self, options: Options) -> None:
        self._unit = options.unit or "ns"
        self._dependent = 0

    def rows(self, record: Record) -> Iterable[Row]:
        name = "arrival_time_ns"
        at = values.time_ns(record.get(name), self._unit, name)
        if "sub_requests" not in record:
            return (self._one(record, at, None),)
        calls = record["sub_requests"]
        if not isinstance(calls, list) or not calls:
            raise BadRow("sub_requests is no list of calls")
        session = values.text(record.get("session_id")) or f"at-{at}"
        rows = []
        for call in calls:
            if not isinstance(call, dict):
                raise BadRow("sub_requests holds something that is no object")
            rows.append(self._one(call, at, session))
            if not values.is_absent(call.get("tool_duration_ns")):
                at += values.time_ns(call["tool_duration_ns"], "ns", "tool_duration_ns")
        self._dependent += len(rows) - 1
        return rows

    def _one(self, call: Record, at: int, session: str | None) -> Row:
        return Row(
            arrival_ns=at,
            prompt=values.positive(call.get("input_toks"), "input_toks"),
            output=values.positive(call.get("output_toks"), "output_toks"),
            session=session,
        )

    def facts(self) -> Facts:
        return Facts(
            "llmservingsim", quirks=dependent(self._dependent),
            cannot_tell=(_NO_FAILURES, _NO_BLOCKS, _NO_MAX, _NO_MODEL),
        )  # fmt: skip


SERVINGSIM: Final = Format(
    "llmservingsim", "LLMServingSim JSON lines (arrival_time_ns; agentic sub_requests)", "json",
    _Servingsim,
    claims=lambda r: "arrival_time_ns" in r and ("input_toks" in r or "sub_requests" in r),
)  # fmt: skip


class _Measured(Base):
    """Per-request timings of an LLMServingSim bench run against a real engine."""

    def __init__(self, options: Options) -> None:
        self._unit = options.unit or "s"

    def rows(self, record: Record) -> Iterable[Row]:
        row = Row(
            arrival_ns=values.time_ns(record.get("arrival_time"), self._unit, "arrival_time"),
            prompt=values.positive(record.get("input_toks"), "input_toks"),
            output=values.positive(record.get("output_toks"), "output_toks"),
            request=values.text(record.get("request_id")) or None,
        )
        queued, first, last = (
            values.seconds(record.get(name), name)
            for name in ("queued_ts", "first_token_ts", "last_token_ts")
        )
        row.ttft_s, row.duration_s = first - queued, last - queued
        return (row,)

    def facts(self) -> Facts:
        return Facts("llmservingsim-run", cannot_tell=(_NO_FAILURES, _NO_BLOCKS, _NO_MAX))


MEASURED: Final = Format(
    "llmservingsim-run", "LLMServingSim bench requests (arrival_time epoch s, engine timings)",
    "json", _Measured,
    claims=lambda r: "arrival_time" in r and "input_toks" in r and "output_toks" in r,
)  # fmt: skip


class _Weka(Base):
    """Conversations with a clock of their own; when they began is not recorded."""

    def __init__(self, options: Options) -> None:
        self._unit = options.unit or "s"
        self._starts = Poisson(options)
        self._block = 64
        self._local = 0
        self._count = 0

    def rows(self, record: Record) -> Iterable[Row]:
        talk = values.text(record.get("id"))
        turns = record.get("requests")
        if not isinstance(turns, list) or not turns:
            raise BadRow("requests is no list of turns")
        size = values.tokens(record.get("block_size"), "block_size")
        if size > 0:
            self._block = size
        self._count += 1
        local = values.text(record.get("hash_id_scope")).lower() != "global"
        self._local += local
        begin = self._starts.next_ns()
        rows = []
        for turn in turns:
            rows += self._turn(turn, talk, begin, self._count if local else 0)
        if not rows:
            raise BadRow("requests holds no turn with lengths")
        return rows

    def _turn(self, turn: Any, talk: str, begin: int, scope: int) -> list[Row]:
        if not isinstance(turn, dict):
            raise BadRow("requests holds something that is no object")
        if isinstance(turn.get("requests"), list):  # a sub-agent with turns of its own
            return [row for t in turn["requests"] for row in self._turn(t, talk, begin, scope)]
        row = Row(
            arrival_ns=begin + values.time_ns(turn.get("t"), self._unit, "t"),
            prompt=values.positive(turn.get("in"), "in"),
            output=values.tokens(turn.get("out"), "out") or MISSING,
            session=talk or None,
            model=values.text(turn.get("model")),
        )
        if turn.get("hash_ids") is not None:
            ids = values.block_ids(turn["hash_ids"])
            row.blocks = [(scope << 40) ^ i for i in ids] if scope else ids
        return [row]

    def facts(self) -> Facts:
        quirks = list(self._starts.quirks())
        if self._local > 1:
            text = "block ids count from 1 in each conversation; they are kept apart"
            quirks.append(Quirk("local_blocks", text, self._local))
        limits = (
            "when conversations began: each has its own clock",
            "prefixes that different conversations share", _NO_FAILURES, _NO_MAX,
        )  # fmt: skip
        return Facts(
            "weka", block_tokens=self._block, arrivals="made", quirks=tuple(quirks),
            cannot_tell=limits,
        )  # fmt: skip


WEKA: Final = Format(
    "weka", "Weka conversations (id, requests of t, in, out, hash_ids; 64-token blocks)", "json",
    _Weka,
    claims=lambda r: isinstance(r.get("requests"), list) and "id" in r
    and any(isinstance(t, dict) and ("in" in t or "requests" in t) for t in r["requests"][:3]),
)  # fmt: skip


class _Bench(Base):
    """A result of ``vllm bench serve`` or SGLang's bench_serving: arrivals are drawn again."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._runs = 0
        self._arrivals = Poisson(options)
        self._detailed = True
        self._recorded = False

    def rows(self, record: Record) -> Iterable[Row]:
        self._runs += 1
        if self._runs > 1:
            raise BadRow("is a second run; one result is one trace")
        rate, shape = _rate(record), _shape(record)
        self._arrivals = Poisson(self._options, rate, shape)
        prompts, outputs = record.get("input_lens"), record.get("output_lens")
        if not isinstance(prompts, list) or not isinstance(outputs, list):
            self._detailed = False
            return self._from_totals(record)
        if len(prompts) != len(outputs):
            raise BadRow("input_lens and output_lens differ in length")
        return [self._row(record, i, p, o) for i, (p, o) in
                enumerate(zip(prompts, outputs, strict=True))]  # fmt: skip

    def _row(self, record: Record, i: int, prompt: Any, output: Any) -> Row:
        error = values.text(_at(record.get("errors"), i))
        row = Row(
            arrival_ns=self._time_ns(record, i),
            prompt=values.positive(prompt, "input_lens"),
            output=values.tokens(output, "output_lens") or MISSING,
            model=values.text(record.get("model_id")),
            number=i + 1,
        )
        if error or row.output == MISSING:
            row.status, row.output = FAILED, MISSING
        else:
            row.ttft_s = values.seconds(_at(record.get("ttfts"), i), "ttfts")
        return row

    def _time_ns(self, record: Record, i: int) -> int:
        start = _at(record.get("start_times"), i)
        if start is None:
            return self._arrivals.next_ns()
        self._recorded = True
        return values.time_ns(start, "s", "start_times")

    def _from_totals(self, record: Record) -> list[Row]:
        done = values.tokens(record.get("completed"), "completed")
        failed = max(0, values.tokens(record.get("failed"), "failed"))
        if done < 1:
            raise BadRow("completed no request")
        means = [
            max(1, round(values.tokens(record.get(name), name) / done))
            for name in ("total_input_tokens", "total_output_tokens")
        ]
        return [
            Row(
                arrival_ns=self._arrivals.next_ns(), prompt_guess=means[0], output_guess=means[1],
                model=values.text(record.get("model_id")), number=i + 1,
                status=FAILED if i >= done else 0,
            )
            for i in range(min(done + failed, 10_000_000))
        ]  # fmt: skip

    def facts(self) -> Facts:
        limits = ["when requests arrived: a result has no start times"]
        if self._recorded:
            limits = []
        if not self._detailed:
            limits.append("single lengths: only totals are there (--save-detailed keeps them)")
        return Facts(
            "vllm-bench", arrivals="recorded" if self._recorded else "made",
            quirks=() if self._recorded else self._arrivals.quirks(),
            cannot_tell=(*limits, _NO_BLOCKS, _NO_MAX), guess_from="the means of the run",
        )  # fmt: skip


def _at(column: Any, i: int) -> Any:
    return column[i] if isinstance(column, list) and i < len(column) else None


def _rate(record: Record) -> float | None:
    value: Any = record.get("request_rate")
    if values.is_absent(value):
        return None
    try:
        rate = float(value)
    except (TypeError, ValueError):
        raise BadRow(f"request_rate is no number: {values.clip(value)}") from None
    if not rate > 0:
        raise BadRow(f"request_rate is {rate}")
    return rate


def _shape(record: Record) -> float:
    value: Any = record.get("burstiness")
    if values.is_absent(value):
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise BadRow(f"burstiness is no positive number: {values.clip(value)}")
    return float(value)


BENCH: Final = Format(
    "vllm-bench", "vllm bench serve or SGLang bench_serving result (arrivals drawn again)", "json",
    _Bench,
    claims=lambda r: "request_rate" in r and "completed" in r
    and ("total_input_tokens" in r or "input_lens" in r),
)  # fmt: skip

FORMATS: Final = (SERVINGSIM, MEASURED, WEKA, BENCH)
