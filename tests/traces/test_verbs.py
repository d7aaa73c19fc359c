"""The trace verbs as a person uses them: what they print, what they write, how they refuse."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import traces
from tests.traces.format_samples import SAMPLES
from zerolayer.cli import main

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``zerolayer trace ...`` in an empty folder; return stdout, or stderr where it fails."""
    monkeypatch.chdir(tmp_path)

    def verb(*words: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as left:
            main(["trace", *words])
        said = capsys.readouterr()
        assert left.value.code == code, said.err
        return said.err if code else said.out

    return verb


@pytest.fixture
def log(tmp_path: Path) -> str:
    (tmp_path / "log.csv").write_bytes(SAMPLES["azure"])
    return "log.csv"


def test_describe_says_how_the_format_was_told_and_what_it_cannot_tell(run: Run, log: str) -> None:
    said = run("describe", log)
    assert "azure: its header has the columns TIMESTAMP" in said
    assert "cannot tell: which model a request asked for" in said
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_every_format_can_be_described_at_80_columns(name: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(SAMPLES[name])
    said = run("describe", "log")
    assert "cannot tell" in said
    assert max(map(len, said.splitlines())) <= 80


def test_describe_json_has_the_named_keys(run: Run, log: str) -> None:
    about = json.loads(run("describe", log, "--json"))
    assert about["requests"] == 3
    assert about["span_s"] == pytest.approx(3.1)
    assert about["rate_per_s"] == pytest.approx(3 / 3.1)
    for name in ("prompt_tokens", "output_tokens"):
        assert set(about[name]) >= {"mean", "p50", "p90", "p99", "max"}
    assert about["quirks"] == []


def test_a_table_of_ones_own_is_read_by_a_map(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("when,ins,outs\n1000,5,6\n3000,7,8\n")
    words = ("describe", "own.csv", "--json", "--map", "arrival=when,prompt=ins,output=outs")
    assert json.loads(run(*words, "--unit", "ms"))["span_s"] == 2.0
    assert "--unit" in run(*words, code=2)


def test_json_lines_are_read_by_a_map_with_dotted_paths(run: Run, tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text(
        '{"at": "2031-01-02T09:00:00Z", "usage": {"in": 5, "out": 6}}\n'
        '{"at": "2031-01-02T09:00:01Z", "usage": {"in": 7, "out": 8}}\n'
    )
    said = run("describe", "own.jsonl", "--json", "--map",
               "arrival=at,prompt=usage.in,output=usage.out")  # fmt: skip
    assert json.loads(said)["prompt_tokens"]["mean"] == 6.0


@pytest.mark.parametrize("end", [".parquet", ".jsonl", ".csv.gz"])
def test_what_is_converted_reads_back(run: Run, log: str, end: str) -> None:
    run("convert", log, "-o", f"out{end}", "--quiet")
    about = json.loads(run("describe", f"out{end}", "--json"))
    assert about["requests"] == 3
    assert about["prompt_tokens"]["max"] == 1500


def test_bad_rows_are_named_by_line_and_skipped_into_a_side_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_bytes(SAMPLES["azure"] + b"2030-05-06 10:00:09,0,1\n")
    said = run("convert", "bad.csv", "-o", "out.parquet", code=2)
    assert "bad.csv: line 5: ContextTokens is 0" in said
    assert "--skip-bad" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.csv"]
    run("convert", "bad.csv", "-o", "out.parquet", "--skip-bad")
    assert (tmp_path / "bad.csv.bad").read_text().startswith("line 5\tContextTokens is 0")
    assert "1 bad row left out" in run("describe", "out.parquet")


def test_a_chain_of_changes_ends_in_a_trace(run: Run, tmp_path: Path) -> None:
    run("synth", "chat", "-o", "a.parquet", "--set", "requests=400", "--seed", "3")
    run("slice", "a.parquet", "-o", "b.parquet", "--limit", "200")
    run("scale", "b.parquet", "1.5", "-o", "c.parquet")
    run("mix", "c.parquet", "a.parquet", "-o", "d.parquet")
    run("anonymise", "d.parquet", "-o", "e.jsonl", "--key", "a long secret")
    about = json.loads(run("describe", "e.jsonl", "--json"))
    assert about["requests"] == pytest.approx(700, abs=30)
    assert about["block_tokens"] == 16
    assert "of blocks" in run("cache", "e.jsonl", "--capacity-blocks", "500")


def test_the_key_of_an_anonymous_trace_may_come_from_the_environment(
    run: Run, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("synth", "chat", "-o", "a.parquet", "--set", "requests=50")
    run("anonymise", "a.parquet", "-o", "one.csv", "--key", "a long secret")
    monkeypatch.setenv("ZEROLAYER_TRACE_KEY", "a long secret")
    run("anonymise", "a.parquet", "-o", "other.csv")
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()


def test_a_fit_is_shown_written_and_makes_traces(run: Run, tmp_path: Path) -> None:
    run("synth", "gamma", "-o", "a.parquet", "--set", "requests=3000")
    said = run("fit", "a.parquet", "-o", "m.toml", "--picture", "m.png")
    assert "KS distances" in said
    assert (tmp_path / "m.png").read_bytes()[:4] == b"\x89PNG"
    run("synth", "m.toml", "-o", "b.parquet")
    assert len(traces.read(tmp_path / "b.parquet")) == 3000


def test_the_same_command_gives_the_same_bytes(run: Run, log: str, tmp_path: Path) -> None:
    for name in ("one.parquet", "other.parquet"):
        run("scale", log, "2.5", "-o", name, "--seed", "4")
    assert (tmp_path / "one.parquet").read_bytes() == (tmp_path / "other.parquet").read_bytes()


def test_public_traces_are_listed_with_licence_size_and_whether_they_are_here(run: Run) -> None:
    said = run("fetch")
    assert "azure-2024-code" in said
    assert "692.0 MB" in said
    assert "CC-BY-4.0" in said
    listed: list[dict[str, Any]] = json.loads(run("fetch", "--json"))["traces"]
    assert {"name", "licence", "size_bytes", "sha256", "url", "here"} <= set(listed[0])


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("describe", "azure-2023-con"), "did you mean azure-2023-conv?"),
        (("describe", "none.csv"), "no such file"),
        (("describe", "."), "is a folder"),
        (("describe", "log.csv", "--format", "azur"), "did you mean azure?"),
        (("describe", "log.csv", "--format", "mooncake"), "is a table"),
        (("describe", "log.csv", "--map", "arrival=TIMESTAMP,promt=x"), "did you mean prompt?"),
        (("describe", "log.csv", "--map", "arrival=TIMESTAM"), "did you mean TIMESTAMP?"),
        (("describe", "log.csv", "--rate", "-1"), "--rate: is -1.0"),
        (("convert", "log.csv", "-o", "none/out.parquet"), "none is no folder"),
        (("convert", "log.csv", "-o", "out.xlsx"), "has no known ending"),
        (("convert", "log.csv", "-o", "log.csv"), "is the input itself"),
        (("scale", "log.csv", "2", "-o", "log.csv"), "is the input itself"),
        (
            ("synth", "poisson", "-o", "o.csv", "--set", "arrivals.rate_per_s=1e-9"),
            "raise the rate",
        ),
        (("slice", "log.csv", "-o", "out.csv", "--start", "99"), "spans 3.1 s"),
        (("slice", "log.csv", "-o", "out.csv", "--limit", "-4"), "0 or more"),
        (("scale", "log.csv", "0", "-o", "out.csv"), "no positive number"),
        (("scale", "log.csv", "1e-9", "-o", "out.csv"), "would hold no request"),
        (("mix", "log.csv", "none.csv", "-o", "out.csv"), "no such file"),
        (("synth", "gama", "-o", "out.csv"), "did you mean gamma?"),
        (("synth", "gamma", "-o", "out.csv", "--set", "requets=4"), "did you mean requests?"),
        (("synth", "gamma", "-o", "out.csv", "--set", "requests"), "is no key=value"),
        (("fit", "log.csv", "--picture", "m.jpg"), "use .png, .svg or .pdf"),
        (("fit", "log.csv", "-o", "none/m.toml"), "none is no folder"),
        (("fit", "log.csv", "--step", "-1"), "--step: is -1"),
        (("anonymise", "log.csv", "-o", "out.csv", "--key", "k"), "shorter than 8"),
        (("fetch", "azure-2023-con"), "did you mean azure-2023-conv?"),
        (("fetch", "azure-2024-conv", "--offline", "--folder", "x"), "--mirror"),
        (("fetch", "azure-2023-conv", "--mirror", "none"), "is no folder"),
        (("cache", "log.csv"), "log.csv: has no prefix blocks"),
        (("synth", "gamma", "-o", "out.csv", "--set", "requests=1e9"), "equal to 200000000"),
    ],
)
def test_wrong_use_is_told_with_the_way_out_and_writes_nothing(
    words: tuple[str, ...], part: str, run: Run, log: str, tmp_path: Path
) -> None:
    said = run(*words, code=2)
    assert part in said
    assert "Traceback" not in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["log.csv"]


def test_a_converted_trace_goes_by_the_name_of_its_own_file(run: Run, log: str) -> None:
    run("convert", log, "-o", "mine.parquet")
    said = run("describe", "mine.parquet")
    assert said.startswith("mine.parquet")
    assert "made from: log.csv" in said
    assert run("cache", "mine.parquet", code=2).startswith(
        "zerolayer: mine.parquet: has no prefix blocks"
    )


def test_an_anonymous_trace_goes_by_the_name_of_its_file_and_tells_no_other(
    run: Run, log: str
) -> None:
    run("anonymise", log, "-o", "safe.parquet", "--key", "a long secret")
    said = run("describe", "safe.parquet")
    assert said.startswith("safe.parquet")
    assert "made from" not in said
    assert "log.csv" not in said


def test_a_fitted_model_is_replayed_by_a_scenario_and_named_where_it_is_taken_for_a_trace(
    run: Run, log: str
) -> None:
    run("synth", "gamma", "-o", "a.parquet", "--set", "requests=300")
    run("fit", "a.parquet", "-o", "model.toml")
    said = run("describe", "model.toml", code=2)
    assert "is a model of a trace, not a trace" in said
    assert "trace.source=generated:model.toml" in said
    assert "zerolayer trace synth model.toml -o made.parquet" in said
    for source, code in (("generated:model.toml", 0), ("model.toml", 2)):
        with pytest.raises(SystemExit) as left:
            main(["scenarios", "check", "migration-2023q3", "--set", f"trace.source={source}"])
        assert left.value.code == code


def test_a_pipe_is_refused_and_not_waited_for(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert "is a pipe or a device" in run("describe", "pipe.csv", code=2)
