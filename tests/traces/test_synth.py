"""Generated traces: what their models promise."""

from typing import Any

import numpy as np
import pytest

import traces
from dispatch.errors import InputError
from traces import synth
from traces.synthetic import names


@pytest.fixture(scope="module")
def conv() -> list[traces.Trace]:
    return [synth.generate("azure-2023-conv", {}, seed) for seed in range(5)]


@pytest.mark.parametrize(
    ("keys", "published", "rel"),
    [
        (("rate_per_s",), 5.530, 0.02),
        (("cv",), 1.094, 0.03),
        (("dispersion_1s",), 1.39, 0.08),
        (("dispersion_10s",), 4.00, 0.20),
        (("prompt_tokens", "mean"), 1_154.7, 0.02),
        (("prompt_tokens", "p50"), 1_020, 0.01),
        (("prompt_tokens", "p99"), 4_142, 0.05),
        (("output_tokens", "mean"), 211.1, 0.02),
        (("output_tokens", "p50"), 129, 0.03),
        (("output_tokens", "p99"), 601, 0.03),
    ],
)
def test_generated_conversation_trace_has_the_published_statistics(
    conv: list[traces.Trace], keys: tuple[str, ...], published: float, rel: float
) -> None:
    found: list[float] = []
    for trace in conv:
        node: Any = traces.describe(trace)
        for key in keys:
            node = node[key]
        found.append(node)
    assert np.mean(found) == pytest.approx(published, rel=rel)


def test_generated_conversation_trace_has_as_many_requests_as_the_real_one(
    conv: list[traces.Trace],
) -> None:
    assert {len(trace) for trace in conv} == {19_366}


def test_generated_output_drifts_from_217_to_129(conv: list[traces.Trace]) -> None:
    first = [np.median(t.output_tokens[t.arrival_s < 600]) for t in conv]
    assert np.mean(first) == pytest.approx(217, rel=0.1)


def test_same_seed_gives_the_same_trace_and_another_seed_another() -> None:
    one, same, other = (synth.generate("azure-2023-conv", {"requests": 500}, s) for s in (1, 1, 2))
    assert np.array_equal(one.arrival_s, same.arrival_s)
    assert np.array_equal(one.prompt_tokens, same.prompt_tokens)
    assert not np.array_equal(one.arrival_s, other.arrival_s)


def test_more_requests_begin_with_the_same_requests() -> None:
    short, long = (synth.generate("gamma", {"requests": n}, 3) for n in (100, 70_000))
    assert np.array_equal(short.arrival_s, long.arrival_s[:100])
    assert np.array_equal(short.output_tokens, long.output_tokens[:100])


@pytest.mark.parametrize("name", names())
def test_every_bundled_model_makes_ordered_traces_from_zero(name: str) -> None:
    trace = synth.generate(name, {"requests": 2_000}, 5)
    assert len(trace) == 2_000
    assert trace.arrival_s[0] == 0
    assert (np.diff(trace.arrival_s) >= 0).all()
    assert trace.prompt_tokens.min() >= 1
    assert trace.output_tokens.min() >= 1


def test_unknown_parameters_are_all_named_with_the_near_miss() -> None:
    params = {"requets": 5, "arrivals": {"rate": 2, "cv": -1}}
    with pytest.raises(InputError) as error:
        synth.generate("gamma", params, 0)
    text = str(error.value)
    assert "requets: unknown key; did you mean requests?" in text
    assert "arrivals.rate: unknown key" in text
    assert "arrivals.cv" in text


def test_unknown_model_is_refused_with_the_near_miss() -> None:
    with pytest.raises(InputError, match="did you mean azure-2023-conv"):
        synth.generate("azure-2023-cnv", {}, 0)
