"""When a claim holds: statuses per point, and the border where they flip."""

from typing import Any

import pytest

from dispatch.errors import InputError
from reports import maps

GRID: dict[str, Any] = {
    "claim": "C8",
    "title": "lost to misjudged memory",
    "unit": "points",
    "figure": 1.0,
    "x": "telemetry age, ms",
    "y": "load",
    "cells": [
        {"x": age, "y": load, "replicate": r, "value": age * load / 500 + 0.01 * r}
        for age in (50, 500, 5000)
        for load in (0.5, 1.0)
        for r in range(3)
    ],
}


def test_the_border_is_between_the_last_point_that_holds_and_the_first_that_does_not() -> None:
    found = maps.claim_map(GRID)
    assert found.statuses[50, 1.0] == maps.HOLDS
    assert found.statuses[5000, 0.5] == maps.FAILS
    assert (0.5, 500.0, 5000.0) in found.borders()


def test_one_replicate_leaves_every_point_open() -> None:
    cells = [c for c in GRID["cells"] if c["replicate"] == 0]
    assert set(maps.claim_map(GRID | {"cells": cells}).statuses.values()) == {maps.OPEN}


def test_larger_is_better_turns_the_claim_round() -> None:
    found = maps.claim_map(GRID | {"at_most": False})
    assert found.statuses[5000, 0.5] == maps.HOLDS


def point(kind: str, values: list[float | None], requests: int = 1000, **more: Any) -> str:
    cells = [
        {"x": 1, "y": 1, "replicate": r, "value": v, "requests": requests}
        for r, v in enumerate(values)
    ]
    made = maps.claim_map(GRID | {"cells": cells, "kind": kind, **more})
    return made.statuses[1.0, 1.0]


def test_a_rate_of_zero_holds_only_with_requests_enough_to_mean_it() -> None:
    assert point("rate", [0.0] * 3, 1000, figure=0.0) == maps.OPEN
    assert point("rate", [0.0] * 3, 2000, figure=0.0) == maps.HOLDS
    assert point("rate", [0.0] * 3, 1000, figure=0.01) == maps.OPEN
    assert point("rate", [0.0] * 3, 100_000, figure=0.01) == maps.HOLDS


def test_two_rates_without_an_event_are_not_proven_equal() -> None:
    assert point("difference", [0.0] * 3, 1000, figure=-0.01, at_most=False) == maps.OPEN


def test_a_figure_to_be_hit_is_missed_on_either_side() -> None:
    assert point("", [62.0, 63.0, 64.0], figure=63.0, within=10.0) == maps.HOLDS
    assert point("", [97.0, 98.0, 99.0], figure=63.0, within=10.0) == maps.FAILS
    assert point("", [20.0, 60.0, 99.0], figure=63.0, within=10.0) == maps.OPEN


def test_a_point_without_any_figure_is_not_measured() -> None:
    assert point("rate", [None, None, None]) == maps.ABSENT


def test_a_map_without_its_keys_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="figure"):
        maps.claim_map({k: v for k, v in GRID.items() if k != "figure"})
