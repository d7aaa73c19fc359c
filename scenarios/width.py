"""As many replicates as an interval of a given width takes: Stein's two stages (1945).

A pilot tells the spread of the pairs; the number of replicates follows from it alone, and not from
how the comparison looks. So the interval keeps its level, which stopping when a verdict appears
would not.
"""

import math
from typing import Any, Final

import numpy as np

from dispatch.errors import InputError
from reports.student import t_quantile
from scenarios.schema import Scenario
from scenarios.sweep import Outcome, Sweep, SweepCell

LEAST: Final = 3
"""Replicates of a pilot at least: two tell next to nothing of a spread."""


def replicates(spread: float, pilot: int, width: float, confidence: float) -> int:
    """Return how many replicates give intervals of half-width *width* at most."""
    t = t_quantile(0.5 + confidence / 2, pilot - 1)
    return max(pilot, math.ceil((t * spread / width) ** 2))


def widened(scenario: Scenario, width_points: float, most: int, sweep: Sweep) -> Any:
    """Return *scenario* with its replicates chosen, and what the report says of the choice.

    The width is half of the interval of the change in SLO attainment, in points; at most *most*
    replicates are taken. Raises InputError for a width or a number that cannot be.
    """
    if not 0 < width_points < math.inf:
        raise InputError.at("--width", f"{width_points:g} given", "give points above 0")
    pilot = max(LEAST, scenario.replicates)
    if most < pilot:
        raise InputError.at("--most", f"{most} given", f"the pilot alone takes {pilot}")
    if len(scenario.arms) < 2:
        raise InputError.at("--width", "needs two arms to compare", "add an arm")
    baseline = scenario.baseline or scenario.arms[0].name
    others = [arm.name for arm in scenario.arms if arm.name != baseline]
    names = baseline, scenario.candidate or others[0]
    cells = [SweepCell(scenario, name, r) for name in names for r in range(pilot)]
    found = sweep.run(cells, "pilot")
    old, new = (_attainment(found[:pilot]), _attainment(found[pilot:]))
    spread = float(np.std(new - old, ddof=1))
    asked = replicates(spread, pilot, width_points, scenario.confidence)
    taken = min(asked, most)
    about = {
        "rule": "interval width (Stein 1945)",
        "half_width_points": width_points,
        "pilot": pilot,
        "pilot_sd_points": spread,
        "asked": asked,
        "taken": taken,
    }
    return scenario.model_copy(update={"replicates": taken}), about


def _attainment(outcomes: list[Outcome]) -> Any:
    for outcome in outcomes:
        if outcome.failure:
            raise InputError.at("--width", f"the pilot failed: {outcome.failure}")
    return np.array([100 * o.figures["attainment"] for o in outcomes])
