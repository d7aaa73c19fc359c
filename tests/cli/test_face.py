"""The face of the program: help, exit codes, JSON, and what it must not import."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.scenarios.small import small
from zerolayer.cli import _VERBS, main

HEAVY = {"numpy", "pandas", "pyarrow", "matplotlib", "pydantic", "simpy", "torch", "jinja2"}


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    return left.value.code, capsys.readouterr().out


def loaded(words: list[str]) -> set[str]:
    """Return the top-level modules that a command leaves loaded."""
    program = (
        "import sys; from zerolayer.cli import main\n"
        f"try: main({words!r})\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sorted({m.split('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split("LOADED ")[-1].split())


@pytest.mark.parametrize("words", [["--help"], ["evidence", "--help"], ["whatif", "--help"]])
def test_help_loads_no_heavy_library(words: list[str]) -> None:
    assert not loaded(words) & HEAVY


def test_help_of_the_whole_needs_no_parser() -> None:
    assert "cyclopts" not in loaded(["--help"])


def test_every_verb_is_named_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = run(capsys, "--help")
    assert code == 0
    assert all(f"\n  {verb} " in said for verb in _VERBS)


@pytest.mark.parametrize("verb", sorted(_VERBS))
def test_every_verb_answers_help(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, said = run(capsys, verb, "--help")
    assert code == 0
    assert said.startswith(f"Usage: zerolayer {verb}")


def test_scenarios_are_listed_shown_and_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert "h100-2024" in run(capsys, "scenarios", "list")[1]
    assert run(capsys, "scenarios", "show", "h100-2024")[1].startswith("#:schema")
    code, said = run(capsys, "scenarios", "check", "migration-2023q3", "--json")
    assert (code, json.loads(said)["requests"]) == (0, 19_366)


def test_a_shown_scenario_takes_overrides(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "scenarios", "show", "migration-2023q3", "--json", "--set", "seed=9")[1]
    assert json.loads(said)["seed"] == 9
    said = run(capsys, "scenarios", "show", "migration-2023q3", "--set", "seed=9")[1]
    assert tomllib.loads(said)["seed"] == 9


def test_the_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(run(capsys, "scenarios", "schema")[1])["title"] == "Scenario"


def test_run_prints_outcomes_as_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["run", str(small(tmp_path)), "--replicates", "1", "-j", "1", "--quiet", "--json"]
    code, said = run(capsys, *words)
    facts = json.loads(said)["arms"]["direct"]["facts"]
    assert code == 0
    assert sum(facts[0]["outcomes"].values()) == 150


def test_a_closed_stdout_is_no_fault() -> None:
    shell = f'"{sys.executable}" -m zerolayer.cli policies >&-'
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_fits_80_columns_and_hangs_its_second_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = run(capsys, "gate", "--help")[1]
    assert max(map(len, said.splitlines())) <= 80
    assert "HEAD is measured. Default:\n      the main branch.\n" in said


def test_a_description_longer_than_the_screen_is_wrapped_without_the_breaks_of_its_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = run(capsys, "live", "validate", "--help")[1]
    assert "between two live\nrepeats) and p99 within 25 % likewise" in said
