"""The prefix cache of one replica: which leading blocks of a prompt need no computing.

Blocks are the trace's (512 tokens, or as it says), known by their prefix hashes. A request is
matched when it is admitted; its blocks are then touched, head to tail, and those beyond the
capacity evicted.
"""

from typing import Literal

from dispatch.prefix_cache import PrefixCache
from sim.memory import PagedKv
from sim.sequence import Sequence


class Prefixes:
    """What of earlier prompts is still there.

    With *blocks* the cache is a store of that size beside the KV pool. Without, it lives in what
    the pool has free: what running requests hold themselves cannot be evicted, all else goes as
    soon as it is needed. A running request holds its whole context, shared blocks included: an
    engine that copies them. One that shares them is :mod:`sim.sharing`.
    """

    def __init__(
        self, evict: Literal["lru", "lfu", "length"], blocks: int | None, kv: PagedKv | None
    ) -> None:
        self.cache = PrefixCache(blocks, evict)
        self.kv = kv
        self.held_tokens = 0  # of the cached blocks of requests that run
        self.block_tokens = 512
        self.asked = self.hit = 0  # blocks
        self.asked_tokens = self.hit_tokens = 0
        self._found = 0

    def match(self, sequence: Sequence) -> None:
        """Let *sequence* begin after the blocks that are there, at most one token short of all."""
        self.block_tokens = sequence.block_tokens
        self._found = self.cache.match(sequence.hashes)
        found = min(self._found * sequence.block_tokens, sequence.prompt - 1)
        sequence.computed = sequence.cached = found

    def admit(self, sequence: Sequence) -> None:
        """Count the hit of *sequence*, which was just matched, and take its blocks in."""
        self._count_hit(sequence)
        self.held_tokens += sequence.prompt
        if self.kv is not None:
            self._fit()
        self.cache.touch(sequence.hashes)

    def _count_hit(self, sequence: Sequence) -> None:
        if sequence.preemptions == 0:
            self.asked += len(sequence.hashes)
            self.hit += self._found
            self.asked_tokens += sequence.prompt
            self.hit_tokens += min(self._found * sequence.block_tokens, sequence.prompt)

    def trim(self, sequence: Sequence) -> None:
        """*sequence* lets go of its memory: until now it was not free for the cache."""
        if not sequence.hashes:
            return
        if self.kv is not None:
            self._fit()
            self.cache.touch(())
        self.held_tokens -= sequence.prompt

    def _fit(self) -> None:
        assert self.kv is not None
        room = self.kv.free * self.kv.block_tokens + self.held_tokens
        self.cache.capacity_blocks = max(0, room // self.block_tokens)

    def clear(self) -> None:
        """Forget everything, as a restart does."""
        self.cache.clear()
        self.held_tokens = 0
