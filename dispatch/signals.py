"""One telemetry signal over all devices: its last values, their source times, what was refused.

The border of the graph: NaN, infinite, negative, late, duplicate and foreign samples stop here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike

from dispatch.errors import InputError
from dispatch.fleet import Bools, Cells, Floats, Ints, cells

SIGNALS: Final = ("memory", "ring", "pcie", "queue", "kv", "health")
FLAT_SAMPLES: Final = 20  # samples under load without one change that make a signal unsupported

Pair = tuple[int, float, float, float]
"""Device, two values, source time."""
_INF: Final = math.inf

Mode = Literal["ignore", "saturated", "last_known"]
Status = Literal["ok", "unknown", "stale", "unsupported"]


@dataclass(frozen=True, slots=True)
class Staleness:
    """What becomes of a signal older than ``limit_s``.

    ``ignore``: as if never told; ``saturated``: the worst value; ``last_known``: kept as it is.
    ``refresh_s`` is how often the signal comes; a saturated signal must come within its limit.
    """

    limit_s: float
    mode: Mode = "last_known"
    refresh_s: float | None = None

    def check(self, signal: str) -> None:
        """Raise InputError where the signal would count as stale between any two samples."""
        if not self.limit_s > 0:
            raise InputError.at(f"staleness of {signal}", f"limit is {self.limit_s} s", "give > 0")
        if self.mode == "saturated" and self.refresh_s is not None:
            if self.refresh_s <= self.limit_s:
                return
            raise InputError.at(
                f"staleness of {signal}",
                f"comes every {self.refresh_s} s but is saturated after {self.limit_s} s",
                "sample at least as often as the limit, raise the limit, or choose ignore",
            )


class Signal:
    """Values of one signal, a column each, NaN where nobody has told us.

    ``worst`` are the values a saturated signal takes. ``follows_load`` marks signals that cannot
    stay constant under load: one that never changed is reported as unsupported, not as idle;
    with ``distrust`` its values are taken as unknown too, until the first change.
    """

    def __init__(
        self,
        name: str,
        worst: Sequence[float],
        *,
        follows_load: bool = True,
        distrust: bool = False,
    ) -> None:
        self.name = name
        self.worst = tuple(worst)
        self.follows_load = follows_load
        self.distrust = distrust
        self.values: list[Floats] = [np.empty(0) for _ in worst]
        self.source_s: Floats = np.empty(0)
        self.stale: Bools = np.empty(0, dtype=bool)
        self.changed: Bools = np.empty(0, dtype=bool)
        self.flat: Ints = np.empty(0, dtype=np.int64)
        self.last: list[Floats] = [np.empty(0) for _ in worst]
        self.owner: str | None = None
        self.refused = 0
        self.late = 0
        self.foreign = 0
        self.staleness: Staleness | None = None
        self.next_stale_s = math.inf
        self.grow(0)

    def grow(self, count: int) -> None:
        """Give every column *count* rows, keeping what is there."""
        self.values = [_grown(v, count, math.nan) for v in self.values]
        self.last = [_grown(v, count, math.nan) for v in self.last]
        self.source_s = _grown(self.source_s, count, -math.inf)
        old = len(self.stale)
        self.stale = np.concatenate([self.stale, np.zeros(count - old, dtype=bool)])
        self.changed = np.concatenate([self.changed, np.zeros(count - old, dtype=bool)])
        self.flat = np.concatenate([self.flat, np.zeros(count - old, dtype=np.int64)])
        self.cells: list[Cells] = [cells(v) for v in self.values]
        self._last: list[Cells] = [cells(v) for v in self.last]
        self.source: Cells = cells(self.source_s)
        self._moves: Cells = cells(self.changed)

    def copy_from(self, other: "Signal") -> None:
        """Take over all that *other*, the same signal of the same devices, knows."""
        columns = [(self.source_s, other.source_s), (self.stale, other.stale)]
        columns += [(self.changed, other.changed), (self.flat, other.flat)]
        columns += zip(self.values + self.last, other.values + other.last, strict=True)
        for mine, theirs in columns:
            np.copyto(mine, theirs)
        self.owner, self.next_stale_s = other.owner, other.next_stale_s

    def forget(self, device: int, source_s: float | None) -> None:
        """Forget the values of *device*; samples up to *source_s* belong to its past."""
        for value, last in zip(self.values, self.last, strict=True):
            value[device] = last[device] = math.nan
        if source_s is not None:
            self.source_s[device] = max(source_s, self.source_s[device])
        self.stale[device] = self.changed[device] = False
        self.flat[device] = 0

    def accept(
        self, device: int, sample: Sequence[float], source_s: float, loaded: bool, owner: str
    ) -> bool:
        """Take one sample; False where it was refused, late or foreign."""
        if not 0 <= device < len(self.source_s):
            raise InputError.at(f"sample of {self.name}", f"device {device} does not exist")
        if owner != self.owner and not self._owned(owner):
            return False
        for value in sample:
            if not 0 <= value < math.inf:
                self.refused += 1
                return False
        if not source_s < math.inf:  # NaN too
            self.refused += 1
            return False
        if source_s <= self.source[device]:
            self.late += 1
            return False
        self.source[device] = source_s
        if self.follows_load and not self._moves[device] and self._is_flat(device, sample, loaded):
            sample = [math.nan] * len(sample)
        columns = self.cells  # one or two
        columns[0][device] = sample[0]
        if len(columns) == 2:
            columns[1][device] = sample[1]
        if self.staleness is not None:
            self.stale[device] = False
            self.next_stale_s = min(self.next_stale_s, source_s + self.staleness.limit_s)
        return True

    def accept_few(self, samples: list[Pair], n: Cells) -> list[Pair]:
        """Take samples of two values, nobody's own, as :meth:`accept` does; return those taken.

        *n* is the number in flight by device.
        """
        plain = self.owner == "" and self.staleness is None
        source, (first, second) = self.source, self.cells
        moves = self._moves if self.follows_load else None
        taken: list[Pair] | None = None  # once one is not taken
        for place, sample in enumerate(samples):
            device, a, b, source_s = sample
            if (
                plain and 0.0 <= a < _INF and 0.0 <= b < _INF
                and source[device] < source_s < _INF and (moves is None or moves[device])
            ):  # fmt: skip
                source[device] = source_s
                first[device] = a
                second[device] = b
            elif not self.accept(device, (a, b), source_s, n[device] > 0, ""):
                if taken is None:
                    taken = samples[:place]
                continue
            if taken is not None:
                taken.append(sample)
        return samples if taken is None else taken

    def _owned(self, owner: str) -> bool:
        if self.owner is None:
            self.owner = owner
            return True
        self.foreign += 1
        return False

    def _is_flat(self, device: int, sample: Sequence[float], loaded: bool) -> bool:
        """Whether the signal has shown one and the same value for too long under load."""
        seen = self._last[0][device] == self._last[0][device]  # not NaN
        moved = any(last[device] != v for last, v in zip(self._last, sample, strict=True))
        for last, value in zip(self._last, sample, strict=True):
            last[device] = value
        if seen and moved:
            self.changed[device] = True
            return False
        self.flat[device] += loaded
        return self.distrust and bool(self.flat[device] >= FLAT_SAMPLES)

    def accept_many(
        self,
        devices: Ints,
        samples: Sequence[ArrayLike],
        source_s: ArrayLike,
        loaded: Bools,
        owner: str,
    ) -> Ints:
        """Take a sample for each of *devices* (all different); return those that were accepted."""
        if owner != self.owner and not self._owned(owner):
            return devices[:0]
        times = np.broadcast_to(np.asarray(source_s, dtype=np.float64), devices.shape)
        columns = [np.broadcast_to(np.asarray(s, dtype=np.float64), devices.shape) for s in samples]
        good = times < math.inf
        for column in columns:
            good &= (column >= 0) & (column < math.inf)
        fresh = times > self.source_s[devices]
        self.refused += int(np.count_nonzero(~good))
        self.late += int(np.count_nonzero(good & ~fresh))
        good &= fresh
        if not good.all():
            devices, times, loaded = devices[good], times[good], loaded[good]
            columns = [c[good] for c in columns]
        self.source_s[devices] = times
        if self.follows_load and not self.changed[devices].all():
            columns = self._without_flat(devices, columns, loaded)
        for value, column in zip(self.values, columns, strict=True):
            value[devices] = column
        if self.staleness is not None and len(devices):
            self.stale[devices] = False
            self.next_stale_s = min(self.next_stale_s, times.min() + self.staleness.limit_s)
        return devices

    def _without_flat(self, devices: Ints, columns: list[Floats], loaded: Bools) -> list[Floats]:
        seen = ~np.isnan(self.last[0][devices])
        moved = np.zeros(len(devices), dtype=bool)
        for last, column in zip(self.last, columns, strict=True):
            moved |= last[devices] != column
            last[devices] = column
        changed = self.changed[devices] | (seen & moved)
        self.changed[devices] = changed
        self.flat[devices] += loaded & ~changed
        if not self.distrust:
            return columns
        flat = ~changed & (self.flat[devices] >= FLAT_SAMPLES)
        return [np.where(flat, math.nan, c) for c in columns] if flat.any() else columns

    def expire(self, now_s: float) -> Ints:
        """Mark what is older than the limit; return the devices that became stale just now."""
        none: Ints = np.empty(0, dtype=np.int64)
        if self.staleness is None or now_s < self.next_stale_s:
            return none
        edge = now_s - self.staleness.limit_s
        told = self.source_s > -math.inf
        newly = np.flatnonzero(told & ~self.stale & (self.source_s < edge))
        self.stale[newly] = True
        fresh = told & ~self.stale
        self.next_stale_s = (
            float(self.source_s[fresh].min()) + self.staleness.limit_s if fresh.any() else math.inf
        )
        if self.staleness.mode == "last_known":
            return none
        saturated = self.staleness.mode == "saturated"
        for value, worst in zip(self.values, self.worst, strict=True):
            value[newly] = worst if saturated else math.nan
        return newly

    def status(self, device: int) -> Status:
        """Say whether the signal of *device* can be believed."""
        if self.source_s[device] == -math.inf:
            return "unknown"
        if self.stale[device]:
            return "stale"
        flat = self.follows_load and not self.changed[device]
        return "unsupported" if flat and self.flat[device] >= FLAT_SAMPLES else "ok"


def _grown(column: Floats, count: int, fill: float) -> Floats:
    return np.concatenate([column, np.full(count - len(column), fill)])
