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
    last: int = 0
    last_s: float = math.nan  # no reading yet
    bits: int = 0
    _mask: int = 0
    _wrap_s: float = 0.0

    def update(self, value: int, bits: int, time_s: float) -> float | None:
        """Take a reading; return bytes per second since the last, or None where it cannot tell.

        Of *value* the low *bits* count.
        """
        if bits != self.bits:  # another counter
            self.bits, self._mask, self.last_s = bits, (1 << bits) - 1, math.nan
            self._wrap_s = 2.0**bits / self.max_bytes_per_s
        gap_s = time_s - self.last_s
        grown = (value - self.last) & self._mask
        self.last, self.last_s = value, time_s
        return grown / gap_s if 0 < gap_s < self._wrap_s else None  # NaN is neither

    def forget(self) -> None:
        """Start over: the counter may have been reset."""
        self.last_s = math.nan
