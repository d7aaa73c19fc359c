"""What the report decides: safe, unsafe or neither, what binds, and what would settle it."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import synthetic_journal as sj

from reports import causes, claims, evidence, pressure, segments
from reports.intervals import Verdict3
from reports.tables import read_run
from reports.verdict import Verdict, judge

CLEAN = sj.Arm("legacy", 1.3, 0.0084, legacy=True, noise=0.01)
SAME = sj.Arm("direct", 1.3, 0.0084, noise=0.01)
FASTER = sj.Arm("direct", 1.0, 0.0002, noise=0.01)
SLOWER = sj.Arm("direct", 1.6, 0.0002, noise=0.01)
LOOSE: dict[str, Any] = {"slo": {"e2e_p99_s": 600.0, "oom_rate": 0.01}}


def verdict(folder: Path, *arms: sj.Arm, **options: Any) -> Verdict:
    manifest = sj.write(folder, arms, **{"n": 1500, **LOOSE, **options})
    return judge(read_run(folder, manifest))


def test_a_faster_arm_without_failures_is_safe(tmp_path: Path) -> None:
    margins = {"p99_ratio": 1.02, "oom_rate_points": 0.2}
    found = verdict(tmp_path, CLEAN, FASTER, margins=margins)
    assert (found.answer, found.exit_code) == (Verdict3.safe, 0)


def test_few_requests_without_an_oom_prove_no_oom_rate(tmp_path: Path) -> None:
    found = verdict(tmp_path, CLEAN, FASTER)
    assert (found.answer, found.exit_code) == (Verdict3.unsure, 3)
    assert found.binds == "OOM rate"


def test_a_slower_arm_is_unsafe_and_the_slo_that_binds_is_named(tmp_path: Path) -> None:
    found = verdict(tmp_path, CLEAN, SLOWER)
    assert (found.answer, found.exit_code) == (Verdict3.unsafe, 1)
    assert found.binds == "e2e p99"


def test_two_alike_arms_are_undecided_and_the_seeds_that_would_decide_are_said(
    tmp_path: Path,
) -> None:
    found = verdict(tmp_path, CLEAN, SAME)
    assert found.exit_code == 3
    assert "more replicates" in found.more


def test_what_holds_of_the_whole_is_not_credited_to_the_deletion(tmp_path: Path) -> None:
    worse = sj.Arm("direct-static", 1.6, 0.0002, noise=0.01)
    margins = {"p99_ratio": 1.02, "oom_rate_points": 0.2}
    manifest = sj.write(
        tmp_path, (CLEAN, worse, FASTER), **{"n": 1500, **LOOSE, "margins": margins}
    )
    data = evidence.analyse(tmp_path, manifest)
    assert data.verdict.answer is Verdict3.safe
    assert data.alone is not None
    assert data.alone.answer is Verdict3.unsafe
    banner = evidence.compose(data).sections[0].blocks[0]
    told = banner.headline  # type: ignore[union-attr]
    assert told == "Deleting the routing layer is safe with new placement, but not by itself."
    assert any("nothing else changed" in s for s in banner.sentences)  # type: ignore[union-attr]


def test_without_an_arm_of_the_layer_alone_the_headline_names_all_that_changes(
    tmp_path: Path,
) -> None:
    margins = {"p99_ratio": 1.02, "oom_rate_points": 0.2}
    manifest = sj.write(tmp_path, (CLEAN, FASTER), **{"n": 1500, **LOOSE, "margins": margins})
    data = evidence.analyse(tmp_path, manifest)
    assert data.alone is None
    banner = evidence.compose(data).sections[0].blocks[0]
    told = banner.headline  # type: ignore[union-attr]
    assert told == "Deleting the routing layer, with new placement, is safe on this evidence."


def test_the_headline_of_one_arm_alone_replaces_nothing(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN,), **{"n": 1500, **LOOSE})
    banner = evidence.compose(evidence.analyse(tmp_path, manifest)).sections[0].blocks[0]
    told = banner.headline  # type: ignore[union-attr]
    assert told == "Only legacy was run, so nothing is compared: not enough evidence."


def test_one_replicate_decides_nothing(tmp_path: Path) -> None:
    assert verdict(tmp_path, CLEAN, SLOWER, replicates=1).exit_code == 3


def test_one_arm_alone_is_no_comparison(tmp_path: Path) -> None:
    found = verdict(tmp_path, CLEAN)
    assert found.exit_code == 3
    assert "one arm only" in found.flags[0]


def test_a_percentile_of_too_few_samples_says_how_many_it_needs(tmp_path: Path) -> None:
    found = verdict(tmp_path, CLEAN, FASTER, n=300)
    assert "662" in found.more
    assert found.exit_code == 3


def test_a_percentile_that_is_infinite_in_one_arm_is_decided_on_the_missed_share(
    tmp_path: Path,
) -> None:
    found = verdict(tmp_path, CLEAN, sj.Arm("direct", 1.0, oom=0.1))
    endpoint = next(e for e in found.endpoints if e.key == "e2e_p99")
    assert endpoint.kind == "points"
    assert endpoint.verdict is Verdict3.unsafe


def test_a_target_that_both_arms_miss_is_said_and_does_not_make_the_better_one_unsafe(
    tmp_path: Path,
) -> None:
    slo = {"e2e_p99_s": 5.0, "oom_rate": None}
    margins = {"p99_ratio": 1.02, "oom_rate_points": 0.2}
    found = verdict(tmp_path, CLEAN, FASTER, slo=slo, margins=margins)
    assert "neither arm meets e2e p99" in found.targets
    assert found.answer is Verdict3.safe


def test_a_run_that_sent_late_is_degraded_and_never_safe(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), slo={"ttft_p99_s": 2.0, "oom_rate": 0.01})
    path = tmp_path / "requests.parquet"
    table = pq.read_table(path).to_pandas()
    table["lag_s"] = 0.05
    table.to_parquet(path)
    run = read_run(tmp_path, manifest)
    flags = evidence.invalid(run)
    assert any("DEGRADED" in f for f in flags)
    assert judge(run, flags).answer is not Verdict3.safe


def test_a_journal_that_lost_requests_is_named(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), n=200, replicates=2)
    manifest["arms"]["direct"]["facts"] = [{"offered": 200}, {"offered": 201}]
    assert any(
        "201 requests were offered" in f for f in evidence.invalid(read_run(tmp_path, manifest))
    )


def test_context_rejects_leave_the_percentiles_alone(tmp_path: Path) -> None:
    run = read_run(tmp_path, sj.write(tmp_path, (CLEAN, FASTER)))
    rejected = [c["prompt_tokens"][~c.servable] for c in run.cells.values()]
    assert all((x > 8000).all() and len(x) for x in rejected)


def claim(run: tuple[Path, dict[str, Any]], key: str) -> claims.Claim:
    return next(c for c in evidence.analyse(*run).claims if c.id == key)


def test_the_claims_of_the_stand_in_are_judged_by_their_rules(
    stand_in: tuple[Path, dict[str, Any]],
) -> None:
    status = {c.id: c.status for c in evidence.analyse(*stand_in).claims}
    assert list(status) == [f"C{i}" for i in range(1, 11)]
    assert status["C1"] == claims.FAILS  # 23 % is not 37 %
    assert status["C2"] == claims.FAILS
    assert status["C4"] == claims.INPUT
    assert status["C6"] == status["C7"] == claims.ABSENT
    assert status["C8"] == claims.ABSENT  # 0.3 arrivals a telemetry window
    assert status["C9"] == claims.BUILT
    assert status["C10"] == claims.ABSENT


def test_the_claims_on_kernels_say_what_is_predicted_and_that_nothing_was_measured(
    tmp_path: Path,
) -> None:
    model = {"name": "llama-2-13b", "precision": "fp16"}
    run = tmp_path, sj.write(tmp_path, (CLEAN, FASTER), n=200, replicates=2, model=model)
    for key in ("C6", "C7"):
        found = claim(run, key)
        assert found.status == claims.ABSENT
        assert found.measured.startswith("not measured on a GPU; bounds predict")
        assert "A100-80G" in found.measured
        assert "V100" not in found.measured  # the fused kernel does not run there
    own = tmp_path, sj.manifest((CLEAN, FASTER), 2, 200, model={"name": "of-our-own"})
    assert "no bound for this model" in claim(own, "C6").measured


def test_c1_holds_only_if_survivors_and_failure_aware_agree() -> None:
    assert claims.both(claims.HOLDS, claims.HOLDS) == claims.HOLDS
    assert claims.both(claims.HOLDS, claims.OPEN) == claims.OPEN
    assert claims.both(claims.HOLDS, claims.FAILS) == claims.FAILS


def test_c1_holds_where_the_fall_is_large_enough(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, sj.Arm("direct", 0.5, noise=0.01)), n=700)
    assert claim((tmp_path, manifest), "C1").status == claims.HOLDS


def test_c2_needs_windows_of_one_second(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), n=200, replicates=2)
    path = tmp_path / "devices.parquet"
    table = pq.read_table(path).to_pandas()
    table["window_s"] = 5.0
    table.to_parquet(path)
    assert claim((tmp_path, manifest), "C2").status == claims.ABSENT


def test_c4_is_judged_live_and_only_under_load(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), n=200, replicates=2) | {"world": "live"}
    assert claim((tmp_path, manifest), "C4").status == claims.ABSENT
    for arm in manifest["scenario"]["arms"]:
        arm["telemetry"]["interval_ms"] = 5000.0
    assert claim((tmp_path, manifest), "C4").status in (claims.HOLDS, claims.FAILS, claims.OPEN)


def test_c5_compares_the_share_with_its_figure(stand_in: tuple[Path, dict[str, Any]]) -> None:
    found = claim(stand_in, "C5")
    assert found.status == claims.FAILS
    assert "P0 time-outs" in found.measured


def test_c8_counts_arrivals_of_a_telemetry_window(tmp_path: Path) -> None:
    run = read_run(tmp_path, sj.write(tmp_path, (CLEAN, FASTER), n=400, replicates=2))
    load = pressure.analyse(run)["direct"]
    assert load.arrivals_per_window == pytest.approx(0.05 / 0.18, rel=0.15)
    assert not pressure.hard_enough(run, {"direct": load})


def test_c10_is_judged_by_the_layer_on_both_fleets(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), n=200, replicates=3)
    jitter = (0.0, 0.02, -0.02)
    cells = [
        {"layer": a, "fleet": f, "replicate": r, "value": 90 + jitter[r] * (1 + a) + (f or -3) * a}
        for a in (0, 1)
        for f in (0, 1)
        for r in range(3)
    ]
    manifest["factorial"] = {"switches": ["layer", "fleet"], "cells": cells}
    assert claim((tmp_path, manifest), "C10").status == claims.HOLDS


def test_the_worst_segment_is_on_the_first_page(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), n=1200)
    path = tmp_path / "requests.parquet"
    table = pq.read_table(path).to_pandas()
    hit = (table.arm == "direct") & (table.prompt_tokens.between(2049, 4096))
    table.loc[hit & (table.request % 3 == 0), ["outcome", "root_cause"]] = (2, 1)
    table.to_parquet(path)
    data = evidence.analyse(tmp_path, manifest)
    worst = segments.worst(data.segments)
    assert worst is not None
    assert (worst.name, worst.verdict) == ("2,049–4,096", "worse")
    banner = evidence.compose(data).sections[0].blocks[0]
    assert any("2,049–4,096" in s for s in banner.sentences)  # type: ignore[union-attr]


def test_requests_that_share_a_kernel_hint_are_a_segment(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), n=300, replicates=2)
    path = tmp_path / "requests.parquet"
    table = pq.read_table(path).to_pandas()
    table["kernel_hint"] = ["memory_efficient" if r % 3 else "" for r in table.request]
    table.to_parquet(path)
    found = segments.analyse(read_run(tmp_path, manifest))
    named = {s.name: s.requests for s in found if s.dimension == "hint"}
    assert set(named) == {"none", "memory_efficient"}
    assert named["memory_efficient"] > named["none"]


def test_ten_a_a_comparisons_call_no_segment_worse(tmp_path: Path) -> None:
    called = 0
    for seed in range(10):
        a, b = sj.Arm("legacy", legacy=True, oom=0.02), sj.Arm("direct", oom=0.02)
        run = read_run(tmp_path, sj.write(tmp_path, (a, b), n=400, seed=seed))
        called += any(s.verdict == "worse" for s in segments.analyse(run))
    assert called <= 1


def test_a_late_request_takes_the_largest_part_of_its_latency(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), n=100, replicates=1)
    cell = read_run(tmp_path, manifest).cells["legacy", 0]
    columns = dict(cell.columns)
    for name in ("door_wait_s", "wasted_s"):
        columns[name] = columns[name].copy()
    columns["door_wait_s"][0] = 1e4
    columns["wasted_s"][1] = 1e4
    cell.columns = columns
    found = causes.cause(cell)
    assert found[0] == causes.RootCause.router
    assert found[1] == causes.RootCause.retry_storm
    assert set(found[2:][cell.finished[2:]].tolist()) <= {causes.SERVICE, causes.RootCause.queue}


def test_a_p0_timeout_is_no_success_within_the_deadline_attempts_and_all(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (sj.LEGACY, FASTER), n=800, replicates=1)
    cell = read_run(tmp_path, manifest).cells["legacy", 0]
    late = causes.no_success_in_time(cell, 30.0)
    assert late[cell.servable & (cell["outcome"] == causes.Outcome.oom)].all()
    assert late[cell.finished & (cell["end_s"] - cell["arrival_s"] > 30)].all()
    assert not late[~cell.servable].any()


def test_a_late_request_on_a_slow_ring_is_told_from_slow_service(tmp_path: Path) -> None:
    manifest = sj.write(tmp_path, (CLEAN, FASTER), n=400, replicates=1, slo={"e2e_p99_s": 0.01})
    path = tmp_path / "decisions.parquet"
    table = pq.read_table(path).to_pandas()
    direct = table.arm == "direct"
    table.loc[direct, "seen_ring_s"] = 1e-5
    table.loc[direct & (table.request % 10 == 0), "seen_ring_s"] = 3e-5
    table.loc[direct, "seen_pcie_ratio"] = 0.1
    table.loc[direct & (table.request % 10 == 1), "seen_pcie_ratio"] = 0.95
    table.loc[~direct, ["seen_ring_s", "seen_pcie_ratio"]] = float("nan")
    table.to_parquet(path)
    found = causes.analyse(read_run(tmp_path, manifest)).bad
    assert 25 <= found["direct"][0, causes.RootCause.slow_ring] <= 40
    assert 25 <= found["direct"][0, causes.RootCause.pcie] <= 40
    assert found["legacy"][0, causes.RootCause.slow_ring] == 0
