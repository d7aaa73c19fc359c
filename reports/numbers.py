"""Numbers as people read them: units, signs, and never more digits than mean something."""

import math
from typing import Final

from reports.intervals import Interval

MINUS: Final = "−"


def number(value: float, digits: int = 3) -> str:
    """Return *value* to *digits* significant digits with thousands separators; n/a for NaN."""
    if math.isnan(value):
        return "n/a"
    if math.isinf(value):
        return "∞" if value > 0 else MINUS + "∞"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(0, digits - 1 - size)}f}"
    if size < -5:
        text = f"{value:.{digits - 1}e}"
    return text.replace("-", MINUS) if value < 0 else text


def count(value: float) -> str:
    """Return a whole number with thousands separators."""
    return f"{int(value):,}"


def seconds(value: float) -> str:
    """Return a duration in the unit that suits it: ns, µs, ms, s, min or h."""
    if not math.isfinite(value):
        return number(value)
    if abs(value) < 5e-10:
        return "0 s"
    size = abs(value)
    for limit, factor, unit in (
        (1e-6, 1e9, "ns"),
        (1e-3, 1e6, "µs"),
        (1.0, 1e3, "ms"),
        (600.0, 1.0, "s"),
    ):
        if size < limit:
            return f"{number(value * factor)} {unit}"
    return f"{number(value / 60)} min" if size < 7200 else f"{number(value / 3600)} h"


def percent(ratio: float, digits: int = 3) -> str:
    """Return a share as a percentage."""
    if math.isnan(ratio):
        return "n/a"
    return f"{number(ratio * 100.0, digits)} %"


def signed(value: float, unit: str = "", digits: int = 3) -> str:
    """Return *value* with its sign."""
    text = number(value, digits)
    sign = "+" if value > 0 else ""
    return f"{sign}{text}{' ' + unit if unit else ''}"


def change(ratio: float) -> str:
    """Return a ratio of two quantities as a signed change in per cent."""
    return signed((ratio - 1.0) * 100.0, "%")


def span(interval: Interval, unit: str = "", scale: float = 1.0, plus: bool = True) -> str:
    """Return ``mean [low, high] unit``; says so where there is no interval."""

    def show(value: float) -> str:
        return signed(value * scale) if plus else number(value * scale)

    tail = f" {unit}" if unit else ""
    if math.isnan(interval.mean):
        return "n/a"
    if not interval.known:
        return f"{show(interval.mean)}{tail} (no interval: one replicate)"
    return f"{show(interval.mean)} [{show(interval.low)}, {show(interval.high)}]{tail}"


def change_span(interval: Interval) -> str:
    """Return a ratio's interval as changes in per cent."""
    shifted = Interval(
        (interval.mean - 1) * 100, (interval.low - 1) * 100, (interval.high - 1) * 100, interval.n
    )
    return span(shifted, "%")


def p_value(p: float) -> str:
    """Return a p value, never as a bare zero."""
    if math.isnan(p):
        return "n/a"
    if p > 0.995:
        return "1"
    return "< 0.0001" if p < 1e-4 else number(p, 2)
