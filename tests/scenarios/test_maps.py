"""Maps of where claims hold: which runs they ask for, and that alike ones run once."""

from pathlib import Path

import pytest

from scenarios import maps
from scenarios.load import load
from scenarios.store import Store
from scenarios.sweep import Outcome, Sweep, SweepCell


def test_the_slowest_cards_are_replaced_first_and_the_count_stays() -> None:
    fleet = maps._converged(load("migration-2023q3"), 0.83).fleet
    assert sum(p.count for p in fleet.pools) == 8
    assert maps.real_share(fleet) == 7 / 8
    assert {p.gpu: p.count for p in fleet.pools} == {"A100-80G": 1, "H100-80G": 7}


def test_a_fleet_that_is_converged_already_stays_as_it_is() -> None:
    scenario = load("h100-2024")
    assert maps._converged(scenario, 0.5) is scenario


def test_the_arm_that_deletes_the_layer_alone_is_found() -> None:
    names = [arm and arm.name for arm in maps._roles(load("migration-2023q3"))]
    assert names == ["legacy", "direct", "direct-static"]
    assert maps._roles(load("h100-2024"))[2].name == "direct-static"  # type: ignore[union-attr]


def test_the_baseline_runs_once_for_all_ages_of_the_candidates_telemetry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[SweepCell] = []

    def count(self: Sweep, cells: list[SweepCell], *_: object) -> list[Outcome]:
        asked.extend(cells)
        return [Outcome(cell, {}) for cell in cells]

    monkeypatch.setattr(Sweep, "run", count)
    with Sweep(1, quiet=True) as sweep:
        assert maps.study(load("migration-2023q3"), sweep) == {"maps": []}
    by_arm = {n: sum(c.arm == n for c in asked) for n in ("legacy", "direct", "direct-static")}
    points = {
        "legacy": len(maps.LOADS) * len(maps.SHARES),
        "direct": len(maps.LOADS) * (len(maps.AGES_MS) + len(maps.SHARES)),
        "direct-static": len(maps.LOADS) * len(maps.SHARES),
    }
    assert by_arm == {n: k * maps.REPLICATES for n, k in points.items()}


@pytest.mark.slow
def test_a_small_grid_runs_and_says_where_nothing_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in (("LOADS", (1.0,)), ("AGES_MS", (50.0,)), ("SHARES", (0.0,))):
        monkeypatch.setattr(maps, name, value)
    scenario = load("migration-2023q3", ["trace.limit=120", "replicates=2"])
    with Sweep(1, store=Store(tmp_path), quiet=True) as sweep:
        found = maps.study(scenario, sweep)["maps"]
    by_claim = {t["claim"]: t for t in found if "telemetry" in t["x"]}
    assert all(c["value"] is None for c in by_claim["C8"]["cells"])  # 0.3 arrivals a window
    assert all(c["value"] is not None for c in by_claim["C1"]["cells"])
    assert "C4" not in by_claim
