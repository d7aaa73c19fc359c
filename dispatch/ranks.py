"""Devices in the order of their requests in flight, kept as they change."""

from bisect import bisect_left, insort
from collections.abc import Iterable


class Ranks:
    """Some devices by requests in flight, then by index.

    A line of devices a load: a change costs two searches and two moves of a part of a list, and
    the least are at hand whatever the size of the fleet.
    """

    __slots__ = ("_at", "least", "lines")

    def __init__(self, devices: Iterable[int], loads: list[int]) -> None:
        self._at = [-1] * len(loads)  # the line that a device stands in; -1: it is none of these
        self.lines: list[list[int]] = [[]]
        self.least = 0
        """The load of the least loaded."""
        for device in sorted(devices):
            self._at[device] = loads[device]
            self._line(loads[device]).append(device)
        self._seek()

    def _line(self, load: int) -> list[int]:
        lines = self.lines
        while len(lines) <= load:
            lines.append([])
        return lines[load]

    def _seek(self) -> None:
        lines, load = self.lines, self.least
        last = len(lines) - 1
        while load < last and not lines[load]:
            load += 1
        self.least = load

    def move(self, device: int, load: int) -> None:
        """Note that *device* has *load* requests in flight."""
        old = self._at[device]
        if old < 0:
            return
        self._at[device] = load
        lines = self.lines
        line = lines[old]
        del line[bisect_left(line, device)]
        while len(lines) <= load:
            lines.append([])
        insort(lines[load], device)
        if load < self.least:
            self.least = load
        elif not line and old == self.least:
            self._seek()

    def best(self, device: int, count: int) -> tuple[list[int], list[float]]:
        """Return *device*, one of the least loaded, *count* - 1 others in order, and the loads."""
        load = self.least
        order = self.lines[load][:count]
        if device in order:
            order.remove(device)
        elif len(order) == count:
            order.pop()
        order.insert(0, device)
        scores: list[float] = [load] * len(order)
        while len(order) < count and load + 1 < len(self.lines):
            load += 1
            more = self.lines[load][: count - len(order)]
            order += more
            scores += [load] * len(more)
        return order, scores
