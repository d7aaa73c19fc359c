"""KV memory of one replica: contiguous ranges reserved whole, or blocks that grow with a sequence.

Both take a sequence in at admission and let it go at its end. Blocks of decoding sequences are not
counted one by one: sequences that cross into a new block in the same iteration form a class, and
what any number of iterations needs follows from the sizes of the classes.
"""

from dispatch.arena import ContiguousArena
from dispatch.arena_caching import CachingAllocator
from sim.sequence import DECODE, Sequence

Arena = ContiguousArena | CachingAllocator


class Leaks:
    """Memory of an arena that nobody gives back before it is all let go."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.addresses: list[int] = []
        self.held_bytes = 0.0

    def hold(self, total_bytes: float) -> bool:
        """Hold *total_bytes* in all; False where there is no room for them."""
        if total_bytes < self.held_bytes:
            for address in self.addresses:
                self.arena.free(address)
            self.clear()
        more = int(total_bytes - self.held_bytes)
        if more <= 0:
            return True
        leaked = self.arena.allocate(more)
        if leaked is None:
            return False
        self.addresses.append(leaked)
        self.held_bytes += more
        return True

    def clear(self) -> None:
        """Forget all: the arena is empty, or is about to be."""
        self.addresses.clear()
        self.held_bytes = 0.0


class ContiguousKv:
    """KV of prompt + max_tokens reserved as one range of an arena."""

    grows = False

    def __init__(self, pool_bytes: float, bytes_per_token: float, *, caching: bool = False) -> None:
        size = int(pool_bytes)
        self.arena: Arena = CachingAllocator(size) if caching else ContiguousArena(size)
        self.bytes_per_token = bytes_per_token
        self.leaks = Leaks(self.arena)

    def size(self, sequence: Sequence) -> int:
        """Return the bytes that *sequence* reserves."""
        return max(1, round((sequence.prompt + sequence.max_tokens) * self.bytes_per_token))

    def ever_fits(self, sequence: Sequence) -> bool:
        """Return whether an empty pool would hold *sequence*."""
        return self.size(sequence) <= self.arena.size_bytes

    def fits(self, sequence: Sequence, chunk: int, growth: int) -> bool:
        """Return whether *sequence* can be taken in now."""
        return self.size(sequence) <= self.arena.largest_block_bytes

    def take(self, sequence: Sequence, chunk: int, growth: int) -> bool:
        """Reserve the whole of *sequence*, once; False where no block is large enough."""
        if sequence.address >= 0:
            return True
        address = self.arena.allocate(self.size(sequence))
        if address is None:
            return False
        sequence.address = address
        return True

    def give_back(self, sequence: Sequence, chunk: int) -> None:
        """Nothing: what a chunk needs was reserved with all else."""

    def drop(self, sequence: Sequence, iteration: int) -> None:
        """Give the memory of *sequence* back."""
        self.arena.free(sequence.address)
        sequence.address = -1

    def leak(self, total_bytes: float) -> bool:
        """Hold *total_bytes* that nobody gives back; False where there is no room for them."""
        return self.leaks.hold(total_bytes)

    def clear(self) -> None:
        """Give everything back: the process is gone."""
        self.arena.clear()
        self.leaks.clear()

    def state(self) -> tuple[float, float, float]:
        """Return free bytes, the largest block, and fragmentation."""
        arena = self.arena
        return float(arena.free_bytes), float(arena.largest_block_bytes), arena.fragmentation

    @property
    def used_bytes(self) -> float:
        """Bytes reserved."""
        return float(self.arena.size_bytes - self.arena.free_bytes)

    @property
    def free_bytes(self) -> float:
        """Bytes not reserved."""
        return float(self.arena.free_bytes)

    @property
    def largest_block_bytes(self) -> float:
        """The largest contiguous free range."""
        return float(self.arena.largest_block_bytes)


class PagedKv:
    """Blocks of *block_tokens* tokens; decode growth is reckoned by classes."""

    grows = True

    def __init__(
        self, capacity_tokens: int, bytes_per_token: float, block_tokens: int, whole: bool
    ) -> None:
        self.block_tokens = block_tokens
        self.blocks = capacity_tokens // block_tokens
        self.free = self.blocks
        self.bytes_per_block = block_tokens * bytes_per_token
        self.whole = whole
        """Reserve prompt + max_tokens at admission: no sequence ever runs out."""
        self.classes = [0] * block_tokens
        self.members = 0

    def _count(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    def ever_fits(self, sequence: Sequence) -> bool:
        """Return whether an empty pool would hold the prompt and one token, or all of it."""
        later = sequence.max_tokens if self.whole else 1
        return self._count(sequence.prompt + later) <= self.blocks

    def need(self, sequence: Sequence, chunk: int) -> int:
        """Return the blocks that the next *chunk* tokens of a prefill need on top."""
        if self.whole:
            first = sequence.computed == sequence.cached
            return self._count(sequence.prompt + sequence.max_tokens) if first else 0
        size, computed = self.block_tokens, sequence.computed
        need = -(-(computed + chunk) // size)
        return need if computed == sequence.cached else need + -computed // size

    def fits(self, sequence: Sequence, chunk: int, growth: int) -> bool:
        """Return whether *chunk* tokens fit beside the *growth* of what decodes."""
        return self.need(sequence, chunk) <= self.free - growth

    def take(self, sequence: Sequence, chunk: int, growth: int) -> bool:
        """Reserve blocks for *chunk* more tokens of a prefill; False where too few are free."""
        need = self.need(sequence, chunk)
        if need > self.free - growth:
            return False
        self.free -= need
        return True

    def give_back(self, sequence: Sequence, chunk: int) -> None:
        """Undo :meth:`take` of *chunk* tokens that are not computed after all."""
        if not self.whole:
            computed = sequence.computed
            self.free += self._count(computed + chunk) - self._count(computed)

    def drop(self, sequence: Sequence, iteration: int) -> None:
        """Give the blocks of *sequence* back."""
        if self.whole:
            self.free += self._count(sequence.prompt + sequence.max_tokens)
        elif sequence.state == DECODE:
            self.free += -(-(sequence.rel + iteration) // self.block_tokens)
        else:
            self.free += self._count(sequence.computed)

    def join(self, sequence: Sequence) -> None:
        """Count a sequence that begins to decode."""
        if not self.whole:
            self.classes[-sequence.rel % self.block_tokens] += 1
            self.members += 1

    def leave(self, sequence: Sequence) -> None:
        """Count a decoding sequence out."""
        if not self.whole:
            self.classes[-sequence.rel % self.block_tokens] -= 1
            self.members -= 1

    def growth(self, iteration: int, count: int) -> int:
        """Return the blocks that *count* decode iterations from *iteration* on need."""
        size, classes = self.block_tokens, self.classes
        whole = count // size * self.members
        at = iteration % size
        end = at + count % size
        if end <= size:
            return whole + sum(classes[at:end])
        return whole + sum(classes[at:]) + sum(classes[: end - size])

    def next_growth(self, iteration: int) -> int:
        """Return the blocks that the one iteration after *iteration* needs."""
        return self.classes[iteration % self.block_tokens]

    def longest(self, iteration: int, limit: int) -> int:
        """Return how many iterations from *iteration* on fit in the free blocks, up to *limit*."""
        if (limit // self.block_tokens + 1) * self.members <= self.free:
            return limit  # each needs a block at most once in so many iterations
        if self.growth(iteration, limit) <= self.free:
            return limit
        low, high = 0, limit  # growth(low) fits, growth(high) does not
        while high - low > 1:
            middle = (low + high) // 2
            if self.growth(iteration, middle) <= self.free:
                low = middle
            else:
                high = middle
        return low

    def clear(self) -> None:
        """Give everything back: the process is gone."""
        self.free = self.blocks
        self.classes = [0] * self.block_tokens
        self.members = 0

    @property
    def used_bytes(self) -> float:
        """Bytes of the blocks in use."""
        return (self.blocks - self.free) * self.bytes_per_block

    @property
    def free_bytes(self) -> float:
        """Bytes of the free blocks."""
        return self.free * self.bytes_per_block

    @property
    def largest_block_bytes(self) -> float:
        """All that is free: any block serves."""
        return self.free * self.bytes_per_block


Kv = ContiguousKv | PagedKv
