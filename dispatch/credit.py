"""What was sent to each device since its last sample, so that a stale snapshot is not trusted."""

from collections import deque

import numpy as np

from dispatch.fleet import Floats
from dispatch.signals import Signal


class Credit:
    """Amounts placed per device that a sample of *signal* cannot have seen yet.

    An amount counts until a sample whose source time is at or after the placement.
    """

    def __init__(self) -> None:
        self.amount: Floats = np.empty(0)
        self._seen_s: Floats = np.empty(0)
        self._lines: list[deque[tuple[float, float]]] = []

    def up_to(self, signal: Signal) -> Floats:
        """Return the amounts not yet visible in *signal*."""
        count = len(signal.source_s)
        if len(self.amount) != count:
            grown = count - len(self.amount)
            self.amount = np.concatenate([self.amount, np.zeros(grown)])
            self._seen_s = np.concatenate([self._seen_s, np.full(grown, -np.inf)])
            self._lines += [deque() for _ in range(grown)]
        if (signal.source_s != self._seen_s).any():
            for device in np.flatnonzero(signal.source_s != self._seen_s).tolist():
                line, source_s = self._lines[device], signal.source_s[device]
                while line and line[0][0] <= source_s:
                    self.amount[device] -= line.popleft()[1]
            np.copyto(self._seen_s, signal.source_s)
        return self.amount

    def add(self, device: int, now_s: float, amount: float) -> None:
        """Note *amount* sent to *device* at *now_s*; :meth:`up_to` was called before."""
        self.amount[device] += amount
        self._lines[device].append((now_s, amount))
