"""Iteration times in whole femtoseconds, so that a sum over iterations is exact in any order."""

from collections.abc import Sequence
from math import sqrt
from typing import Protocol

from sim.clock import FS_PER_S


class Cost(Protocol):
    """What an engine asks of a cost model (:class:`sim.cost.StepCost`)."""

    def decode_line(self, batch: int) -> tuple[float, float]:
        """Return (base_s, slope_s): an iteration of *batch* over C tokens takes base + slope C."""
        ...

    def mixed_s(
        self,
        new_tokens: Sequence[int],
        past_tokens: Sequence[int],
        decode_batch: int = 0,
        decode_context: float = 0.0,
    ) -> float:
        """Return the time of an iteration with prompt chunks."""
        ...


class Rates:
    """Times of one kind of replica, *factor* times slower than its cost model says."""

    def __init__(self, cost: Cost, factor: float = 1.0) -> None:
        self.cost = cost
        self.factor = factor
        self.lines: dict[int, tuple[int, int]] = {}
        self._scale = FS_PER_S * factor
        self._mixed_s = cost.mixed_s

    def decode(self, batch: int) -> tuple[int, int]:
        """Return (base_fs, slope_fs) of a decode iteration of *batch* sequences."""
        line = self.lines.get(batch)
        if line is None:
            base_s, slope_s = self.cost.decode_line(batch)
            line = self.lines[batch] = (
                max(1, round(base_s * self._scale)),
                max(0, round(slope_s * self._scale)),
            )
        return line

    def mixed(
        self, new: Sequence[int], past: Sequence[int], decode_batch: int, decode_context: int
    ) -> int:
        """Return the femtoseconds of an iteration with prompt chunks."""
        seconds = self._mixed_s(new, past, decode_batch, decode_context)
        return max(1, round(seconds * self._scale))


def iterations_fs(count: int, base: int, slope: int, batch: int, context: int) -> int:
    """Return the time of *count* decode iterations, the first of which reads *context* tokens.

    Each iteration adds *batch* tokens: sum of base + slope (context + i batch) over i < count.
    """
    return count * base + slope * (count * context + batch * (count * (count - 1) // 2))


def iterations_until(elapsed: int, base: int, slope: int, batch: int, context: int) -> int:
    """Return the least count >= 1 of iterations that take more than *elapsed* femtoseconds.

    The positive root of the quadratic; where it is near a whole number, whole steps mend it.
    """
    if elapsed <= 0:
        return 1
    half = slope * batch * 0.5
    first = base + slope * context - half
    root = 2.0 * elapsed / (first + sqrt(first * first + 4.0 * half * elapsed))
    ended = int(root)
    # Floats are good for 1e-14 of the root, its terms being positive: far from a whole number they
    # are certain.
    if root < 1e6 and 1e-6 < root - ended < 0.999999:
        return ended + 1
    took = ended * base + slope * (ended * context + batch * (ended * (ended - 1) // 2))
    while took > elapsed:
        ended -= 1
        took -= base + slope * (context + batch * ended)
    while (took := took + base + slope * (context + batch * ended)) <= elapsed:
        ended += 1
    return ended + 1
