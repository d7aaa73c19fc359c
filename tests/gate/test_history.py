"""The gate's history: one line a timed check, drawn with change points."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dispatch.errors import InputError
from reports.gate import history
from reports.gate.verdict import Check, GateResult, Verdict


def gated(ratio: float) -> GateResult:
    check = Check(2, "p50", Verdict.passed, "", ratio, ratio, ratio, 10_000.0, 10_000.0 * ratio)
    return GateResult(
        [check, Check(0, "exact", Verdict.passed, "")], {"head": "abc", "base": "def"}
    )


def test_only_timed_checks_leave_a_line_and_the_header_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "gate.csv"
    when = datetime(2026, 12, 1, tzinfo=UTC)
    assert [history.append(file, gated(1.0), when) for _ in range(2)] == [1, 1]
    assert file.read_text().splitlines()[1].startswith("2026-12-01T00:00:00Z,abc,def,pass,p50,")
    assert len(file.read_text().splitlines()) == 3


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
    assert set(history.draw(history.read(file), tmp_path / "trend.svg")) == {"p50"}
    assert "p50" in (tmp_path / "trend.svg").read_text() or (tmp_path / "trend.svg").stat().st_size


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "", ",".join(history.FIELDS) + "\n"])
def test_a_foreign_or_empty_history_is_refused_by_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gate.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=r"gate\.csv"):
        history.read(file)


def test_a_line_that_is_no_number_is_named_by_its_row(tmp_path: Path) -> None:
    file = tmp_path / "gate.csv"
    history.append(file, gated(1.0))
    file.write_text(file.read_text().replace("1.00000", "fast"))
    with pytest.raises(InputError, match=r"gate\.csv:2"):
        history.read(file)
