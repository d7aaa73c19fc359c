"""nginx's smooth weighted round robin without the walk: the same picks, peer for peer.

The plain scan adds E to the current C of every eligible peer and takes the largest C. Peers whose E
is their weight ("calm": neither failing nor recovering) all move by their weight at every pick, so
among those of one weight the order by C never changes but for the one that was picked. Each weight
therefore has a heap of offsets, with C = offset + weight * picks, and a pick compares the heads: it
costs the number of distinct weights and a logarithm, not the number of peers. Peers that fail or
recover are walked one by one as nginx does. Sums are of whole numbers below 2^53, hence exact; with
fractional weights, whose sums round, the plain scan is used (:class:`Plain`).
"""

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Busy = Sequence[int] | NDArray[np.int64]
_MOST_EXACT: Final = 2.0**31
"""A weight above it could leave the whole numbers that a double holds."""


@dataclass(slots=True)
class Peer:
    """nginx's state of one peer, in its own words; ``current`` is not kept while it is calm."""

    device: int
    weight: float
    effective: float
    current: float = 0.0
    fails: int = 0
    checked: float = -math.inf
    accessed: float = -math.inf
    place: int = 0
    """Its place in configuration order; ties go to the first."""
    calm: bool = False
    offset: float = 0.0
    """While calm: ``current`` less weight times picks, which stays as it is until it is picked."""
    entry: int = 0
    """The number of its living heap entry; older ones are stale."""


@dataclass(frozen=True, slots=True)
class Rules:
    """nginx's ``max_fails`` (0: never out), ``fail_timeout`` and ``max_conns`` (0: no limit)."""

    max_fails: int
    fail_timeout_s: float
    max_conns: int

    def open(self, peer: Peer, busy: int, lone: bool, now_s: float) -> bool:
        """Whether *peer*, with *busy* connections, may be picked now."""
        if self.max_conns and busy >= self.max_conns:
            return False
        out = self.max_fails and peer.fails >= self.max_fails and not lone
        return not out or now_s - peer.checked > self.fail_timeout_s

    def good(self, peer: Peer) -> bool:
        """Whether *peer* neither fails nor recovers."""
        return peer.effective == peer.weight and (not self.max_fails or peer.fails < self.max_fails)


class Plain:
    """The scan as nginx writes it: every peer at every pick."""

    def __init__(self, peers: Sequence[Peer], rules: Rules) -> None:
        self.peers = list(peers)
        self.rules = rules
        self.by_device = {peer.device: peer for peer in self.peers}

    def pick(self, tried: Sequence[int], busy: Busy, now_s: float) -> Peer | None:
        """Return the next peer, or None where none may be picked; *busy*: connections a device."""
        best, total = self._scan(self.peers, tried, busy, now_s)
        if best is not None:
            best.current -= total
            if now_s - best.checked > self.rules.fail_timeout_s:
                best.checked = now_s
        return best

    def _scan(
        self, peers: Iterable[Peer], tried: Sequence[int], busy: Busy, now_s: float
    ) -> tuple[Peer | None, float]:
        """Add their weights to those of *peers* that are open; return the best and the sum."""
        best: Peer | None = None
        total = 0.0
        lone = len(self.peers) == 1
        for peer in peers:
            if peer.device in tried or not self.rules.open(peer, busy[peer.device], lone, now_s):
                continue
            peer.current += peer.effective
            total += peer.effective
            if peer.effective < peer.weight:
                peer.effective += 1
            if best is None or peer.current > best.current:
                best = peer
        return best, total

    def disturbed(self, peer: Peer) -> None:
        """Tell that *peer* is about to fail."""

    def settled(self) -> None:
        """Write every peer's state into the peer."""


@dataclass(slots=True)
class _Rank:
    """The calm peers of one weight: a heap of (-offset, place, entry, peer)."""

    weight: float
    heap: list[tuple[float, int, int, Peer]] = field(default_factory=list)

    def head(self) -> tuple[float, int, int, Peer] | None:
        """Return the entry of the largest C, dropping stale ones."""
        heap = self.heap
        while heap and heap[0][2] != heap[0][3].entry:
            heapq.heappop(heap)
        return heap[0] if heap else None


class Ranked(Plain):
    """The same picks from one heap a weight; for whole weights without a limit of connections."""

    def __init__(self, peers: Sequence[Peer], rules: Rules) -> None:
        super().__init__(peers, rules)
        self._ranks: dict[float, _Rank] = {}
        self._picks = 0
        self._calm_weight = 0.0
        self._restless: dict[int, Peer] = {}  # by place
        for place, peer in enumerate(self.peers):
            peer.place, peer.calm = place, False
            self._restless[place] = peer
        self._settle()

    def pick(self, tried: Sequence[int], busy: Busy, now_s: float) -> Peer | None:
        """Return the next peer, or None where none may be picked."""
        for device in tried:
            if device in self.by_device:
                self.disturbed(self.by_device[device])
        self._picks += 1
        picks, total = self._picks, self._calm_weight
        best: Peer | None = None
        most, first, where = -math.inf, -1, None
        for rank in self._ranks.values():
            head = rank.head()
            if head is None:
                continue
            current = rank.weight * picks - head[0]
            if current > most or (current == most and head[1] < first):
                best, most, first, where = head[3], current, head[1], rank
        if self._restless:
            restless = [peer for _, peer in sorted(self._restless.items())]
            loud, gained = self._scan(restless, tried, busy, now_s)
            total += gained
            if loud is not None and (
                best is None or loud.current > most or (loud.current == most and loud.place < first)
            ):
                best, where = loud, None
        if best is None:
            return None
        if where is None:
            best.current -= total
        else:
            best.offset -= total
            best.entry += 1
            heapq.heapreplace(where.heap, (-best.offset, best.place, best.entry, best))
        if now_s - best.checked > self.rules.fail_timeout_s:
            best.checked = now_s
        if self._restless:
            self._settle()
        return best

    def _settle(self) -> None:
        """Put the peers that have become calm into their heaps."""
        calm = [peer for peer in self._restless.values() if self.rules.good(peer)]
        for peer in calm:
            del self._restless[peer.place]
            peer.calm = True
            peer.entry += 1
            rank = self._ranks.setdefault(peer.weight, _Rank(peer.weight))
            peer.offset = peer.current - peer.weight * self._picks
            heapq.heappush(rank.heap, (-peer.offset, peer.place, peer.entry, peer))
            self._calm_weight += peer.weight

    def disturbed(self, peer: Peer) -> None:
        """Take *peer* out of its heap: it fails, or a request must not go to it again."""
        if not peer.calm:
            return
        peer.current = peer.weight * self._picks + peer.offset
        peer.calm = False
        peer.entry += 1  # what is in the heap is stale now
        self._calm_weight -= peer.weight
        self._restless[peer.place] = peer

    def settled(self) -> None:
        """Write every peer's state into the peer."""
        for peer in self.peers:
            if peer.calm:
                peer.current = peer.weight * self._picks + peer.offset


def scheduler(peers: Sequence[Peer], rules: Rules) -> Plain:
    """Return the cheapest scheduler that picks as nginx does."""
    whole = all(p.weight == int(p.weight) and p.weight <= _MOST_EXACT for p in peers)
    few = len({p.weight for p in peers}) <= max(1, len(peers) // 2)
    return Ranked(peers, rules) if whole and few and not rules.max_conns else Plain(peers, rules)
