"""What is done to whole traces: cut, scale, mix, resample, anonymise; what stays and what goes."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traces
from dispatch.errors import InputError
from tests.strategies import small_traces
from traces import resample, synth
from traces.anonymise import anonymise
from traces.trace import Trace


@pytest.fixture(scope="module")
def poisson() -> Trace:
    return synth.generate("poisson", {"requests": 20_000, "arrivals": {"rate_per_s": 10.0}}, 4)


def sound(trace: Trace) -> None:
    """Hold what a Trace promises."""
    assert (np.diff(trace.arrival_s) >= 0).all()
    assert trace.prompt_tokens.min(initial=1) >= 1
    assert trace.output_tokens.min(initial=1) >= 1
    for field in dataclasses.fields(trace):
        column = getattr(trace, field.name)
        if isinstance(column, np.ndarray) and field.name not in ("block_hashes", "block_offsets"):
            assert len(column) == len(trace)
    if trace.block_offsets is not None and trace.block_hashes is not None:
        assert len(trace.block_offsets) == len(trace) + 1
        assert trace.block_offsets[-1] == len(trace.block_hashes)


@given(
    trace=small_traces(), start=st.floats(0, 30), length=st.floats(0, 30), most=st.integers(0, 9)
)
def test_a_cut_holds_the_requests_of_its_span_and_no_other(
    trace: Trace, start: float, length: float, most: int
) -> None:
    cut = traces.slice(trace, start_s=start, duration_s=length, limit=most)
    inside = (trace.arrival_s >= start) & (trace.arrival_s < start + length)
    rows = np.flatnonzero(inside)[:most]
    sound(cut)
    assert cut.prompt_tokens.tolist() == trace.prompt_tokens[rows].tolist()
    assert [cut.blocks(i) for i in range(len(cut))] == [trace.blocks(int(i)) for i in rows]
    assert ((cut.arrival_s >= 0) & (cut.arrival_s < max(length, 1e-12))).all()


@pytest.mark.parametrize("wrong", [{"start_s": -1.0}, {"duration_s": float("nan")}, {"limit": -1}])
def test_a_cut_that_makes_no_sense_is_refused(poisson: Trace, wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="0 or more"):
        traces.slice(poisson, **wrong)  # type: ignore[arg-type]


@given(trace=small_traces(), factor=st.floats(0.05, 4.0), seed=st.integers(0, 9))
def test_a_scaled_trace_is_sound_and_made_of_the_same_requests(
    trace: Trace, factor: float, seed: int
) -> None:
    scaled = traces.scale(trace, factor, seed)
    sound(scaled)
    whole = int(factor)
    assert len(trace) * whole <= len(scaled) <= len(trace) * (whole + 1)
    had = set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    assert (
        set(zip(scaled.prompt_tokens.tolist(), scaled.output_tokens.tolist(), strict=True)) <= had
    )


@pytest.mark.parametrize("factor", [0.3, 2.0, 2.5])
def test_scaling_keeps_the_span_and_multiplies_the_rate(poisson: Trace, factor: float) -> None:
    scaled = traces.scale(poisson, factor, 1)
    assert scaled.span_s == pytest.approx(poisson.span_s, rel=0.01)
    assert len(scaled) == pytest.approx(len(poisson) * factor, rel=0.03)


def test_a_scaled_poisson_trace_is_poisson(poisson: Trace) -> None:
    for factor in (0.3, 2.5):
        about = traces.describe(traces.scale(poisson, factor, 1))
        assert about["cv"] == pytest.approx(1.0, abs=0.03)
        assert about["dispersion_1s"] == pytest.approx(1.0, abs=0.1)


def test_time_is_squeezed_only_when_asked(poisson: Trace) -> None:
    squeezed = traces.scale(poisson, 2.0, 1, squeeze=True)
    assert len(squeezed) == len(poisson)
    assert squeezed.span_s == pytest.approx(poisson.span_s / 2)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_factor_that_makes_no_trace_is_refused(poisson: Trace, factor: float) -> None:
    with pytest.raises(InputError, match="factor"):
        traces.scale(poisson, factor, 1)


@given(trace=small_traces())
def test_copies_of_a_scaled_trace_share_no_session(trace: Trace) -> None:
    scaled = traces.scale(trace, 3.0, 1)
    if trace.session is not None and scaled.session is not None:
        mine, all_of_them = ({*s[s >= 0].tolist()} for s in (trace.session, scaled.session))
        assert len(all_of_them) == 3 * len(mine)


@given(one=small_traces(), other=small_traces())
def test_a_mixture_holds_every_request_and_keeps_sessions_and_models_apart(
    one: Trace, other: Trace
) -> None:
    mixed = traces.mix([one, other])
    sound(mixed)
    assert len(mixed) == len(one) + len(other)
    assert mixed.prompt_tokens.sum() == one.prompt_tokens.sum() + other.prompt_tokens.sum()
    sessions = [len({*t.session[t.session >= 0].tolist()}) if t.session is not None else 0
                for t in (one, other, mixed)]  # fmt: skip
    assert sessions[2] == sessions[0] + sessions[1]


def test_blocks_of_two_mixed_traces_never_meet() -> None:
    chat = synth.generate("chat", {"requests": 300}, 1)
    mixed = traces.mix([chat, chat])
    assert mixed.block_hashes is not None
    assert chat.block_hashes is not None
    assert len(np.unique(mixed.block_hashes)) == 2 * len(np.unique(chat.block_hashes))


@given(trace=small_traces(least=2), block=st.floats(0.5, 20), seed=st.integers(0, 99),
       number=st.integers(1, 9))  # fmt: skip
def test_a_replicate_is_sound_ends_in_time_and_is_the_same_twice(
    trace: Trace, block: float, seed: int, number: int
) -> None:
    drawn, again = (resample.blocks(trace, block, seed, number) for _ in range(2))
    sound(drawn)
    assert np.array_equal(drawn.arrival_s, again.arrival_s)
    if len(drawn):
        assert drawn.arrival_s[-1] <= trace.arrival_s[-1] + 1e-9


def test_replicates_keep_the_rate_and_the_burstiness_of_the_trace() -> None:
    trace = synth.generate("mmpp", {"requests": 20_000}, 3)
    about = traces.describe(trace)
    drawn = [traces.describe(resample.blocks(trace, 60.0, 1, i)) for i in range(1, 9)]
    assert np.mean([d["rate_per_s"] for d in drawn]) == pytest.approx(about["rate_per_s"], rel=0.05)
    assert np.mean([d["cv"] for d in drawn]) == pytest.approx(about["cv"], rel=0.05)


@given(trace=small_traces(), key=st.text("abcdef", min_size=8, max_size=20))
def test_an_anonymous_trace_keeps_times_lengths_and_equalities_and_nothing_else(
    trace: Trace, key: str
) -> None:
    told = anonymise(trace, key)
    sound(told)
    assert told.arrival_s.tolist() == (trace.arrival_s - trace.arrival_s[0]).tolist()
    assert told.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert told.source_row is None
    assert told.sha256 == ""
    assert not set(told.source) & {"path", "epoch_ns", "detected"}
    assert not set(told.names) & {"secret-model", "llama"}
    if trace.session is not None and told.session is not None:
        pairs = set(zip(trace.session.tolist(), told.session.tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        assert all((a < 0) == (b < 0) for a, b in pairs)


def test_ids_under_another_key_are_others() -> None:
    chat = synth.generate("chat", {"requests": 200}, 1)
    one, other = anonymise(chat, "first key"), anonymise(chat, "second key")
    assert one.session is not None
    assert other.session is not None
    assert not set(one.session.tolist()) & set(other.session.tolist())


def test_text_and_names_of_a_log_are_nowhere_in_its_anonymous_file(tmp_path: Path) -> None:
    from traces import export

    log = tmp_path / "private.jsonl"
    log.write_text(
        '{"session_id": "alice", "timestamp": 0, "text_input": "my PIN is 1234", '
        '"output_length": 9}\n'
        '{"session_id": "bob", "timestamp": 1000, "text_input": "hello", "output_length": 9}\n'
    )
    for end in (".parquet", ".jsonl", ".csv"):
        target = tmp_path / f"out{end}"
        export.write(anonymise(traces.read(log), "a long key"), target)
        found = target.read_bytes()
        assert not [word for word in (b"alice", b"bob", b"PIN", b"private") if word in found]


def test_a_short_key_is_refused(poisson: Trace) -> None:
    with pytest.raises(InputError, match="shorter than 8"):
        anonymise(poisson, "short")
