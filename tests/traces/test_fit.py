"""A fitted model makes traces like the one it was fitted to, and says how like."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traces
from traces import fit, goodness, synth
from traces.toml_text import dump
from traces.trace import Trace


def of(name: str, **params: object) -> Trace:
    return synth.generate(name, {"requests": 20_000, **params}, 11)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_the_burstiness_of_gamma_arrivals_is_found_again(cv: float) -> None:
    trace = of("gamma", arrivals={"process": "gamma", "cv": cv, "rate_per_s": 8.0})
    found = fit.fit(trace).arrivals
    assert found.process == "gamma"
    assert found.cv == pytest.approx(cv, rel=0.05)
    assert found.rate_per_s == pytest.approx(8.0, rel=0.05)


def test_a_daily_rate_is_no_burstiness() -> None:
    trace = of("diurnal", arrivals={"rate_per_s": 2.0, "diurnal_amplitude": 0.9,
                                    "diurnal_period_s": 5000.0})  # fmt: skip
    found = fit.fit(trace, step_s=100.0).arrivals
    assert found.cv == pytest.approx(1.0, abs=0.05)
    assert max(found.profile) > 4 * min(found.profile)


def test_the_correlation_of_lengths_is_found_again() -> None:
    assert fit.fit(of("gamma", correlation=0.6)).correlation == pytest.approx(0.6, abs=0.03)


def test_lengths_that_drift_drift_in_the_model() -> None:
    quantiles = {"kind": "quantiles", "window_s": 600.0, "probs": [0.0, 1.0],
                 "values": [[100.0, 200.0], [500.0, 600.0]]}  # fmt: skip
    trace = of("poisson", output=quantiles, arrivals={"rate_per_s": 10.0})
    rows = fit.fit(trace).output.values
    assert max(rows[0]) <= 200
    assert min(rows[1]) >= 500


@pytest.mark.data
@pytest.mark.parametrize("kind", ["conv", "code"])
def test_lengths_of_a_public_trace_pass_for_a_sample_of_the_same_distribution(
    data_file: Callable[[str], Path], kind: str
) -> None:
    trace = traces.read(data_file(f"AzureLLMInferenceTrace_{kind}.csv"))
    judged = [fit.judged(trace, step_s=None, window_s=None, seed=seed)[2] for seed in range(3)]
    assert max(one.ks_prompt for one in judged) < judged[0].ks_threshold
    assert max(one.ks_output for one in judged) < judged[0].ks_threshold


@pytest.mark.data
def test_a_fitted_model_has_the_rate_and_burstiness_of_a_public_trace(
    data_file: Callable[[str], Path],
) -> None:
    trace = traces.read(data_file("AzureLLMInferenceTrace_conv.csv"))
    judged = [fit.judged(trace, step_s=None, window_s=None, seed=seed)[2] for seed in range(5)]
    for key, rel in (("rate_per_s", 0.02), ("cv", 0.02), ("dispersion_1s", 0.08),
                     ("dispersion_10s", 0.15)):  # fmt: skip
        mean = np.mean([one.model[key] for one in judged])
        assert mean == pytest.approx(judged[0].trace[key], rel=rel), key


def test_a_model_survives_its_toml_file(tmp_path: Path) -> None:
    trace = of("mmpp")
    model, made, _ = fit.judged(trace, step_s=None, window_s=None, seed=3)
    path = tmp_path / "m.toml"
    path.write_text(dump(model))
    again = synth.generate(str(path), {}, 3)
    assert again.arrival_s.tolist() == made.arrival_s.tolist()
    assert again.output_tokens.tolist() == made.output_tokens.tolist()


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-9, 9), st.booleans(),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])),
    st.lists(st.floats(-1e9, 1e9), max_size=60))))  # fmt: skip
def test_what_is_dumped_as_toml_reads_back(document: dict[str, object]) -> None:
    assert tomllib.loads(dump({"table": document}))["table"] == document


@given(st.lists(st.integers(0, 9), min_size=1), st.lists(st.integers(0, 9), min_size=1))
def test_the_ks_distance_is_the_largest_gap_of_the_two_ecdfs(
    one: list[int], other: list[int]
) -> None:
    gaps = [
        abs(sum(v <= x for v in one) / len(one) - sum(v <= x for v in other) / len(other))
        for x in range(10)
    ]
    assert goodness.ks(np.array(one), np.array(other)) == pytest.approx(max(gaps))


@pytest.mark.parametrize("end", [".png", ".svg", ".pdf"])
def test_the_picture_is_the_same_bytes_twice(end: str, tmp_path: Path) -> None:
    trace = of("gamma", requests=500)
    _, made, found = fit.judged(trace, step_s=None, window_s=None, seed=1)
    one, other = tmp_path / f"one{end}", tmp_path / f"other{end}"
    goodness.picture(trace, made, found, one)
    goodness.picture(trace, made, found, other)
    assert one.read_bytes() == other.read_bytes()
    assert one.stat().st_size > 5_000


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_trace_of_a_few_requests_can_be_fitted(rows: int) -> None:
    trace = of("poisson", requests=rows)
    model, made, _ = fit.judged(trace, step_s=None, window_s=None, seed=1)
    assert model["requests"] == rows
    assert len(made) == rows
