"""The gate's history: one line a timed check, drawn with change points."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dispatch.errors import InputError
from reports.gate import history
from reports.gate.verdict import Check, GateResult, Verdict


def gated(ratio: float, head: str = "abc", base: str = "def") -> GateResult:
    name = "decision p50"
    check = Check(2, name, Verdict.passed, "", ratio, ratio, ratio, 10_000.0, 10_000.0 * ratio)
    manifest = {"head": head, "base": base, "path": "decisions"}
    return GateResult([check, Check(0, "exact", Verdict.passed, "")], manifest)


def test_a_run_leaves_one_line_and_the_header_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "gate.csv"
    when = datetime(2026, 12, 1, tzinfo=UTC)
    for _ in range(2):
        history.append(file, gated(1.0), when)
    lines = file.read_text().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("2026-12-01T00:00:00Z,abc,def,decisions,pass,10000.0,10000.0,1.0")


def test_levels_chain_by_commit_and_siblings_stand_side_by_side(tmp_path: Path) -> None:
    file = tmp_path / "gate.csv"
    for ratio, head, base in ((1.1, "b", "a"), (1.1, "c", "b"), (1.2, "d", "b")):
        history.append(file, gated(ratio, head, base))
    levels = [level for _, level in history.series(history.read(file))["decisions p50"]]
    assert levels == pytest.approx([1.1, 1.21, 1.32])


def test_a_step_of_ten_percent_is_a_change_point() -> None:
    pytest.importorskip("ruptures")
    noise = [0.002, -0.001, 0.0, 0.001, -0.002, 0.001, 0.0, -0.001]
    values = [1 + e for e in noise] + [1.1 + e for e in noise]
    assert history.change_points(values) == [8]


def test_a_level_series_has_no_change_point() -> None:
    pytest.importorskip("ruptures")
    assert history.change_points([1 + 0.001 * (i % 3) for i in range(30)]) == []


def test_the_picture_is_written_and_names_every_metric(tmp_path: Path) -> None:
    file = tmp_path / "gate.csv"
    for ratio in (1.0, 1.01, 0.99, 1.0):
        history.append(file, gated(ratio))
    drawn = history.draw(history.read(file), tmp_path / "trend.svg")
    assert set(drawn) == {"decisions p50"}
    assert (tmp_path / "trend.svg").read_text().startswith("<?xml")


def test_a_history_without_times_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gate.csv"
    file.write_text(",".join(history.FIELDS) + "\n")
    with pytest.raises(InputError, match="tier 2"):
        history.draw(history.read(file), tmp_path / "trend.svg")


@pytest.mark.parametrize("text", ["a,b\n1,2\n", ""])
def test_a_foreign_history_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gate.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=r"gate\.csv"):
        history.read(file)


@pytest.mark.parametrize("word", ["fast", "nan", "-1", "0"])
def test_a_line_that_is_no_ratio_is_named_by_its_row(tmp_path: Path, word: str) -> None:
    file = tmp_path / "gate.csv"
    history.append(file, gated(1.0))
    file.write_text(file.read_text().replace("1.00000", word))
    with pytest.raises(InputError, match=r"gate\.csv:2"):
        history.read(file)
