"""Arrivals for sources that hold none: drawn by seed at a rate that somebody gave, and said so."""

import math

from dispatch import keyed
from traces.formats.base import Options
from traces.trace import Quirk


class Poisson:
    """Poisson arrivals, or gamma where a shape is known; the n-th gap hangs on seed and n alone."""

    def __init__(self, options: Options, rate_per_s: float | None = None, shape: float = 1.0):
        self.given = options.rate_per_s or rate_per_s
        self._rate = self.given or 1.0
        self._gaps = keyed.generator(options.seed, "made arrivals")
        self._shape = shape
        self._now_s = 0.0
        self._first = True

    def next_ns(self) -> int:
        """Return the next arrival; the first is at 0."""
        if self._first:
            self._first = False
        elif math.isfinite(self._rate):
            gap = float(self._gaps.gamma(self._shape, 1.0 / (self._rate * self._shape)))
            self._now_s += gap
        return round(self._now_s * 1e9)

    def quirks(self) -> tuple[Quirk, ...]:
        """Say where the arrivals come from."""
        if self.given is None:
            return (Quirk("no_rate", "it has no arrival times and no rate was given"),)
        kind = "Poisson" if self._shape == 1.0 else f"gamma (shape {self._shape:g})"
        text = f"it has no arrival times; {kind} arrivals at {self._rate:g}/s are drawn by seed"
        return (Quirk("made_arrivals", text),)
