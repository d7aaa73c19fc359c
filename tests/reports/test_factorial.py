"""Shapley values against their axioms, and designs with gaps."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import InputError
from reports import factorial, factorial_report

NAMES = ("layer", "placement", "kernels")


def design(value: Any, replicates: int = 3, names: tuple[str, ...] = NAMES) -> list[dict[str, Any]]:
    return [
        {**dict(zip(names, bits, strict=True)), "replicate": r, "value": value(bits, r)}
        for bits in product((0, 1), repeat=len(names))
        for r in range(replicates)
    ]


@given(st.integers(0, 10_000))
def test_effects_add_up_to_the_whole_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(2, 2, 2, 3))
    found = factorial.effects(NAMES, design(lambda b, r: float(table[(*b, r)])))
    assert sum(e.mean for e in found.effects) == pytest.approx(found.total.mean)
    assert found.orders == found.all_orders == 6


def test_a_switch_that_does_nothing_gets_nothing() -> None:
    found = factorial.effects(NAMES, design(lambda b, r: 2.0 * b[0] + b[1] * b[0] + r))
    assert found.effects[2].mean == pytest.approx(0.0)
    assert found.effects[0].mean == pytest.approx(2.5)  # its own 2 and half of the joint 1
    assert found.effects[1].mean == pytest.approx(0.5)


def test_switches_that_act_alike_get_alike() -> None:
    found = factorial.effects(NAMES, design(lambda b, r: float(b[0] or b[1])))
    assert found.effects[0].mean == pytest.approx(found.effects[1].mean)


def test_an_interaction_is_found_where_it_is() -> None:
    found = factorial.effects(NAMES, design(lambda b, r: 4.0 * b[0] * b[2] + 0.01 * r * b[1]))
    assert found.interactions["layer", "kernels"].mean == pytest.approx(4.0)
    assert found.interactions["layer", "placement"].mean == pytest.approx(0.0)


def test_six_switches_in_64_cells_are_walked_whole() -> None:
    names = ("layer", "placement", "kernels", "fleet", "memory", "telemetry")
    rng = np.random.default_rng(2)
    weight = rng.normal(size=6)
    cells = design(lambda b, r: float(weight @ b + 0.1 * r), 5, names)
    found = factorial.effects(names, cells)
    assert found.cells == 64
    assert [e.mean for e in found.effects] == pytest.approx(weight.tolist())


def test_missing_cells_restrict_the_orders_and_it_is_said() -> None:
    cells = [c for c in design(lambda b, r: float(sum(b))) if not (c["kernels"] and not c["layer"])]
    found = factorial.effects(NAMES, cells)
    assert 0 < found.orders < found.all_orders
    assert sum(e.mean for e in found.effects) == pytest.approx(found.total.mean)
    assert found.interactions == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"value": float("nan")}, "value"),
        ({"layer": 2}, "layer"),
        ({}, "twice"),
    ],
)
def test_a_bad_cell_is_named(change: dict[str, Any], told: str) -> None:
    cells = design(lambda b, r: float(sum(b)))
    with pytest.raises(InputError, match=told):
        factorial.effects(NAMES, [cells[0] | change, *cells[bool(change) :]])


def test_a_design_without_a_path_from_old_to_new_is_refused() -> None:
    cells = [c for c in design(lambda b, r: 0.0) if sum(c[n] for n in NAMES) != 1]
    with pytest.raises(InputError, match="no order"):
        factorial.effects(NAMES, cells)


def test_the_sentence_says_what_the_layer_gave() -> None:
    found = factorial.effects(NAMES, design(lambda b, r: 1.0 * b[0] + 5.0 * b[1] + 0.1 * r * b[2]))
    assert "came from deleting the layer" in factorial_report.sentence(found)
    assert "from placement" in factorial_report.sentence(found)
