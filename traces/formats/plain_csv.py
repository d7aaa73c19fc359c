"""CSV traces of research fleets: Azure, BurstGPT, Vidur, Splitwise-sim, LMBench."""

from typing import Final

from traces import values
from traces.assemble import Facts
from traces.formats.base import Base, Format, Options, Quick, Record, simple
from traces.rows import MISSING, BadRow, Row
from traces.trace import FAILED

_NO_BLOCKS: Final = "which prompts share a prefix: it has no prefix blocks"
_NO_SESSION: Final = "which requests belong to one conversation"
_NO_MAX: Final = "the max_tokens that callers asked for"
_NO_FAILURES: Final = (
    "requests that failed, were dropped or retried: only what was served is listed, so a replay "
    "is biased towards what the old system could serve"
)
_NO_MODEL: Final = "which model a request asked for"


def _azure(record: Record, options: Options) -> Row:
    return Row(
        arrival_ns=values.time_ns(record["TIMESTAMP"], options.unit or "s", "TIMESTAMP"),
        prompt=values.positive(record["ContextTokens"], "ContextTokens"),
        output=values.positive(record["GeneratedTokens"], "GeneratedTokens"),
    )


_AZURE_FACTS: Final = Facts(
    "azure", order="arrival",
    cannot_tell=(_NO_FAILURES, _NO_BLOCKS, _NO_SESSION, _NO_MAX, _NO_MODEL),
)  # fmt: skip

AZURE: Final = Format(
    "azure", "Azure LLM inference 2023 and 2024 CSV (also inference-perf's AzurePublicDataset)",
    "csv", simple(_azure, _AZURE_FACTS),
    columns=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    quick=Quick("TIMESTAMP", "ContextTokens", "GeneratedTokens", unit="iso"), facts=_AZURE_FACTS,
)  # fmt: skip


def _burstgpt(record: Record, options: Options) -> Row:
    output = values.tokens(record["Response tokens"], "Response tokens")
    prompt = values.tokens(record["Request tokens"], "Request tokens")
    failed = output == 0
    if prompt == 0 and not failed:
        raise BadRow("Request tokens is 0 but Response tokens is not")
    return Row(
        arrival_ns=values.time_ns(record["Timestamp"], options.unit or "s", "Timestamp"),
        prompt=prompt or MISSING,
        output=MISSING if failed else output,
        status=FAILED if failed else 0,
        model=values.text(record["Model"]),
        session=values.text(record.get("Session ID")) or None,
        duration_s=values.seconds(record.get("Elapsed time"), "Elapsed time"),
    )


_BURST_FACTS: Final = Facts(
    "burstgpt", order="arrival", tick_s=1.0,
    cannot_tell=(_NO_BLOCKS, _NO_MAX, "why a request failed: only that no token came back"),
)  # fmt: skip

BURSTGPT: Final = Format(
    "burstgpt", "BurstGPT CSV of 6 or 8 columns, read by column name", "csv",
    simple(_burstgpt, _BURST_FACTS),
    columns=("Timestamp", "Model", "Request tokens", "Response tokens"),
    quick=Quick(
        "Timestamp", "Request tokens", "Response tokens", model="Model", session="Session ID",
        duration="Elapsed time", zero_output_failed=True,
    ),
    facts=_BURST_FACTS,
)  # fmt: skip


def _vidur(record: Record, options: Options) -> Row:
    return Row(
        arrival_ns=values.time_ns(record["arrived_at"], options.unit or "s", "arrived_at"),
        prompt=values.positive(record["num_prefill_tokens"], "num_prefill_tokens"),
        output=values.positive(record["num_decode_tokens"], "num_decode_tokens"),
    )


_VIDUR_FACTS: Final = Facts(
    "vidur", order="arrival",
    cannot_tell=(_NO_FAILURES, _NO_BLOCKS, _NO_SESSION, _NO_MAX, _NO_MODEL),
)  # fmt: skip

VIDUR: Final = Format(
    "vidur", "Vidur CSV (arrived_at in seconds)", "csv", simple(_vidur, _VIDUR_FACTS),
    columns=("arrived_at", "num_prefill_tokens", "num_decode_tokens"),
    quick=Quick("arrived_at", "num_prefill_tokens", "num_decode_tokens"), facts=_VIDUR_FACTS,
)  # fmt: skip


def _splitwise(record: Record, options: Options) -> Row:
    batch = values.tokens(record.get("batch_size"), "batch_size")
    if batch not in (1, MISSING):
        raise BadRow(f"batch_size is {batch}; a row must be one request")
    name = "arrival_timestamp"
    return Row(
        arrival_ns=values.time_ns(record[name], options.unit or "s", name),
        prompt=values.positive(record["prompt_size"], "prompt_size"),
        output=values.positive(record["token_size"], "token_size"),
        request=values.text(record.get("request_id")) or None,
        model=_application(record),
    )


def _application(record: Record) -> str:
    name = values.text(record.get("application_id"))
    return f"application-{name}" if name not in ("", "0") else ""


_SPLITWISE_FACTS: Final = Facts(
    "splitwise-sim", order="arrival",
    cannot_tell=(_NO_FAILURES, _NO_BLOCKS, _NO_SESSION, _NO_MAX, _NO_MODEL),
)  # fmt: skip

SPLITWISE: Final = Format(
    "splitwise-sim", "Splitwise-sim CSV (arrival_timestamp in seconds)", "csv",
    simple(_splitwise, _SPLITWISE_FACTS),
    columns=("arrival_timestamp", "prompt_size", "token_size"), facts=_SPLITWISE_FACTS,
)  # fmt: skip


def _lmbench(record: Record, options: Options) -> Row:
    launch = values.time_ns(record["launch_time"], options.unit or "s", "launch_time")
    end = record.get("finish_time")
    duration_s = float("nan")
    if not values.is_absent(end):
        finish = values.time_ns(end, options.unit or "s", "finish_time")
        if finish < launch:
            raise BadRow("finish_time is before launch_time")
        duration_s = (finish - launch) / 1e9
    return Row(
        arrival_ns=launch,
        prompt=values.positive(record["prompt_tokens"], "prompt_tokens"),
        output=values.positive(record["generation_tokens"], "generation_tokens"),
        duration_s=duration_s,
        ttft_s=values.seconds(record.get("ttft"), "ttft"),
    )


_LMBENCH_FACTS: Final = Facts(
    "lmbench", order="any",
    cannot_tell=(
        "requests that did not finish: only finished ones are listed (survivorship)",
        "open-loop arrivals: launch_time is when the load generator sent, after its own waiting",
        _NO_BLOCKS, _NO_SESSION, _NO_MAX, _NO_MODEL,
    ),
)  # fmt: skip

LMBENCH: Final = Format(
    "lmbench", "LMBench / llm-d CSV of finished requests (launch_time epoch seconds)", "csv",
    simple(_lmbench, _LMBENCH_FACTS),
    columns=("prompt_tokens", "generation_tokens", "launch_time"), facts=_LMBENCH_FACTS,
)  # fmt: skip


class Lengths(Base):
    """Length tables without arrival times; arrivals are drawn only when a rate is given."""

    def __init__(self, options: Options, prompt: str, output: str) -> None:
        from traces.formats.made import Poisson

        self._prompt, self._output = prompt, output
        self._arrivals = Poisson(options)

    def rows(self, record: Record) -> tuple[Row, ...]:
        prompt = values.positive(record[self._prompt], self._prompt)
        output = values.positive(record[self._output], self._output)
        return (Row(arrival_ns=self._arrivals.next_ns(), prompt=prompt, output=output),)

    def facts(self) -> Facts:
        return Facts(
            "lengths", arrivals="made", quirks=self._arrivals.quirks(),
            cannot_tell=("when requests arrived: it holds lengths only", _NO_BLOCKS, _NO_MAX),
        )  # fmt: skip


LENGTHS: Final = Format(
    "lengths", "Length tables without arrivals (Vidur, Sarathi: num_prefill_tokens, ...)", "csv",
    lambda options: Lengths(options, "num_prefill_tokens", "num_decode_tokens"),
    columns=("num_prefill_tokens", "num_decode_tokens"),
)  # fmt: skip

LENGTHS_CHAT: Final = Format(
    "lengths-chat", "Length tables without arrivals (prompt_tokens, completion_tokens)", "csv",
    lambda options: Lengths(options, "prompt_tokens", "completion_tokens"),
    columns=("prompt_tokens", "completion_tokens"),
)  # fmt: skip

FORMATS: Final = (AZURE, BURSTGPT, VIDUR, SPLITWISE, LMBENCH, LENGTHS, LENGTHS_CHAT)
