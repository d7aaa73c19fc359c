"""Replicates until an interval is as narrow as asked, whatever the verdict."""

from pathlib import Path

import numpy as np
import pytest

import reports.evidence
from dispatch.errors import InputError
from reports.student import t_quantile
from scenarios.load import load
from scenarios.run import run
from scenarios.store import Store
from scenarios.sweep import Sweep
from scenarios.verify import verify
from scenarios.width import replicates, widened
from tests.scenarios.small import small


def test_the_number_of_replicates_keeps_width_and_level() -> None:
    """Of 2,000 studies of normal pairs, all are as narrow as asked and 95 % cover the truth."""
    draw = np.random.default_rng(5)
    covered = 0
    for _ in range(2000):
        pilot = draw.normal(1.0, 2.0, 5)
        spread = float(pilot.std(ddof=1))
        n = replicates(spread, 5, 1.0, 0.95)
        half = t_quantile(0.975, 4) * spread / n**0.5
        assert half <= 1.0 + 1e-9
        mean = np.concatenate([pilot, draw.normal(1.0, 2.0, n - 5)]).mean()
        covered += abs(mean - 1.0) <= half
    assert 0.935 <= covered / 2000 <= 0.97


def test_a_wide_interval_is_narrowed_and_the_report_says_by_which_rule(tmp_path: Path) -> None:
    scenario = load(small(tmp_path), ["trace.scale=2"])
    with Sweep(1, store=Store(tmp_path / "store"), quiet=True) as sweep:
        chosen, about = widened(scenario, 4.0, 6, sweep)
    assert chosen.replicates == about["taken"] == min(6, about["asked"]) > scenario.replicates
    place = tmp_path / "run"
    run(chosen, place, jobs=1, quiet=True, finish=reports.evidence.write, extra={"stopping": about})
    text = (place / "report.md").read_text("utf-8")
    assert "Replicates were chosen for an interval of ± 4 points of SLO attainment" in text
    assert ("**the interval is wider than asked**" in text) == (about["asked"] > 6)
    found = verify(place, jobs=1, quiet=True)
    assert found.good
    assert found.other_bytes == ()


@pytest.mark.parametrize(("width", "most"), [(0.0, 9), (-1.0, 9), (float("nan"), 9), (1.0, 2)])
def test_a_width_or_a_number_that_cannot_be_is_refused(
    tmp_path: Path, width: float, most: int
) -> None:
    with (
        Sweep(1, store=Store(tmp_path / "store"), quiet=True) as sweep,
        pytest.raises(InputError, match="given"),
    ):
        widened(load(small(tmp_path)), width, most, sweep)
