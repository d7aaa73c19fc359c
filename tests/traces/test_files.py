"""Traces in files: what is written reads back the same, whole or streamed, or is not there."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import traces
from dispatch.errors import InputError
from tests.strategies import small_traces
from tests.traces.format_samples import SAMPLES
from traces import export, parquet, quick, stream, synth
from traces.formats.base import Options
from traces.trace import Trace

HEAD = b"TIMESTAMP,ContextTokens,GeneratedTokens\n"
many = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)


def columns(trace: Trace) -> dict[str, Any]:
    found = {f.name: getattr(trace, f.name) for f in dataclasses.fields(trace)}
    return {k: v.tolist() for k, v in found.items() if isinstance(v, np.ndarray)}


@many
@given(trace=small_traces())
def test_our_parquet_reads_back_every_column_that_a_row_fills(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    export.write(trace, path)
    back = traces.read(path)
    had, has = columns(trace), columns(back)
    if set(had.get("session", ())) == {-1}:
        del had["session"]  # a column that no row fills is none
    for name in ("model",):
        if name in had:
            assert [trace.names[i] if i >= 0 else "" for i in had.pop(name)] == [
                back.names[i] if i >= 0 else "" for i in has.pop(name)
            ]
    assert has == had
    assert back.block_tokens == trace.block_tokens


@many
@given(trace=small_traces())
def test_jsonl_and_csv_read_back_times_lengths_and_blocks(trace: Trace, tmp_path: Path) -> None:
    for end in (".jsonl.zst", ".csv.gz"):
        path = tmp_path / f"t{end}"
        export.write(trace, path)
        back = traces.read(path, unit="ms" if "json" in end else None, spread=False)
        assert back.arrival_s == pytest.approx(trace.arrival_s, abs=2e-9)
        assert back.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
        assert back.output_tokens.tolist() == trace.output_tokens.tolist()
        if "json" in end and trace.block_hashes is not None and len(trace.block_hashes):
            assert [back.blocks(i) for i in range(len(back))] == [
                trace.blocks(i) for i in range(len(trace))
            ]


@pytest.mark.parametrize("end", export.ENDS)
def test_the_same_trace_gives_the_same_bytes(end: str, tmp_path: Path) -> None:
    chat = synth.generate("chat", {"requests": 300}, 2)
    one, other = tmp_path / f"one{end}", tmp_path / f"other{end}"
    export.write(chat, one)
    export.write(chat, other)
    assert one.read_bytes() == other.read_bytes()


def test_an_unknown_ending_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"use one of \.parquet, \.jsonl"):
        export.write(synth.generate("poisson", {"requests": 5}, 1), tmp_path / "t.txt")


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    made = synth.generate("poisson", {"requests": 5}, 1)
    for target in (tmp_path / "none" / "t.csv", tmp_path):
        with pytest.raises(InputError, match="folder"):
            export.reachable(target)
    with pytest.raises(InputError, match="no request"):
        export.write(made.take(np.empty(0, np.int64)), tmp_path / "t.csv")
    assert list(tmp_path.iterdir()) == []


def streamed(path: Path, target: Path) -> Trace | None:
    done = stream.to_parquet(path, target, Options())
    return traces.read(target, spread=False) if done is not None else None


def _rows(count: int, step_ms: int) -> bytes:
    base = np.datetime64("2031-01-02T09:00:00", "ms") + np.arange(count) * step_ms
    return HEAD + b"".join(f"{t},{i % 50 + 1},{i % 7 + 1}\n".encode() for i, t in enumerate(base))


@pytest.mark.parametrize("name", ["azure", "azure-2024", "burstgpt", "burstgpt-6", "vidur"])
def test_a_streamed_file_is_what_reading_it_whole_gives(name: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(SAMPLES[name])
    whole, piece = traces.read(path, spread=False), streamed(path, tmp_path / "t.parquet")
    assert piece is not None
    assert columns(piece) == columns(whole)
    assert piece.quirks == whole.quirks
    assert piece.cannot_tell == whole.cannot_tell


def test_streaming_in_many_chunks_gives_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(_rows(20_000, 100))
    assert streamed(path, tmp_path / "one.parquet") is not None
    monkeypatch.setattr(quick, "BLOCK_BYTES", 1 << 14)
    assert streamed(path, tmp_path / "other.parquet") is not None
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()


def test_ties_of_a_streamed_file_are_told_and_spread_by_a_replay(tmp_path: Path) -> None:
    path = tmp_path / "log"
    content = SAMPLES["burstgpt"].replace(b"0.25,", b"0,").replace(b"3.1,", b"3,")
    path.write_bytes(content.replace(b"0.0,", b"0,"))
    target = tmp_path / "t.parquet"
    recorded = streamed(path, target)
    assert recorded is not None
    assert recorded.arrival_s.tolist() == [0, 0, 3]
    assert "ties" in {quirk.code for quirk in recorded.quirks}
    replayed = traces.read(target)
    assert len(np.unique(replayed.arrival_s)) == 3
    assert replayed.arrival_s.tolist() == traces.read(path).arrival_s.tolist()


@pytest.mark.parametrize(
    "damage",
    [
        (b",5,", b",0,"), (b",5,", b",-5,"), (b",5,", b",x,"), (b",5,", b",,"),
        (b"09:00:00.300", b"08:00:00.300"), (b"2031-01-02T09:00:00.300", b"3.5"),
        (b"\n2031-01-02T09:00:00.400", b"\n\n2031-01-02T09:00:00.400"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_clean_is_left_to_the_careful_reader(
    damage: tuple[bytes, bytes], tmp_path: Path
) -> None:
    path, target = tmp_path / "log", tmp_path / "t.parquet"
    content = _rows(100, 100)
    assert content.replace(*damage, 1) != content
    path.write_bytes(content.replace(*damage, 1))
    assert stream.to_parquet(path, target, Options()) is None
    assert [p.name for p in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\r\n", b"\n\n\n"])
def test_empty_lines_at_the_end_do_not_slow_a_clean_file_down(end: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(_rows(100, 100) + end)
    trace = streamed(path, tmp_path / "t.parquet")
    assert trace is not None
    assert trace.source_row is not None
    assert trace.source_row.tolist() == list(range(2, 102))


def test_the_quick_reader_and_the_careful_one_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> Any:
        raise quick.NotPlain("as if it were not clean")

    path = tmp_path / "log"
    for name in ("azure", "azure-2024", "burstgpt", "burstgpt-6", "vidur"):
        path.write_bytes(SAMPLES[name])
        fast = traces.read(path)
        with monkeypatch.context() as patch:
            patch.setattr(quick, "chunks", never)
            careful = traces.read(path)
        assert columns(fast) == columns(careful)
        assert fast.quirks == careful.quirks


def _given(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)


def test_a_foreign_parquet_table_reads_by_a_map_and_names_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "own.parquet"
    _given(path, [{"ts": i * 1000, "use": {"in": 5 + i}, "out": 7} for i in range(4)])
    how: Callable[..., Trace] = lambda **k: traces.read(  # noqa: E731
        path, columns={"arrival": "ts", "prompt": "use.in", "output": "out"}, **k
    )
    assert how(unit="ms").arrival_s.tolist() == [0, 1, 2, 3]
    _given(path, [{"ts": i * 1000, "use": {"in": i}, "out": 7} for i in range(4)])
    with pytest.raises(InputError, match=r"row 1: use.in is 0"):
        how(unit="ms")


def test_dates_of_a_parquet_table_are_read_to_the_nanosecond(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "own.parquet"
    times = pa.array([10**18, 10**18 + 1_500_000_001], pa.timestamp("ns"))
    table = {"arrival_time": times, "input_tokens": [5, 6], "output_tokens": [7, 8]}
    pq.write_table(pa.table(table), path)
    assert traces.read(path).span_s == pytest.approx(1.500000001, abs=1e-10)


def test_an_edited_file_of_ours_is_held_to_what_a_trace_promises(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    good = synth.generate("poisson", {"requests": 9}, 1)
    for bad, reason in (
        (dataclasses.replace(good, arrival_s=good.arrival_s[::-1].copy()), "fall"),
        (dataclasses.replace(good, prompt_tokens=good.prompt_tokens * 0), "without tokens"),
        (good.take(np.empty(0, np.int64)), "holds no request"),
    ):
        parquet.write(bad, path)
        with pytest.raises(InputError, match=reason):
            traces.read(path)
