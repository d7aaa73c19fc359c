"""Rates from counters that wrap: modular differences, and no guess across a gap too long."""

import math
from dataclasses import dataclass


@dataclass(slots=True)
class CounterRate:
    """Turns a byte counter of *bits* width into a rate.

    Between two readings the counter may wrap once. A gap in which it could have wrapped more than
    once at ``max_bytes_per_s`` gives no rate: any figure would be a guess.
    """

    max_bytes_per_s: float
    last: int | None = None
    last_s: float = math.nan
    bits: int = 0

    def update(self, value: int, bits: int, time_s: float) -> float | None:
        """Take a reading; return bytes per second since the last, or None where it cannot tell."""
        last, last_s, same = self.last, self.last_s, bits == self.bits
        self.last, self.last_s, self.bits = value, time_s, bits
        if last is None or not same:
            return None
        gap_s = time_s - last_s
        if gap_s <= 0:
            return None
        if gap_s * self.max_bytes_per_s >= 2.0**bits:
            return None
        return ((value - last) % (1 << bits)) / gap_s

    def forget(self) -> None:
        """Start over: the counter may have been reset."""
        self.last = None
