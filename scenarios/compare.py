"""Figures against figures: what ``verify`` and ``diff`` say of two summaries."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Difference:
    """One key under which two documents differ; None stands for absent."""

    key: str
    left: Any
    right: Any

    @property
    def relative(self) -> float:
        """Relative change where both are numbers, else NaN."""
        if _number(self.left) and _number(self.right) and self.left:
            return float(self.right / self.left - 1.0)
        return math.nan


def differences(left: Any, right: Any, tolerance: float = TOLERANCE) -> list[Difference]:
    """Return every key at which two JSON documents differ by more than *tolerance* (relative)."""
    return list(_walk(left, right, "", tolerance))


def _walk(left: Any, right: Any, key: str, tolerance: float) -> Iterator[Difference]:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        for name in dict.fromkeys([*left, *right]):
            where = f"{key}.{name}" if key else str(name)
            yield from _walk(left.get(name), right.get(name), where, tolerance)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for at, (a, b) in enumerate(zip(left, right, strict=True)):
            yield from _walk(a, b, f"{key}[{at}]", tolerance)
    elif not _equal(left, right, tolerance):
        yield Difference(key, left, right)


def _equal(left: Any, right: Any, tolerance: float) -> bool:
    if _number(left) and _number(right):
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    return bool(left == right)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
