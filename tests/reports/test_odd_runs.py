"""Runs at the edge, tiny, hopeless or bare: the report says what it cannot say."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import synthetic_journal as sj

from dispatch.outcomes import Outcome
from reports import evidence
from reports.document import Banner

A = sj.Arm("legacy", 1.3, 0.0084, legacy=True)
B = sj.Arm("direct", 1.0, 0.0002)


def banner(folder: Path, manifest: dict[str, Any]) -> Banner:
    found = evidence.compose(evidence.analyse(folder, manifest)).sections[0].blocks[0]
    assert isinstance(found, Banner)
    return found


def rewrite(folder: Path, change: Any) -> None:
    path = folder / "requests.parquet"
    table = pq.read_table(path).to_pandas()
    change(table)
    table.to_parquet(path)


@pytest.mark.parametrize("replicates", [1, 2])
def test_a_trace_of_three_requests_makes_a_report_without_a_verdict(
    tmp_path: Path, replicates: int
) -> None:
    manifest = sj.write(tmp_path, (A, B), n=3, replicates=replicates)
    assert banner(tmp_path, manifest).answer == "unsure"


def test_an_arm_that_loses_everything_is_unsafe(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, B), n=700, replicates=3)

    def lose(table: Any) -> None:
        rows = table.arm == "direct"
        table.loc[rows, "outcome"] = Outcome.timed_out
        table.loc[rows, ["started_s", "first_token_s"]] = float("nan")
        table.loc[rows, "device"] = -1

    rewrite(tmp_path, lose)
    found = banner(tmp_path, manifest)
    assert found.answer == "unsafe"
    assert any("∞" in t.detail for t in found.tiles)


def test_requests_that_no_arm_can_serve_leave_nothing_to_judge(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, B), n=50, replicates=2)

    def refuse(table: Any) -> None:
        table["outcome"] = Outcome.rejected_context

    rewrite(tmp_path, refuse)
    assert banner(tmp_path, manifest).answer == "unsure"


@pytest.mark.slow
def test_requests_alone_make_a_whole_report(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, B), n=700, replicates=2)
    (tmp_path / "decisions.parquet").unlink()
    (tmp_path / "devices.parquet").unlink()
    for about in manifest["arms"].values():
        about["devices"], about["facts"] = [], []
    evidence.write(tmp_path, manifest)
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "holds no device series" in text
    assert all((tmp_path / name).stat().st_size for name in evidence.FILES)


def test_another_order_of_arms_changes_no_figure(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, sj.STATIC, B), n=200, replicates=2)
    before = evidence.analyse(tmp_path, manifest)
    turned = dict(reversed(manifest["arms"].items()))
    after = evidence.analyse(tmp_path, manifest | {"arms": turned})
    assert before.verdict == after.verdict
    assert before.claims == after.claims


def test_a_replica_that_draws_a_crowd_is_named(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, B), n=200, replicates=2)

    def herd(table: Any) -> None:
        table.loc[(table.arm == "direct") & (table.request % 5 > 0), "device"] = 2

    rewrite(tmp_path, herd)
    sections = evidence.compose(evidence.analyse(tmp_path, manifest)).sections
    text = str(next(s for s in sections if s.key == "utilisation").blocks)
    assert "`direct` sends **" in text
    assert "`legacy` sends" not in text
