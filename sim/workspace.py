"""Activation memory of an iteration, taken from PyTorch's caching allocator and given back.

With contiguous KV both live in one allocator, so that the cache of one is in the way of the other;
under paged KV the pool is one allocation at the start, and the workspace has what is left.
"""

from dispatch.arena_caching import CachingAllocator
from dispatch.hardware import Model
from dispatch.hardware.plans import workspace_bytes


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
