"""Damaged files of every format end in a trace or in one clear error, never in anything else."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import traces
from dispatch.errors import InputError
from tests.strategies import mutated
from tests.traces.format_samples import SAMPLES
from traces import parquet


def read_or_refuse(path: Path, data: bytes, skip_bad: bool = False) -> None:
    path.write_bytes(data)
    trace: traces.Trace | None = None
    refused = ""
    try:
        trace = traces.read(path, partial=True, skip_bad=skip_bad)
    except InputError as error:
        refused = str(error)
    if trace is None:
        assert refused.startswith(str(path))
        return
    assert len(trace) > 0
    assert trace.prompt_tokens.min() >= 1
    assert trace.output_tokens.min() >= 1
    assert (trace.arrival_s[1:] >= trace.arrival_s[:-1]).all()
    traces.describe(trace)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "trace"


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_mutated_bytes_of_a_format_never_end_in_a_traceback(name: str, path: Path) -> None:
    @settings(max_examples=60)
    @given(data=mutated(SAMPLES[name]), skip_bad=st.booleans())
    def hold(data: bytes, skip_bad: bool) -> None:
        read_or_refuse(path, data, skip_bad)

    hold()


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_mutated_archives_never_end_in_a_traceback(packing: str, path: Path) -> None:
    import pyarrow as pa

    plain = SAMPLES["mooncake"] * 50
    packed = gzip.compress(plain) if packing == "gzip" else pa.compress(plain, "zstd", asbytes=True)

    @settings(max_examples=80)
    @given(data=mutated(packed))
    def hold(data: bytes) -> None:
        read_or_refuse(path, data)

    hold()


def test_mutated_parquet_never_ends_in_a_traceback(path: Path) -> None:
    whole = path.with_name("whole.parquet")
    path.write_bytes(SAMPLES["bailian"])
    parquet.write(traces.read(path), whole)
    packed = whole.read_bytes()

    @settings(max_examples=80)
    @given(data=mutated(packed))
    def hold(data: bytes) -> None:
        read_or_refuse(path, data)

    hold()


@given(data=st.binary(max_size=200))
def test_any_bytes_end_in_a_trace_or_a_clear_error(data: bytes, path: Path) -> None:
    read_or_refuse(path, data)
