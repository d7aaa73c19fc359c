"""A prefix cache of fixed capacity in blocks: what of a prompt is there already.

One cache serves `zerolayer trace cache` and a replica alike. A request matches its leading blocks,
head to tail, up to the first that is absent; then all its blocks are touched, head to tail; then
blocks beyond the capacity are evicted. Ids are prefix hashes: one id stands for a block and for all
that comes before it.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, Literal

from sortedcontainers import SortedSet

from dispatch.errors import InputError

Evict = Literal["lru", "lfu", "length"]
RULES: Final = ("lru", "lfu", "length")


class PrefixCache:
    """Blocks that are held, and which of them goes next.

    ``evict``: "lru" the least recently touched; "lfu" the least often touched since it came in, of
    those the least recently; "length" the one that lies deepest in its prompt, of those the least
    recently (Mooncake's LengthAwareCache, FAST'25 §5). ``capacity_blocks`` None is without bound.
    """

    def __init__(self, capacity_blocks: int | None, evict: Evict = "lru") -> None:
        if evict not in RULES:
            raise InputError.at("evict", f"unknown rule {evict!r}", f"known: {', '.join(RULES)}")
        if capacity_blocks is not None and capacity_blocks < 0:
            raise InputError.at("capacity_blocks", f"is {capacity_blocks}", "0 or more")
        self.capacity_blocks = capacity_blocks
        self._lru = evict == "lru"
        self._depth = evict == "length"
        self._recent: OrderedDict[int, None] = OrderedDict()  # lru: oldest first
        self._rank: dict[int, tuple[int, int]] = {}  # else: id -> (weight, last touch)
        self._queue: SortedSet = SortedSet()  # (weight, last touch, id), the next to go first
        self._clock = 0

    def __len__(self) -> int:
        return len(self._recent) if self._lru else len(self._rank)

    def __contains__(self, block: int) -> bool:
        return block in (self._recent if self._lru else self._rank)

    def match(self, blocks: Sequence[int]) -> int:
        """Return how many leading *blocks* are held; changes nothing."""
        held = self._recent if self._lru else self._rank
        for place, block in enumerate(blocks):
            if block not in held:
                return place
        return len(blocks)

    def touch(self, blocks: Sequence[int]) -> list[int]:
        """Take in *blocks*, head to tail, and return what had to go."""
        if self._lru:
            return self._touch_recent(blocks)
        for place, block in enumerate(blocks):
            self._touch_ranked(place, block)
        gone: list[int] = []
        while self.capacity_blocks is not None and len(self._rank) > self.capacity_blocks:
            block = self._queue.pop(0)[2]
            del self._rank[block]
            gone.append(block)
        return gone

    def _touch_recent(self, blocks: Sequence[int]) -> list[int]:
        recent = self._recent
        for block in blocks:
            if block in recent:
                recent.move_to_end(block)
            else:
                recent[block] = None
        gone: list[int] = []
        while self.capacity_blocks is not None and len(recent) > self.capacity_blocks:
            gone.append(recent.popitem(last=False)[0])
        return gone

    def _touch_ranked(self, place: int, block: int) -> None:
        self._clock += 1
        old = self._rank.get(block)
        if old is not None:
            self._queue.remove((*old, block))
        weight = -place if self._depth else 1 if old is None else old[0] + 1
        self._rank[block] = new = (weight, self._clock)
        self._queue.add((*new, block))

    def drop(self, block: int) -> None:
        """Forget *block*, as a replica does that needs its memory; absent is fine."""
        if self._lru:
            self._recent.pop(block, None)
        elif block in self._rank:
            self._queue.remove((*self._rank.pop(block), block))

    def clear(self) -> None:
        """Forget everything, as a restart does."""
        self._recent.clear()
        self._rank.clear()
        self._queue.clear()
