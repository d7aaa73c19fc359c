"""PyTorch's CUDA caching allocator as a model: segments, best fit, splits, retries, OOM.

Rules and constants are those of c10/cuda/CUDACachingAllocator.cpp (torch 2.14.1 keeps the same
AllocatorConfig.h): sizes round to 512 B; requests up to 1 MiB come from 2 MiB segments, below
10 MiB from 20 MiB segments, above from segments rounded to 2 MiB; one stream; no expandable
segments; no maximum split size; no garbage collection.
"""

from dataclasses import dataclass
from typing import Final

from sortedcontainers import SortedDict, SortedList

from dispatch.errors import InputError, InvariantError

MIB: Final = 1 << 20
MIN_BLOCK: Final = 512
SMALL_SIZE: Final = MIB
SMALL_SEGMENT: Final = 2 * MIB
LARGE_SEGMENT: Final = 20 * MIB
MIN_LARGE: Final = 10 * MIB
ROUND_LARGE: Final = 2 * MIB


def rounded(size_bytes: int) -> int:
    """Return the block size that a request of *size_bytes* takes."""
    return max(MIN_BLOCK, -(-size_bytes // MIN_BLOCK) * MIN_BLOCK)


def segment_size(block_bytes: int) -> int:
    """Return the size of a new segment for a block of *block_bytes*."""
    if block_bytes <= SMALL_SIZE:
        return SMALL_SEGMENT
    if block_bytes < MIN_LARGE:
        return LARGE_SEGMENT
    return -(-block_bytes // ROUND_LARGE) * ROUND_LARGE


@dataclass(slots=True)
class _Block:
    """A block of a segment; ``before`` and ``after`` are its neighbours there."""

    address: int
    size: int
    segment: int  # address of the segment
    small: bool
    used: bool = False
    before: "_Block | None" = None
    after: "_Block | None" = None


class CachingAllocator:
    """One stream of PyTorch's allocator over a driver that has *size_bytes* to give.

    ``allocate`` tries, in this order: the smallest cached block that fits (lowest address among
    equals), a new segment from the driver, a new segment after giving every unsplit cached segment
    back (``retries``), and then fails (``ooms``). Free bytes = the driver's + all inactive blocks.
    """

    def __init__(self, size_bytes: int) -> None:
        if size_bytes < 0:
            raise InputError.at("allocator", f"size {size_bytes}", "give at least 0")
        self.size_bytes = size_bytes
        self.reserved_bytes = 0
        self.allocated_bytes = 0
        self.retries = 0
        self.ooms = 0
        self.allocated: dict[int, _Block] = {}
        self._cached = {small: SortedList(key=lambda b: (b.size, b.address)) for small in (0, 1)}
        self._segments: SortedDict = SortedDict()  # address -> size; virtual, never reused
        self._next_address = 0

    @property
    def driver_free_bytes(self) -> int:
        """Bytes that the driver still has."""
        return self.size_bytes - self.reserved_bytes

    @property
    def free_bytes(self) -> int:
        """The driver's bytes and those of inactive blocks."""
        return self.size_bytes - self.allocated_bytes

    @property
    def largest_block_bytes(self) -> int:
        """The largest large-pool request that would succeed now, giving cached segments back too.

        Before a flush: the driver's bytes rounded down to 2 MiB, or the largest inactive block;
        after it: the driver's bytes and every unsplit cached segment.
        """
        large = self._cached[0]
        flushed = self.driver_free_bytes + sum(s for _, s in self._unsplit())
        flushed -= flushed % ROUND_LARGE
        if flushed < LARGE_SEGMENT:  # requests below 10 MiB need a whole 20 MiB segment
            flushed = flushed if flushed >= MIN_LARGE else 0
        return max(flushed, large[-1].size if large else 0)

    @property
    def inactive_split_bytes(self) -> int:
        """Free bytes inside partly used segments, which cannot be given back."""
        blocks = [b for pool in self._cached.values() for b in pool]
        return sum(b.size for b in blocks if b.before is not None or b.after is not None)

    @property
    def fragmentation(self) -> float:
        """1 - largest block / free bytes; 0 where nothing is free."""
        free = self.free_bytes
        return 1.0 - self.largest_block_bytes / free if free > 0 else 0.0

    def allocate(self, size_bytes: int) -> int | None:
        """Return the address of a block for *size_bytes*, or None: CUDA out of memory."""
        if size_bytes <= 0:
            raise InputError.at("allocator", f"asked for {size_bytes} bytes", "ask for at least 1")
        size = rounded(size_bytes)
        small = size <= SMALL_SIZE
        block = self._best_fit(size, small) or self._new_segment(size, small)
        if block is None:
            self.retries += 1
            self._flush()
            block = self._new_segment(size, small)
        if block is None:
            self.ooms += 1
            return None
        self._split(block, size)
        block.used = True
        self.allocated[block.address] = block
        self.allocated_bytes += block.size
        return block.address

    def free(self, address: int) -> None:
        """Give a block back to the cache and merge it with free neighbours of its segment."""
        block = self.allocated.pop(address, None)
        if block is None:
            raise InvariantError(f"allocator: nothing is allocated at {address}")
        block.used = False
        self.allocated_bytes -= block.size
        pool = self._cached[block.small]
        before, after = block.before, block.after
        if before is not None and not before.used:
            pool.remove(before)
            before.size += block.size
            before.after = after
            if after is not None:
                after.before = before
            block = before
        if after is not None and not after.used:
            pool.remove(after)
            block.size += after.size
            block.after = after.after
            if block.after is not None:
                block.after.before = block
        pool.add(block)

    def clear(self) -> None:
        """Give everything back: the process that held it is gone."""
        self.allocated.clear()
        self._segments.clear()
        for pool in self._cached.values():
            pool.clear()
        self.reserved_bytes = self.allocated_bytes = 0

    def empty_cache(self) -> None:
        """Give every unsplit cached segment back to the driver."""
        self._flush()

    def segments(self) -> list[tuple[int, int]]:
        """Return (address, size) of every segment."""
        return list(self._segments.items())

    def _best_fit(self, size: int, small: bool) -> _Block | None:
        pool = self._cached[small]
        at = pool.bisect_key_left((size, -1))
        return pool.pop(at) if at < len(pool) else None

    def _new_segment(self, size: int, small: bool) -> _Block | None:
        whole = segment_size(size)
        if whole > self.driver_free_bytes:
            return None
        self.reserved_bytes += whole
        address = self._next_address
        self._next_address += whole
        self._segments[address] = whole
        return _Block(address, whole, address, small)

    def _split(self, block: _Block, size: int) -> None:
        rest = block.size - size
        if rest < MIN_BLOCK if block.small else rest <= SMALL_SIZE:
            return
        tail = _Block(block.address + size, rest, block.segment, block.small)
        tail.before, tail.after = block, block.after
        if block.after is not None:
            block.after.before = tail
        block.after, block.size = tail, size
        self._cached[block.small].add(tail)

    def _unsplit(self) -> list[tuple[_Block, int]]:
        whole = []
        for pool in self._cached.values():
            whole += [(b, b.size) for b in pool if b.before is None and b.after is None]
        return whole

    def _flush(self) -> None:
        for block, size in self._unsplit():
            self._cached[block.small].remove(block)
            del self._segments[block.segment]
            self.reserved_bytes -= size

    def check(self) -> None:
        """Raise InvariantError unless blocks tile their segments and the counts add up."""
        inactive = sum(b.size for pool in self._cached.values() for b in pool)
        if self.allocated_bytes != sum(b.size for b in self.allocated.values()):
            raise InvariantError("allocator: allocated bytes do not add up")
        if inactive + self.allocated_bytes != self.reserved_bytes:
            raise InvariantError("allocator: segments are not tiled by their blocks")
        if not self.reserved_bytes == sum(self._segments.values()) <= self.size_bytes:
            raise InvariantError("allocator: more is reserved than the driver has")
