"""The cheapest mix of kinds: branch and bound over columns of the strongest kind.

A column is all fleets with the same counts of the weaker kinds. The one assumption is that a
replica of the strongest kind less mends nothing; a weaker one less may, as a policy that does not
see memory sends too much to it. So a column whose largest affordable fleet fails holds nothing that
is cheaper than the best known, and one run rules it out.
"""

import itertools
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from scenarios.plan.fleets import Counts, Kinds

_CENT = 1e-9  # of a dollar an hour: below it two prices are one


@dataclass(slots=True)
class Columns:
    """Searches the fleets of *kinds* for the cheapest that holds.

    *scout* looks at several fleets at once and roughly, *sure* at one in full; *wide* is how many
    columns are looked at together. At most *most* replicas are a fleet, of each weaker kind at most
    *bounds*. *budget* caps the fleets scouted; ``cut`` says that it did.
    """

    kinds: Kinds
    strongest: int
    most: int
    bounds: Sequence[int]
    scout: Callable[[Sequence[Counts]], Awaitable[Sequence[bool]]]
    sure: Callable[[Counts], Awaitable[bool]]
    wide: int = 2
    budget: int = 150
    best: Counts | None = None
    looked: int = 0
    cut: bool = False

    async def search(self, known: Counts | None = None) -> Counts | None:
        """Return the cheapest fleet that holds, *known* if none is cheaper, or None."""
        self.best = known
        waiting: Iterator[Counts] = iter(self._columns())
        while batch := self._next(waiting):
            if self.looked >= self.budget:
                self.cut = True
                break
            tops = [self._at(column, self._affordable(column)) for column in batch]
            again: list[Counts] = []
            for column, top, good in zip(batch, tops, await self._scout(tops), strict=True):
                if not good:
                    continue
                if self._cheaper(top):
                    self.best = await self._least(column, top) or self.best
                else:  # its neighbour has just made the best cheaper than what was looked at
                    again.append(column)
            waiting = itertools.chain(again, waiting)
        return self.best

    def _columns(self) -> Iterator[Counts]:
        """Yield the counts of the weaker kinds, cheapest first, the strongest at 0."""
        ranges = [
            range(1) if kind == self.strongest else range(bound + 1)
            for kind, bound in enumerate(self.bounds)
        ]
        columns = [c for c in itertools.product(*ranges) if sum(c) <= self.most]
        columns.sort(key=lambda c: (self.kinds.cost(c), c))
        yield from columns

    def _next(self, waiting: Iterator[Counts]) -> list[Counts]:
        """Return the next columns that hold a fleet cheaper than the best."""
        batch: list[Counts] = []
        for column in waiting:
            if self.best is not None and self.kinds.cost(column) >= self.kinds.cost(self.best):
                break  # the columns that follow cost no less
            top = self._at(column, self._affordable(column))
            if any(top) and self._cheaper(top):
                batch.append(column)
                if len(batch) == self.wide:
                    break
        return batch

    def _affordable(self, column: Counts) -> int:
        """Return the most replicas of the strongest kind that keep a fleet below the best's price.

        0 where none do.
        """
        room = self.most - sum(column)
        if self.best is None:
            return room
        left = self.kinds.cost(self.best) - self.kinds.cost(column)
        price = self.kinds.usd_per_h[self.strongest]
        if price <= 0:
            return room
        return max(0, min(room, math.ceil(left / price - _CENT) - 1))

    def _at(self, column: Counts, count: int) -> Counts:
        return tuple(count if k == self.strongest else n for k, n in enumerate(column))

    def _cheaper(self, counts: Counts) -> bool:
        """Whether *counts* costs less than the best, or as much with fewer replicas."""
        if self.best is None:
            return True
        return self.kinds.cost(counts) < self.kinds.cost(self.best) - _CENT

    async def _scout(self, fleets: Sequence[Counts]) -> Sequence[bool]:
        self.looked += len(fleets)
        return await self.scout(fleets)

    async def _least(self, column: Counts, top: Counts) -> Counts | None:
        """Return the fleet of *column* with the fewest of the strongest kind that surely holds.

        Scouting finds where to look, up to *top*, at which it saw the SLOs hold.
        """
        low, high = -1 if any(column) else 0, top[self.strongest]
        while high - low > 1:
            middle = (low + high) // 2
            if (await self._scout([self._at(column, middle)]))[0]:
                high = middle
            else:
                low = middle
        step = 1
        while not await self.sure(self._at(column, high)):
            if high == top[self.strongest]:
                return None
            low, high, step = high, min(high + step, top[self.strongest]), 2 * step
        while high - low > 1 and step > 1:
            middle = (low + high) // 2
            if await self.sure(self._at(column, middle)):
                high = middle
            else:
                low = middle
        return self._at(column, high)
