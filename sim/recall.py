"""Two rules of vLLM's scheduler about preempted requests and full memory (as of 0.19).

*Reserve*: a request is let in only where blocks for all of its prompt are free, not only for its
first chunk (``scheduler_reserve_full_isl``). *Recall*: blocks of a preempted request stay readable
until others need them, as its own prefix cache (``enable_prefix_caching``). Free blocks queue up
oldest first, a request's last block before its first; so what is left of it follows from counts
alone, without a list of blocks.
"""

from sim.memory import PagedKv
from sim.prefixes import Prefixes
from sim.sequence import DECODE, Sequence


class RecallKv(PagedKv):
    """Paged KV that reserves whole prompts and remembers what preempted requests left behind."""

    def __init__(
        self, capacity_tokens: int, bytes_per_token: float, block_tokens: int, reserve: bool,
        recall: bool,
    ) -> None:  # fmt: skip
        super().__init__(capacity_tokens, bytes_per_token, block_tokens, whole=False)
        self.reserve, self.recall = reserve, recall
        self.returned = 0  # blocks given back so far
        self.left: dict[Sequence, tuple[int, int, int]] = {}
        """Of a preempted sequence: free blocks before its own, blocks taken till then, its own."""
        self.revived: dict[Sequence, int] = {}  # blocks that a sequence found again, uncharged yet

    @property
    def taken(self) -> int:
        """Blocks taken from the free queue so far."""
        return self.returned - self.free

    def surviving(self, sequence: Sequence) -> int:
        """Return how many leading blocks of a preempted *sequence* nobody has overwritten."""
        mark = self.left.get(sequence)
        if mark is None:
            return 0
        before, taken, own = mark
        gone = max(0, self.taken - taken - before)
        return max(0, min(own - gone, (sequence.target - 1) // self.block_tokens))

    def need(self, sequence: Sequence, chunk: int) -> int:
        """Return the blocks to take for the next *chunk* tokens; found ones leave the queue too."""
        found = self.revived.get(sequence, 0)
        return super().need(sequence, chunk) + found

    def fits(self, sequence: Sequence, chunk: int, growth: int) -> bool:
        """Return whether *sequence* may take its next *chunk* tokens."""
        starts = sequence not in self.revived and sequence.computed == sequence.cached
        if self.reserve and (starts or sequence in self.revived):
            return self._count(sequence.target) <= self.free - growth
        return super().fits(sequence, chunk, growth)

    def take(self, sequence: Sequence, chunk: int, growth: int) -> bool:
        """Reserve blocks for *chunk* more tokens of a prefill; False where too few are free."""
        if not self.fits(sequence, chunk, growth) or not super().take(sequence, chunk, growth):
            return False
        self.revived.pop(sequence, None)
        self.left.pop(sequence, None)
        return True

    def drop(self, sequence: Sequence, iteration: int) -> None:
        """Give the blocks of *sequence* back; a preempted one may find them again."""
        before, taken = self.free, self.taken
        super().drop(sequence, iteration)
        own = self.free - before
        self.returned += own
        ended = sequence.state == DECODE and sequence.finish_at <= iteration
        if self.recall and not ended and sequence.owner is not None:
            self.left[sequence] = (before, taken, own)

    def clear(self) -> None:
        """Give everything back: the process is gone."""
        super().clear()
        self.returned = 0
        self.left.clear()
        self.revived.clear()


class Recall(Prefixes):
    """What an engine asks for a prefix: here, what a preempted sequence left behind itself."""

    def __init__(self, kv: RecallKv) -> None:
        super().__init__("lru", 0, None)
        self.recall_kv = kv

    def match(self, sequence: Sequence) -> None:
        """Let *sequence* go on after the blocks of its own that are still there."""
        kv = self.recall_kv
        found = kv.surviving(sequence)
        kv.revived[sequence] = found
        sequence.computed = found * kv.block_tokens

    def admit(self, sequence: Sequence) -> None:
        """Nothing: no other request shares its blocks."""

    def trim(self, sequence: Sequence) -> None:
        """Nothing: the memory itself keeps count."""

    def clear(self) -> None:
        """Nothing: the memory itself forgets."""
