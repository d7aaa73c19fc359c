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


def test_a_map_without_its_keys_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="figure"):
        maps.claim_map({k: v for k, v in GRID.items() if k != "figure"})
