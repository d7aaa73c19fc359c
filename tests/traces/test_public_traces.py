"""Published values of the public traces, computed by our readers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traces
from traces.cache import hit_rates
from traces.trace import Trace

Data = Callable[[str], Path]
CONV = "AzureLLMInferenceTrace_conv.csv"
CODE = "AzureLLMInferenceTrace_code.csv"
MOONCAKE = "mooncake_conversation_trace.jsonl"


@pytest.fixture(scope="module")
def mooncake(data_file: Data) -> Trace:
    return traces.read(data_file(MOONCAKE), spread=False)


@pytest.mark.parametrize(
    ("file", "about"),
    [
        (CONV, (19_366, 3501.7, 5.530, 1.094, 1.39, 4.00, 1_020, 4_142, 14_050, 129, 601, 1_000)),
        (CODE, (8_819, 3435.9, 2.567, 13.15, 13.2, 71.3, 1_469, 7_436, 7_437, 13, 251, 1_899)),
        (
            MOONCAKE,
            (12_031, 3537.0, 3.402, 3.03, 7.89, 2.09, 6_909, 85_400, 126_195, 350, 1_119, 2_000),
        ),
    ],
)  # fmt: skip
def test_statistics_are_the_published_ones(data_file: Data, file: str, about: Any) -> None:
    found = traces.describe(traces.read(data_file(file), spread=False))
    prompt, output = found["prompt_tokens"], found["output_tokens"]
    got = (
        found["requests"], found["span_s"], found["rate_per_s"], found["cv"],
        found["dispersion_1s"], found["dispersion_10s"], prompt["p50"], prompt["p99"],
        prompt["max"], output["p50"], output["p99"], output["max"],
    )  # fmt: skip
    assert got == pytest.approx(about, rel=3.5e-3)


@pytest.mark.parametrize(
    ("file", "medians"), [(CONV, (1_020, 129)), (CODE, (1_469, 13)), (MOONCAKE, (6_909, 350))]
)
def test_medians_are_exact(data_file: Data, file: str, medians: tuple[int, int]) -> None:
    found = traces.describe(traces.read(data_file(file)))
    assert (found["prompt_tokens"]["p50"], found["output_tokens"]["p50"]) == medians


def test_mooncake_means_are_those_of_table_2(mooncake: Trace) -> None:
    assert round(float(mooncake.prompt_tokens.mean()), 2) == 12_035.06
    assert round(float(mooncake.output_tokens.mean()), 2) == 342.62


def test_mooncake_ties_are_told_and_spread_over_three_seconds(
    data_file: Data, mooncake: Trace
) -> None:
    quirk = next(q for q in mooncake.quirks if q.code == "ties")
    assert quirk.rows == 10_851
    assert "3 s apart" in quirk.text
    spread = traces.read(data_file(MOONCAKE))
    assert traces.describe(spread)["cv"] == pytest.approx(1.0, abs=0.03)
    late = spread.arrival_s - mooncake.arrival_s
    assert late.max() - late.min() < 3.01


def test_mooncake_blocks_are_512_tokens_in_every_row(mooncake: Trace) -> None:
    assert mooncake.block_tokens == 512
    assert not [q for q in mooncake.quirks if q.code.startswith("block")]


@pytest.mark.parametrize(
    ("evict", "capacity", "rate"),
    [
        ("lru", 1_000, 0.0445), ("lru", 10_000, 0.2112), ("lru", 100_000, 0.3637),
        ("lfu", 10_000, 0.1315), ("lfu", 50_000, 0.3438),
        ("length", 5_859, 0.0827), ("length", 30_000, 0.1949), ("lru", None, 0.3664),
    ],
)  # fmt: skip
def test_cache_hit_rates_are_the_reference_values(
    mooncake: Trace, evict: Any, capacity: int | None, rate: float
) -> None:
    assert round(hit_rates(mooncake, capacity, evict).hit_rate_blocks, 4) == rate


def test_unbounded_hit_rate_by_tokens_is_the_reference_value(mooncake: Trace) -> None:
    assert round(hit_rates(mooncake, None).hit_rate_tokens, 4) == 0.3736


@pytest.mark.parametrize(
    ("file", "prompt", "output"),
    [
        ("sharegpt_8k_llama2.csv", (1_730, 5_696), (415, 834)),
        ("arxiv_4k_llama2.csv", (2_730, 3_702), (167, 372)),
    ],
)
def test_length_tables_have_the_published_quantiles(
    data_file: Data, file: str, prompt: tuple[int, int], output: tuple[int, int]
) -> None:
    found = traces.describe(traces.read(data_file(file), partial=True))
    assert (found["prompt_tokens"]["p50"], found["prompt_tokens"]["p90"]) == prompt
    assert (found["output_tokens"]["p50"], found["output_tokens"]["p90"]) == output
    assert found["span_s"] is None
    assert found["rate_per_s"] is None
