"""Faults that users of benchmark tools reported, as tests of these reports (shared cases)."""

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import synthetic_journal as sj

from dispatch.errors import InputError
from reports import evidence, html, latency, opening, pressure
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


def test_a_warm_up_is_left_out_by_starts_of_latencies_and_by_ends_of_rates(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, B), n=700, replicates=2)
    whole = read_run(tmp_path, manifest)
    manifest["scenario"]["warmup_s"] = 60.0
    run = read_run(tmp_path, manifest)
    for key, cell in run.cells.items():
        full = whole.cells[key]
        assert (cell["arrival_s"] >= 60.0).all()
        assert cell.early is not None
        assert len(cell) + len(cell.early) == len(full)
    cell, full = run.of("direct")[0], whole.of("direct")[0]
    slow = np.sort((full["end_s"] - full["arrival_s"])[full["arrival_s"] >= 60.0])
    assert latency.analyse(run).row("e2e_s", 50.0).values["direct"] > 0
    assert np.nanmax(cell["end_s"] - cell["arrival_s"]) == np.nanmax(slow)

    def finished_after(c: Any) -> int:
        return int((c.finished & (c["end_s"] >= 60.0)).sum())

    span = [float(c["arrival_s"][-1]) - 60.0 for c in whole.of("direct")]
    expected = np.mean(
        [finished_after(c) / s for c, s in zip(whole.of("direct"), span, strict=True)]
    )
    assert pressure.analyse(run)["direct"].finished_per_s == pytest.approx(expected)
    assert finished_after(full) > int(cell.finished.sum())  # some began in the warm-up
    assert evidence.invalid(run) == evidence.invalid(whole)


def test_a_warm_up_longer_than_the_run_is_refused(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (A, B), n=50, replicates=1, warmup_s=1e6)
    with pytest.raises(InputError, match="no request after 1e\\+06 s"):
        read_run(tmp_path, manifest)


def test_a_report_with_every_study_in_it_stays_below_two_megabytes(tmp_path: Path) -> None:
    names = ("layer", "placement", "kernels", "fleet", "memory", "telemetry")
    draw = np.random.default_rng(1)
    levels = [dict(zip(names, bits, strict=True)) for bits in product((0, 1), repeat=6)]
    cells = [
        {**level, "replicate": r, "value": float(draw.normal(90, 2)), "e2e_mean_s": 5.0,
         "stable": True}
        for level in levels for r in range(5)
    ]  # fmt: skip
    design = {"switches": names, "titles": {}, "cells": cells, "metric": "SLO attainment"}
    points = [
        {"x": x, "y": y, "replicate": r, "requests": 20_000, "value": float(draw.normal())}
        for x in (50.0, 500.0, 5000.0) for y in (0.5, 1.0, 1.5) for r in range(3)
    ]  # fmt: skip
    chart = {"claim": "C1", "title": "change", "unit": "%", "figure": -37.0, "at_most": True,
             "kind": "", "within": 0.0, "x": "x", "y": "y", "most_requests": 20_000,
             "cells": points}  # fmt: skip
    drill = {"fault": "gpu lost", "arm": "direct", "at_s": 120.0, "missed_before": 0.1,
             "missed_during": 0.2, "missed_after": 0.1, "detect_s": 1.0,
             "recover_s": 10.0}  # fmt: skip
    arms = (A, *(sj.Arm(f"direct-{i}", 1.0 + i / 10) for i in range(5)), B)
    manifest = sj.write(tmp_path, arms, n=3000, replicates=5) | {
        "factorial": design, "factorial_variants": {"fleet=equal-cost": design},
        "maps": [chart] * 10, "drills": [drill] * 63,
    }  # fmt: skip
    evidence.write(tmp_path, manifest)
    assert (tmp_path / "report.html").stat().st_size < html.LIMIT_BYTES
    assert (tmp_path / "summary.json").stat().st_size < html.LIMIT_BYTES
