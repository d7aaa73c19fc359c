"""Failure drills: every fault that the simulator knows, one at a time, under every arm."""

import math

import pytest

from reports.drills import Drill, from_dict
from scenarios import drills
from scenarios.load import load


def test_every_fault_of_the_simulator_is_drilled() -> None:
    found = [fault.kind for fault in drills.faults(load("migration-2023q3"))]
    assert sorted(found) == sorted(drills.KINDS)
    assert len(found) == 9


def test_a_drill_leaves_room_before_and_after_its_fault() -> None:
    scenario = load("migration-2023q3")
    fault = next(drills.faults(scenario))
    made = drills.short(scenario, fault)
    assert made.faults == (fault,)
    assert made.trace.duration_s is not None
    assert fault.at_s is not None
    assert fault.at_s + fault.duration_s < made.trace.duration_s


def test_a_drill_survives_the_manifest() -> None:
    drill = Drill("gpu lost", "legacy", 120.0, 0.01, 0.5, 0.02, math.nan, math.inf)
    assert repr(from_dict(drill.as_dict())) == repr(drill)


@pytest.mark.slow
def test_a_lost_gpu_is_drilled_under_every_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = next(f for f in drills.faults(load("migration-2023q3")) if f.kind == "gpu_lost")
    monkeypatch.setattr(drills, "faults", lambda _: iter([lost]))
    scenario = load("migration-2023q3", ["trace.limit=1200", "replicates=1"])
    found = drills.study(scenario, jobs=1, quiet=True)
    assert [row["arm"] for row in found["drills"]] == ["legacy", "direct", "direct-static"]
    assert found["drills_skipped"] == []
