"""Every format is told by content and says the same three requests."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

import traces
from dispatch.errors import InputError
from tests.traces.format_samples import SAMPLES
from traces import values
from traces.detect import detect
from traces.formats import ALL
from traces.source import Source

TIMELESS = {"vllm-bench", "lengths"}
PLAIN = sorted(set(SAMPLES) - TIMELESS - {"vllm-log", "nginx", "weka"})


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        path = tmp_path / "traffic"  # the name says nothing
        path.write_bytes(SAMPLES[name])
        return path

    return write


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_format_is_told_by_content_and_the_reason_is_given(
    name: str, written: Callable[[str], Path]
) -> None:
    found = detect(Source(written(name)))
    expected = {"azure-2024": "azure", "burstgpt-6": "burstgpt", "otel-old": "otel",
                "otel-otlp": "otel"}.get(name, name)  # fmt: skip
    assert found.format.name == expected
    assert len(found.why) > 10


@pytest.mark.parametrize("name", PLAIN)
def test_a_format_gives_the_three_requests(name: str, written: Callable[[str], Path]) -> None:
    trace = traces.read(written(name), spread=False)
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 0.25, 3.1], abs=1e-9)
    assert trace.prompt_tokens.tolist() == [700, 1500, 60]
    assert trace.output_tokens.tolist() == [40, 9, 200]


def test_every_known_format_has_a_sample_here() -> None:
    covered = set(SAMPLES) | {"lengths-chat"}
    assert set(ALL) <= covered


@pytest.mark.parametrize("name", sorted(set(SAMPLES) - TIMELESS - {"vllm-log", "weka"}))
def test_every_format_says_what_it_cannot_tell(name: str, written: Callable[[str], Path]) -> None:
    assert traces.read(written(name)).cannot_tell


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_packed_file_reads_as_the_plain_one(packing: str, tmp_path: Path) -> None:
    import pyarrow as pa

    plain, packed = tmp_path / "plain", tmp_path / "packed"
    data = SAMPLES["azure"]
    plain.write_bytes(data)
    packed.write_bytes(
        gzip.compress(data) if packing == "gzip" else pa.compress(data, "zstd", asbytes=True)
    )
    one, other = traces.read(plain), traces.read(packed)
    assert one.sha256 == other.sha256
    assert one.arrival_s.tolist() == other.arrival_s.tolist()


def test_gzip_of_several_members_reads_to_the_end(tmp_path: Path) -> None:
    head, *rows = SAMPLES["azure"].splitlines(keepends=True)
    path = tmp_path / "t"
    path.write_bytes(gzip.compress(head + rows[0]) + gzip.compress(b"".join(rows[1:])))
    assert len(traces.read(path)) == 3


@pytest.mark.parametrize("packing", ["gzip", "zstd"])
def test_a_cut_archive_is_one_clear_error(packing: str, tmp_path: Path) -> None:
    import pyarrow as pa

    data = SAMPLES["mooncake"] * 100
    packed = gzip.compress(data) if packing == "gzip" else pa.compress(data, "zstd", asbytes=True)
    path = tmp_path / "t.gz"
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(InputError):
        traces.read(path)


def test_format_overrides_content(written: Callable[[str], Path]) -> None:
    path = written("mooncake")
    as_seconds = traces.read(path, format="mooncake", unit="s")
    assert as_seconds.span_s == pytest.approx(3_100.0)


def test_an_unknown_format_is_named_with_its_near_miss(written: Callable[[str], Path]) -> None:
    with pytest.raises(InputError, match="did you mean azure"):
        traces.read(written("azure"), format="azur")


def test_a_foreign_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("colour,taste\nred,sweet\n")
    with pytest.raises(InputError, match=r"no known trace format.*--map"):
        traces.read(path)


@pytest.mark.parametrize("protocol", [b"\x80\x02", b"\x80\x04", b"\x80\x05"])
def test_a_pickle_is_never_loaded(protocol: bytes, tmp_path: Path) -> None:
    path = tmp_path / "crash_dump.pkl"
    path.write_bytes(protocol + b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(InputError, match=r"pickle.*never opened"):
        traces.read(path)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("2023-11-16 18:17:03.9799600", 979_960_000),
        ("2023-11-16T18:17:03.979960000Z", 979_960_000),
        ("2023-11-16T18:17:03.97996+00:00", 979_960_000),
        ("2023-11-16T20:17:03,97996+02:00", 979_960_000),
        ("2023-11-16 18:17:03", 0),
    ],
)
def test_iso_times_keep_every_digit(text: str, ns: int) -> None:
    assert values.iso_ns(text) == 1_700_158_623 * 10**9 + ns


@pytest.mark.parametrize("text", ["2023-13-01 00:00:00", "2023-02-01 25:00:00", "yesterday", "12"])
def test_what_is_no_iso_time_is_none(text: str) -> None:
    assert values.iso_ns(text) is None


def test_epoch_seconds_in_text_are_exact_to_the_nanosecond() -> None:
    assert values.time_ns("1925110800.253000001", "s") == 1_925_110_800_253_000_001


@pytest.mark.parametrize("file", ["weka.jsonl", "vllm_request_log.txt", "nginx_access.jsonl"])
@pytest.mark.data
def test_given_samples_of_incomplete_formats_can_be_described(
    data_file: Callable[[str], Path], file: str
) -> None:
    found = traces.describe(traces.read(data_file(file), partial=True))
    assert found["requests"] >= 3
    assert found["cannot_tell"]


@pytest.mark.parametrize(
    ("file", "prompts", "outputs"),
    [
        ("azure_2024.csv", [512, 2048, 91], [64, 7, 310]),
        ("lmbench_llmd.csv", [512, 2048, 91], [64, 7, 310]),
        ("mooncake_trace.jsonl", [1100, 1500, 400], [64, 7, 310]),
        ("bailian.jsonl", [33, 120, 16], [64, 7, 310]),
        ("ragpulse.jsonl", [3000, 3100, 2900], [64, 7, 310]),
        ("llmservingsim.jsonl", [512, 2048, 91, 420], [64, 7, 310, 20]),
    ],
)
@pytest.mark.data
def test_given_samples_read_as_they_say(
    data_file: Callable[[str], Path], file: str, prompts: list[int], outputs: list[int]
) -> None:
    trace = traces.read(data_file(file))
    assert trace.prompt_tokens.tolist() == prompts
    assert trace.output_tokens.tolist() == outputs
