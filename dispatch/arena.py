"""The memory of one device as blocks with addresses: contiguous best fit, and paged.

Simulator and live engine use the same classes. Fragmentation = 1 - largest free block / free bytes.
"""

from typing import Protocol

from sortedcontainers import SortedDict, SortedList

from dispatch.arena_caching import CachingAllocator
from dispatch.errors import InputError, InvariantError

__all__ = ["Arena", "CachingAllocator", "ContiguousArena", "PagedArena", "fragmentation"]


class Arena(Protocol):
    """Memory that gives out ranges of addresses; sizes and addresses in bytes."""

    @property
    def free_bytes(self) -> int:
        """Bytes that are not given out."""
        ...

    @property
    def largest_block_bytes(self) -> int:
        """The most that one allocation could get now."""
        ...

    def allocate(self, size_bytes: int) -> int | None:
        """Return the address of a new range, or None where none is large enough."""
        ...

    def free(self, address: int) -> None:
        """Give a range back; raise InvariantError where none starts at *address*."""
        ...


def fragmentation(free_bytes: float, largest_block_bytes: float) -> float:
    """Return 1 - largest/free: 0 is one block, 1 is dust; 0 where nothing is free."""
    return 1.0 - largest_block_bytes / free_bytes if free_bytes > 0 else 0.0


class ContiguousArena:
    """Best fit: the smallest free block that holds the request, the lowest address among equals.

    Sizes round up to ``align_bytes``; freed neighbours merge at once.
    """

    def __init__(self, size_bytes: int, align_bytes: int = 512) -> None:
        if size_bytes < 0 or align_bytes < 1:
            raise InputError.at("arena", f"size {size_bytes}, alignment {align_bytes}")
        self.size_bytes = size_bytes // align_bytes * align_bytes
        self.align_bytes = align_bytes
        self.free_bytes = self.size_bytes
        self.allocated: dict[int, int] = {}
        self._by_address: SortedDict = SortedDict()  # free block: address -> size
        self._by_size: SortedList = SortedList()  # (size, address)
        if self.size_bytes:
            self._add(0, self.size_bytes)

    @property
    def largest_block_bytes(self) -> int:
        """The most that one allocation could get now."""
        return int(self._by_size[-1][0]) if self._by_size else 0

    @property
    def fragmentation(self) -> float:
        """1 - largest free block / free bytes."""
        return fragmentation(self.free_bytes, self.largest_block_bytes)

    def allocate(self, size_bytes: int) -> int | None:
        """Return the address of *size_bytes*, or None where no block is large enough."""
        if size_bytes <= 0:
            raise InputError.at("arena", f"asked for {size_bytes} bytes", "ask for at least 1")
        size = -(-size_bytes // self.align_bytes) * self.align_bytes
        at = self._by_size.bisect_left((size, -1))
        if at == len(self._by_size):
            return None
        block, address = self._by_size.pop(at)
        del self._by_address[address]
        if block > size:
            self._add(address + size, block - size)
        self.allocated[address] = size
        self.free_bytes -= size
        return int(address)

    def free(self, address: int) -> None:
        """Give a range back and merge it with free neighbours."""
        size = self.allocated.pop(address, None)
        if size is None:
            raise InvariantError(f"arena: nothing is allocated at {address}")
        self.free_bytes += size
        at = self._by_address.bisect_left(address)
        if at < len(self._by_address):
            after, after_size = self._by_address.peekitem(at)
            if after == address + size:
                self._drop(after, after_size)
                size += after_size
        if at > 0:
            before, before_size = self._by_address.peekitem(at - 1)
            if before + before_size == address:
                self._drop(before, before_size)
                address, size = before, size + before_size
        self._add(address, size)

    def clear(self) -> None:
        """Give everything back: the process that held it is gone."""
        for address in list(self.allocated):
            self.free(address)

    def _add(self, address: int, size: int) -> None:
        self._by_address[address] = size
        self._by_size.add((size, address))

    def _drop(self, address: int, size: int) -> None:
        del self._by_address[address]
        self._by_size.remove((size, address))

    def check(self) -> None:
        """Raise InvariantError unless the blocks tile the arena, and neighbours are merged."""
        spans = [(a, s, False) for a, s in self.allocated.items()]
        spans += [(a, s, True) for a, s in self._by_address.items()]
        at, was_free = 0, False
        for address, size, is_free in sorted(spans):
            if address != at or (is_free and was_free):
                raise InvariantError(f"arena: blocks overlap, leak or are not merged at {at}")
            at, was_free = address + size, is_free
        total = sum(self._by_address.values())
        if (
            at != self.size_bytes
            or total != self.free_bytes
            or len(self._by_size) != len(self._by_address)
        ):
            raise InvariantError(f"arena: {total} B free in blocks, {self.free_bytes} B booked")


class PagedArena:
    """Fixed pages, any of which serves: an allocation is a set of pages under one handle.

    Nothing is contiguous to the caller, so fragmentation is 0 and the largest block is all that is
    free. :meth:`extend` grows an allocation page by page, as a decoding sequence does.
    """

    def __init__(self, size_bytes: int, page_bytes: int) -> None:
        if page_bytes < 1 or size_bytes < 0:
            raise InputError.at("arena", f"size {size_bytes}, page {page_bytes}")
        self.page_bytes = page_bytes
        self.pages = size_bytes // page_bytes
        self.size_bytes = self.pages * page_bytes
        self.free_pages = self.pages
        self.allocated: dict[int, int] = {}  # handle -> pages
        self._next = 0

    @property
    def free_bytes(self) -> int:
        """Bytes of the free pages."""
        return self.free_pages * self.page_bytes

    @property
    def largest_block_bytes(self) -> int:
        """All that is free: any pages serve."""
        return self.free_bytes

    @property
    def fragmentation(self) -> float:
        """Always 0."""
        return 0.0

    def pages_for(self, size_bytes: int) -> int:
        """Return how many pages hold *size_bytes*."""
        return -(-size_bytes // self.page_bytes)

    def allocate(self, size_bytes: int) -> int | None:
        """Return a handle to pages for *size_bytes*, or None where too few are free."""
        if size_bytes <= 0:
            raise InputError.at("arena", f"asked for {size_bytes} bytes", "ask for at least 1")
        pages = self.pages_for(size_bytes)
        if pages > self.free_pages:
            return None
        self._next += 1
        self.allocated[self._next] = pages
        self.free_pages -= pages
        return self._next

    def extend(self, address: int, pages: int) -> bool:
        """Add *pages* to an allocation; False, and no change, where too few are free."""
        if address not in self.allocated:
            raise InvariantError(f"arena: nothing is allocated under {address}")
        if pages > self.free_pages:
            return False
        self.allocated[address] += pages
        self.free_pages -= pages
        return True

    def free(self, address: int) -> None:
        """Give the pages of one allocation back."""
        pages = self.allocated.pop(address, None)
        if pages is None:
            raise InvariantError(f"arena: nothing is allocated under {address}")
        self.free_pages += pages

    def clear(self) -> None:
        """Give everything back."""
        self.allocated.clear()
        self.free_pages = self.pages
