"""Bad input: one clear error each, exit code 2, nothing half-written."""

import json
from pathlib import Path

import pytest

from tests.scenarios.small import small
from zerolayer.cli import main

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\n"
LATER = "2023-11-16 18:15:50.9951690,396,109\n"

Capture = pytest.CaptureFixture[str]


def told(capsys: Capture, *words: str) -> str:
    """Run a command that must fail as bad input, and return what it said."""
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    said = capsys.readouterr()
    assert left.value.code == 2, said.err
    assert "Traceback" not in said.err
    return said.err + said.out


def with_trace(capsys: Capture, folder: Path, name: str, content: bytes) -> str:
    path = folder / name
    path.write_bytes(content)
    scenario = small(folder)
    out = folder / "out"
    said = told(
        capsys, "evidence", str(scenario), "--set", f"trace.source={path}",
        "--set", "trace.limit=none", "-o", str(out), "--quiet", "-j", "1",
    )  # fmt: skip
    assert sorted(p.name for p in folder.iterdir()) == sorted([name, "small.toml"])
    assert name in said or "trace" in said
    return said


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("empty.csv", b"", ""),
        ("headed.csv", AZURE.encode(), ""),
        ("foreign.csv", b"a,b\n1,2\n", ""),
        ("binary.csv", b"\x00\xff\x00\x01" * 40, ""),
        ("nan.csv", (AZURE + ROW + LATER.replace("396", "nan")).encode(), "line 3"),
        ("negative.csv", (AZURE + ROW + LATER.replace("396", "-396")).encode(), "line 3"),
        ("zero.csv", (AZURE + ROW + LATER.replace("396", "0")).encode(), "line 3"),
        ("short.csv", (AZURE + ROW + "2023-11-16 18:15:50.99").encode(), "line 3"),
        ("time.csv", (AZURE + ROW + LATER.replace("2023-11-16", "soon")).encode(), "line 3"),
        ("cut.jsonl", b'{"timestamp": 0, "input_length": 6758, "output_le', "no line is JSON"),
        (
            "negative.jsonl",
            b'{"timestamp": -5, "input_length": 6758, "output_length": 5, "hash_ids": [0]}\n',
            "line 1",
        ),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_told(
    capsys: Capture, tmp_path: Path, name: str, content: bytes, part: str
) -> None:
    assert part in with_trace(capsys, tmp_path, name, content)


def test_a_trace_that_is_not_there_says_where_it_comes_from(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traces.datasets.folders", lambda: iter([tmp_path]))
    scenario = small(tmp_path)
    words = ["--set", "trace.source=azure-2023-code", "-o", str(tmp_path / "out"), "--quiet"]
    said = told(capsys, "evidence", str(scenario), *words)
    assert "Azure" in said


def test_a_trace_name_that_is_near_one_says_so(capsys: Capture, tmp_path: Path) -> None:
    scenario = small(tmp_path)
    said = told(capsys, "evidence", str(scenario), "--set", "trace.source=azure-2023-con")
    assert "azure-2023-conv" in said


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["evidence", "no-such-scenario"], "no bundled scenario of that name"),
        (["evidence", "migration-2023q4"], "did you mean migration-2023q3"),
        (["evidence", "migration-2023q3", "--set", "sed=3"], "did you mean seed"),
        (["evidence", "migration-2023q3", "--replicates", "0"], "greater than or equal to 1"),
        (["evidence", "migration-2023q3", "--set", "trace.source=generated:azure"], "azure-2023"),
        (["run", "migration-2023q3", "--jobs", "-1"], "Must be >= 0"),
        (
            ["live", "replay", "x.csv", "--target", "http://x", "--policy", "p2c"],
            "says nothing to the server",
        ),
        (["live", "serve", "--devices", "0"], "Must be >= 1"),
        (["live", "serve", "--port", "65536"], "Must be < 65536"),
        (["run", "migration-2023q3", "--set", "drain_s=1e300"], "at most 1e+09"),
        (["run", "migration-2023q3", "--set", "replicates=99999999999"], "at most 10,000"),
        (["run", "migration-2023q3", "--set", "fleet.pools.0.count=99999999"], "at most 100,000"),
        (["run", "migration-2023q3", "--set", "trace.scale=inf"], "a finite number"),
        (["run", "migration-2023q3", "-o", "/proc/run"], "cannot be made"),
        (["run", "."], "is a folder"),
        (["run", "migration-2023q3", "--set", "model.name=llama-2-70b"], "fits no replica"),
        (["whatif", "migration-2023q3", "--vary", "seed"], "is no axis"),
        (["whatif", "migration-2023q3", "--vary", "fleet.pool.0.count=1,2"], "did you mean pools"),
        (["whatif", "migration-2023q3", "--named", "lose-nod"], "did you mean lose-node"),
        (["plan", "migration-2023q3", "--slo", "ttft_p9_s=1"], "did you mean ttft_p99_s"),
        (["plan", "migration-2023q3", "--arm", "lgacy"], "did you mean legacy"),
        (["verify", "."], "has no manifest.json"),
        (["explain", ".", "3"], "has no manifest.json"),
        (["whatif", "migration-2023q3", "--cluster", "tcp://10.0.0.1:8786"], "plain TCP"),
        (["whatif", "migration-2023q3", "--cluster", "local:x"], "expected local:2"),
    ],
)
def test_a_wrong_word_is_told_with_the_way_out(
    capsys: Capture, words: list[str], part: str
) -> None:
    assert part in told(capsys, *words)


@pytest.mark.parametrize("words", [["evidenc"], ["evidence"], ["run", "x", "--fast"]])
def test_wrong_use_of_the_command_line_exits_with_2(words: list[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 2


def test_a_name_too_long_for_the_disk_is_told(capsys: Capture, tmp_path: Path) -> None:
    said = told(capsys, "run", str(small(tmp_path)), "-o", str(tmp_path / ("a" * 300)))
    assert "File name too long" in said


def test_a_fault_of_the_program_is_no_verdict(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks() -> int:
        raise ValueError("books")

    monkeypatch.setattr("zerolayer.cli._summary", breaks)
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    said = capsys.readouterr().err
    assert left.value.code == 70
    assert "ValueError: books" in said
    assert "no verdict" in said


def test_an_existing_folder_is_refused_before_any_work(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    said = told(capsys, "evidence", str(small(tmp_path)), "-o", str(tmp_path / "out"))
    assert "exists already" in said
    assert "requests" not in said


def test_a_damaged_run_folder_is_told(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"manifest_version": 2}))
    assert "manifest" in told(capsys, "verify", str(tmp_path))


@pytest.mark.parametrize(("setting", "way_out"), [
    ("seed=-1", "greater than or equal to 0"), ("seed=99999999999999999999", "less than"),
    ("wait.deadline_s=1e-300", "at least 1e-09"), ("trace.source=", "expected a text"),
    ("trace.scale=nan", "finite number"), ("slo.ttft_p99_s=-inf", "finite number"),
])  # fmt: skip
def test_figures_that_no_run_could_use_are_told_with_what_would_do(
    capsys: Capture, setting: str, way_out: str
) -> None:
    said = told(capsys, "scenarios", "check", "migration-2023q3", "--set", setting)
    assert setting in said
    assert way_out in said


@pytest.mark.parametrize(("words", "named"), [
    (["plan"], "SCENARIO"), (["evidence"], "SCENARIO"), (["verify"], "RUN"), (["diff", "x"], "B"),
    (["explain", "x"], "REQUEST"), (["trace", "scale", "x"], "FACTOR"),
])  # fmt: skip
def test_an_argument_that_is_missing_is_named_as_the_help_names_it(
    capsys: Capture, words: list[str], named: str
) -> None:
    assert f"parameter {named} requires" in told(capsys, *words)


def test_a_picture_never_takes_the_place_of_a_file_of_a_run(
    capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "load.svg").write_text("<svg/>")
    for name, part in (("manifest.json", "ends in .svg"), ("load.svg", "file of a run folder")):
        before = (tmp_path / name).read_bytes()
        said = told(capsys, "explain", str(tmp_path), "0", "--picture", str(tmp_path / name))
        assert part in said
        assert (tmp_path / name).read_bytes() == before


def test_a_schema_takes_the_place_of_an_earlier_schema_only(
    capsys: Capture, tmp_path: Path
) -> None:
    for name, content in (("s.json", "{}"), ("s.toml", 'name = "mine"')):
        path = tmp_path / name
        path.write_text(content)
        assert "is no schema" in told(capsys, "scenarios", "schema", "-o", str(path))
        assert path.read_text() == content
    for _ in range(2):
        with pytest.raises(SystemExit) as left:
            main(["scenarios", "schema", "-o", str(tmp_path / "new.json")])
        assert left.value.code == 0
    assert json.loads((tmp_path / "new.json").read_text())["title"] == "Scenario"
