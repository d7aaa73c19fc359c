"""The committed study in small: intervals cover what they should, and planted effects are found."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "intervals.py"


@pytest.fixture(scope="module")
def study() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmarks_intervals", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_over_200_a_a_comparisons_the_interval_covers_no_change_in_90_to_98_percent(
    study: ModuleType,
) -> None:
    rows = study.study(comparisons=200, replicates=5, requests=1000)
    assert {r["metric"] for r in rows} == set(study.STATISTICS)
    assert all(0.90 <= r["aa_covers"] <= 0.98 for r in rows), rows


def test_a_planted_effect_of_two_sd_is_found_nine_times_in_ten(study: ModuleType) -> None:
    rows = study.study(comparisons=200, replicates=6, requests=1000)
    found = {r["metric"]: r["found_2sd"] for r in rows if r["found_2sd"] is not None}
    assert len(found) == 3
    assert min(found.values()) >= 0.9, rows


def test_the_study_itself_sees_an_interval_that_is_too_narrow(study: ModuleType) -> None:
    runs = [study.comparison(i, 5, 300) for i in range(150)]
    intervals = [study.STATISTICS["e2e p50"](run) for run in runs]

    def covers(i: object, share: float) -> bool:
        middle, half = i.mean, (i.high - i.low) / 2  # type: ignore[attr-defined]
        return bool(middle - share * half <= 1.0 <= middle + share * half)

    assert sum(covers(i, 0.5) for i in intervals) / 150 < 0.90
