"""Fits constants of the cost model to measured rows: robust least squares in logarithms.

The residual of a row is ln(model / measured), its loss is near absolute (soft L1), so that the
fit aims at the median that ``zerolayer validate`` reports, and a few odd rows do not steer it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dispatch.errors import InputError
from dispatch.hardware import Calibration
from scenarios.estimate import estimate
from scenarios.measured import Measured
from scenarios.split import held_out

MOST_ROWS: Final = 3000
"""Rows of one table that a fit looks at: evenly spaced ones where there are more."""
SCALES: Final = (0.1, 0.02)
"""Residuals beyond this count about linearly: first coarse, then fine."""


@dataclass(frozen=True, slots=True)
class Free:
    """A constant to fit: its section and key, and the range that physics allows it."""

    section: str
    key: str
    low: float
    high: float


@dataclass(frozen=True)
class Rows:
    """Measured rows that one fit looks at: a table's kind, stack, train rows and their times."""

    kind: str
    stack: str
    table: pd.DataFrame
    measured_us: NDArray[np.float64]
    weight: float = 1.0


def train_rows(item: Measured, most: int = MOST_ROWS, weight: float = 1.0) -> list[Rows]:
    """Return the rows of a table that a fit may see, thinned to about *most*.

    Collectives are thinned within each count of GPUs and doubling of the size, so that large
    messages, of which benchmarks time most, do not outvote small ones.
    """
    table = item.table[~held_out(item.kind, item.table)]
    if item.kind == "all_reduce":
        bins = [table.n, table.per_node, np.log2(table.bytes).round()]
        each = max(1, most // max(1, table.groupby(bins).ngroups))
        table = table.groupby(bins).head(each)
    step = max(1, -(-len(table) // most))
    table = table.iloc[::step].reset_index(drop=True)
    if item.kind == "whole":
        return [
            Rows(kind, item.stack, table, table[column].to_numpy(dtype=float), weight)
            for kind, column in (("whole", "prompt_us"), ("tokens", "token_us"))
        ]
    return [Rows(item.kind, item.stack, table, table.us.to_numpy(dtype=float), weight)]


def get(cal: Calibration, free: Free) -> float:
    """Return the constant that *free* names."""
    return float(getattr(getattr(cal, free.section), free.key))


def put(cal: Calibration, values: Mapping[Free, float]) -> Calibration:
    """Return *cal* with other constants."""
    for free, value in values.items():
        section = replace(getattr(cal, free.section), **{free.key: float(value)})
        cal = replace(cal, **{free.section: section})
    return cal


def fit(
    start: Mapping[str, Calibration], free: Sequence[Free], rows: Sequence[Rows],
    own: Sequence[Free] = (), most: int = 40, pool: float = 0.0,
    scales: Sequence[float] = SCALES,
) -> dict[str, Calibration]:  # fmt: skip
    """Return the constants by GPU that fit *rows* best: *free* equal on all GPUs, *own* on each.

    *pool* draws a constant of *own* to its mean over the GPUs: a residual of *pool* x ln(ratio).
    Raises InputError where SciPy is not installed.
    """
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise InputError.at("scipy", "is not installed", "pip install scipy") from None
    names = list(start)
    slots: list[tuple[tuple[str, ...], Free]] = [(tuple(names), f) for f in free]
    slots += [((name,), f) for name in names for f in own]
    first = [float(np.clip(get(start[who[0]], f), f.low, f.high)) for who, f in slots]
    low, high = np.log([f.low for _, f in slots]), np.log([f.high for _, f in slots])

    def constants(x: Any) -> dict[str, Calibration]:
        made = dict(start)
        for (who, f), value in zip(slots, np.exp(x), strict=True):
            for name in who:
                made[name] = put(made[name], {f: value})
        return made

    def residuals(x: Any) -> Any:
        made = constants(x)
        parts = []
        for one in rows:
            ratio = estimate(one.kind, one.stack, one.table, made) / one.measured_us
            parts.append(np.log(np.maximum(ratio, 1e-6)) * one.weight)
        apart = np.asarray(x)[len(free) :].reshape(len(names), len(own))
        parts.append(pool * (apart - apart.mean(axis=0)).ravel())
        return np.concatenate(parts)

    margin = 1e-9
    x = np.clip(np.log(first), low + margin, high - margin)
    for scale in scales:
        x = least_squares(
            residuals, np.clip(x, low + margin, high - margin), bounds=(low, high),
            loss="soft_l1", f_scale=scale, diff_step=1e-3, max_nfev=most, ftol=1e-4, xtol=1e-4,
        ).x  # fmt: skip
    return constants(x)


def changed(cal: Calibration, section: str) -> dict[str, Any]:
    """Return every constant of a section by name."""
    values = getattr(cal, section)
    return {f.name: getattr(values, f.name) for f in fields(values)}


Objective = Callable[[Any], Any]
