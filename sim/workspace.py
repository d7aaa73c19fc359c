"""What a replica has beside its weights and KV: activation memory, and what nobody has taken.

With contiguous KV the activations of an iteration come from the allocator of the KV, so that the
cache of one is in the way of the other. Under paged KV the pool is one allocation of the start and
never fragments; what does are the segments beside it, which all else comes from.
"""

from bisect import bisect_right

from dispatch.arena import fragmentation
from dispatch.arena_caching import CachingAllocator
from dispatch.hardware import Model
from dispatch.hardware.plans import workspace_bytes
from sim.memory import Leaks


class Workspace:
    """The workspace of iterations with prompts; decode iterations run in their graph's own pool."""

    def __init__(
        self, arena: CachingAllocator, model: Model, plan: str, tp: int, max_seqs: int
    ) -> None:
        self.arena = arena
        self.model, self.plan, self.tp, self.max_seqs = model, plan, tp, max_seqs
        self.address: int | None = None

    def size(self, tokens: int) -> int:
        """Return the bytes that an iteration of *tokens* tokens needs, on all GPUs."""
        return int(workspace_bytes(self.model, self.plan, self.tp, tokens, self.max_seqs) * self.tp)

    def take(self, tokens: int) -> bool:
        """Allocate for an iteration; False: CUDA out of memory, after the allocator's retry."""
        self.address = self.arena.allocate(self.size(tokens))
        return self.address is not None

    def free(self) -> None:
        """Give back what the iteration took."""
        if self.address is not None:
            self.arena.free(self.address)
            self.address = None

    def clear(self) -> None:
        """The process is gone, and the allocator with it."""
        self.address = None


class Segments:
    """The memory beside a paged pool: its free bytes and largest block, as a worker would see them.

    *slack_bytes* is what the engine leaves alone. Where it reserves its workspace at the start,
    nothing else is free; with an *arena* of its own activations come and go there, slack included:
    an engine's share of the memory sizes its pool and does not bind its allocator.
    """

    def __init__(self, slack_bytes: float, arena: CachingAllocator | None) -> None:
        self.slack_bytes = slack_bytes
        self.arena = arena
        self._leaks = None if arena is None else Leaks(arena)
        self._left: list[tuple[int, float]] = [(0, slack_bytes)]  # of the slack, from when on

    def leak(self, total_bytes: float, now: int) -> bool:
        """Hold *total_bytes* that nobody gives back; False where there is no room for them."""
        if self._leaks is not None:
            return self._leaks.hold(total_bytes)
        self._left.append((now, max(0.0, self.slack_bytes - total_bytes)))
        return total_bytes <= self.slack_bytes

    def clear(self, now: int) -> None:
        """Give everything back: the process is gone."""
        if self.arena is not None and self._leaks is not None:
            self.arena.clear()
            self._leaks.clear()
        elif self._left[-1][1] != self.slack_bytes:
            self._left.append((now, self.slack_bytes))

    def state(self) -> tuple[float, float, float]:
        """Return free bytes, the largest block, and fragmentation."""
        if self.arena is None:
            left = self._left[-1][1]
            return left, left, 0.0
        free, block = float(self.arena.free_bytes), float(self.arena.largest_block_bytes)
        return free, block, fragmentation(free, block)

    def left_at(self, when: int) -> float:
        """Return the free bytes at *when* where no arena hands them out: one block."""
        return self._left[bisect_right(self._left, when, key=lambda mark: mark[0]) - 1][1]

    def settled(self, when: int) -> bool:
        """Return whether :meth:`left_at` *when* is still true."""
        return self._left[-1][0] <= when
