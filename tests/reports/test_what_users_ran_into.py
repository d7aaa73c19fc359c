"""Faults that users of benchmark tools reported, as tests of these reports (shared cases)."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import synthetic_journal as sj

from reports import evidence, latency, opening, pressure
from reports.tables import read_run

A = sj.Arm("legacy", 1.3, 0.0084, legacy=True, noise=0.01)
B = sj.Arm("direct", 1.0, 0.0002, noise=0.01)
Run = tuple[Path, dict[str, Any]]


def rewrite(folder: Path, change: Any) -> None:
    path = folder / "requests.parquet"
    table = pq.read_table(path).to_pandas()
    change(table)
    table.to_parquet(path)


def test_a_client_queue_counts_into_latency_and_is_shown_apart(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, B), n=700, replicates=2)
    before = latency.analyse(read_run(tmp_path, manifest)).row("e2e_s", 50.0)

    def send_late(table: Any) -> None:
        later = ["decision_start_s", "decision_end_s", "started_s", "first_token_s", "end_s"]
        table["lag_s"] = 5.0
        table[later] += 5.0

    rewrite(tmp_path, send_late)
    run = read_run(tmp_path, manifest)
    after = latency.analyse(run).row("e2e_s", 50.0)
    assert after.values["direct"] - before.values["direct"] == pytest.approx(5.0)
    assert pressure.analyse(run)["direct"].lag_p99_s == 5.0


def test_failures_neither_vanish_from_percentiles_nor_depress_the_rate_of_the_finished(
    tmp_path: Path,
) -> None:
    manifest = sj.write(tmp_path, (A, sj.Arm("direct", 1.0, oom=0.2)), n=700, replicates=2)
    run = read_run(tmp_path, manifest)
    load = pressure.analyse(run)["direct"]
    assert load.goodput_per_s <= load.finished_per_s < load.rate_per_s
    assert np.isinf(latency.analyse(run).row("e2e_s", 99.0).values["direct"])


def test_the_achieved_rate_and_what_is_in_flight_obey_littles_law(stand_in: Run) -> None:
    run = read_run(*stand_in)
    load = pressure.analyse(run)["direct"]
    cells = run.of("direct")
    stays = np.concatenate([c["end_s"] - c["arrival_s"] for c in cells])
    known = ~np.isnan(stays)
    assert load.in_system == pytest.approx(load.rate_per_s * stays[known].mean(), rel=0.05)


def test_nothing_of_a_request_but_sampled_events_is_embedded(stand_in: Run) -> None:
    folder = stand_in[0]
    assert sum((folder / n).stat().st_size for n in ("report.html", "report.md")) < 600_000
    assert (folder / "timeline.json.gz").stat().st_size < 5_000_000


def test_a_report_without_a_live_run_beside_it_calls_itself_uncalibrated(stand_in: Run) -> None:
    assert "uncalibrated" in opening.subtitle(read_run(*stand_in))
    assert "**Uncalibrated**" in (stand_in[0] / "report.md").read_text("utf-8")


def test_definitions_stand_in_the_report_with_their_formulas(stand_in: Run) -> None:
    text = (stand_in[0] / "report.md").read_text("utf-8")
    for formula in ("f − a", "(l − f) / (n − 1), n ≥ 2", "l − a", "s − e", "⌈p·N⌉"):
        assert formula in text


def test_times_of_the_timeline_are_microseconds(stand_in: Run) -> None:
    whole = json.loads(gzip.decompress((stand_in[0] / "timeline.json.gz").read_bytes()))
    table = pq.read_table(stand_in[0] / "requests.parquet").to_pandas()
    last = table[table.replicate == 0].end_s.max()
    ends = [e["ts"] + e["dur"] for e in whole["traceEvents"] if e["ph"] == "X"]
    assert max(ends) == pytest.approx(last * 1e6, rel=1e-3)


def test_a_live_journal_makes_a_report_too(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, B), n=200, replicates=2) | {"world": "live"}
    data = evidence.analyse(tmp_path, manifest)
    assert "measured on devices" in opening.subtitle(data.run)
    assert evidence.compose(data).sections
