"""Shapley values over a factorial of switches: what each part did, with intervals.

A cell is one combination of switches (0 old, 1 new) on one replicate, with one value. The effect
of a switch is its marginal change averaged over all orders in which the switches can be thrown
(Shapley 1953), so that effects add up to the whole change exactly. Where cells are missing only
the orders whose cells all exist count, and the report says how many.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from dispatch.errors import InputError
from reports.intervals import Interval, holm, p_worse, t_interval
from reports.tables import Floats

if TYPE_CHECKING:
    pass

MAX_SWITCHES = 8  # 8! orders are walked one by one where the design has gaps


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects of every switch on one metric, over replicates."""

    metric: str
    unit: str
    switches: tuple[str, ...]
    old: Interval
    new: Interval
    total: Interval
    effects: tuple[Interval, ...]
    p_holm: tuple[float, ...]
    interactions: Mapping[tuple[str, str], Interval]
    orders: int
    all_orders: int
    cells: int
    flagged: tuple[str, ...] = ()
    larger_is_better: bool = True
    titles: Mapping[str, str] = field(default_factory=dict)
    heading: str = ""

    def title(self, switch: str) -> str:
        """Return a switch with what its two sides are."""
        return f"{switch} ({self.titles[switch]})" if switch in self.titles else switch

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {
            "heading": self.heading,
            "metric": self.metric,
            "unit": self.unit,
            "old": self.old.as_dict(),
            "new": self.new.as_dict(),
            "total": self.total.as_dict(),
            "effects": {s: e.as_dict() for s, e in zip(self.switches, self.effects, strict=True)},
            "interactions": {f"{a} x {b}": i.as_dict() for (a, b), i in self.interactions.items()},
            "orders": self.orders,
            "all_orders": self.all_orders,
            "cells": self.cells,
            "flagged": list(self.flagged),
        }


def effects(
    switches: Sequence[str],
    cells: Iterable[Mapping[str, Any]],
    *,
    metric: str = "SLO attainment",
    unit: str = "points",
    larger_is_better: bool = True,
    confidence: float = 0.95,
) -> Effects:
    """Return Shapley effects and pairwise interactions of *switches*.

    A row of *cells* holds every switch (0 or 1), ``replicate``, ``value``, and optionally ``flag``
    (what that combination falls back to). Raises InputError for an unknown level, a cell given
    twice, a value that is not finite, or a design without one whole path from old to new.
    """
    names = tuple(switches)
    rows = list(cells)
    values = _values(names, rows)
    replicates = sorted({rep for rep, _ in values})
    masks = [k for k in range(1 << len(names)) if all((rep, k) in values for rep in replicates)]
    table = np.full((len(replicates), 1 << len(names)), np.nan)
    for row, rep in enumerate(replicates):
        for k in masks:
            table[row, k] = values[rep, k]
    per_switch, orders = _shapley(names, table)
    whole = (1 << len(names)) - 1
    found = tuple(t_interval(per_switch[:, i], confidence) for i in range(len(names)))
    return Effects(
        metric,
        unit,
        names,
        t_interval(table[:, 0], confidence),
        t_interval(table[:, whole], confidence),
        t_interval(table[:, whole] - table[:, 0], confidence),
        found,
        tuple(holm([_two_sided(e) for e in found])),
        _interactions(names, table, confidence),
        orders,
        math.factorial(len(names)),
        len(masks),
        tuple(sorted({str(r["flag"]) for r in rows if r.get("flag")})),
        larger_is_better,
    )


def _two_sided(interval: Interval) -> float:
    one = min(p_worse(interval), p_worse(interval.scaled(-1.0)))
    return min(1.0, 2 * one) if not math.isnan(one) else math.nan


def _values(names: tuple[str, ...], rows: list[Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    if not 1 <= len(names) <= MAX_SWITCHES:
        raise InputError.at("switches", f"{len(names)} given", f"give 1 to {MAX_SWITCHES}")
    values: dict[tuple[int, int], float] = {}
    for at, row in enumerate(rows):
        mask = 0
        for i, name in enumerate(names):
            if row.get(name) not in (0, 1, True, False):
                raise InputError.at(f"cells[{at}].{name}", f"{row.get(name)!r}", "give 0 or 1")
            mask |= int(row[name]) << i
        key = int(row["replicate"]), mask
        value = float(row["value"])
        if key in values:
            raise InputError.at(f"cells[{at}]", "is given twice", "give each combination once")
        if not math.isfinite(value):
            raise InputError.at(f"cells[{at}].value", f"{value}", "give a finite value")
        values[key] = value
    return values


def _shapley(names: tuple[str, ...], table: Floats) -> tuple[Floats, int]:
    """Return effects as (replicate, switch), and over how many orders they are averaged."""
    k = len(names)
    present = np.isfinite(table[0])
    if present.all():
        result = np.zeros((len(table), k))
        for i in range(k):
            for mask in range(1 << k):
                if not mask >> i & 1:
                    size = mask.bit_count()
                    weight = math.factorial(size) * math.factorial(k - size - 1)
                    step = table[:, mask | 1 << i] - table[:, mask]
                    result[:, i] += weight / math.factorial(k) * step
        return result, math.factorial(k)
    total, orders = np.zeros((len(table), k)), 0
    for order in permutations(range(k)):
        path = [0]
        for i in order:
            path.append(path[-1] | 1 << i)
        if present[path].all():
            orders += 1
            for i, before, after in zip(order, path, path[1:], strict=False):
                total[:, i] += table[:, after] - table[:, before]
    if not orders:
        raise InputError.at(
            "cells", "no order of the switches has all its cells", "run one whole path at least"
        )
    return total / orders, orders


def _interactions(
    names: tuple[str, ...], table: Floats, confidence: float
) -> dict[tuple[str, str], Interval]:
    """Return pairwise Shapley interactions (Grabisch and Roubens 1999); none if cells lack."""
    if not np.isfinite(table[0]).all():
        return {}
    k = len(names)
    found = {}
    for i, j in combinations(range(k), 2):
        value = np.zeros(len(table))
        for mask in range(1 << k):
            if mask >> i & 1 or mask >> j & 1:
                continue
            size = mask.bit_count()
            weight = math.factorial(size) * math.factorial(k - size - 2) / math.factorial(k - 1)
            both, one, other = mask | 1 << i | 1 << j, mask | 1 << i, mask | 1 << j
            value += weight * (table[:, both] - table[:, one] - table[:, other] + table[:, mask])
        found[names[i], names[j]] = t_interval(value, confidence)
    return found
