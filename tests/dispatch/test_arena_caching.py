"""The model of PyTorch's caching allocator against goldens worked out from its source."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.arena import CachingAllocator

MIB = 1 << 20


def _mib(value: float) -> int:
    return int(value * MIB)


def _take(arena: CachingAllocator, *sizes: float) -> list[int]:
    taken = [arena.allocate(_mib(s)) for s in sizes]
    assert None not in taken
    return [a for a in taken if a is not None]


def test_small_freed_segments_do_not_serve_a_larger_request() -> None:
    arena = CachingAllocator(1 << 40)
    for address in _take(arena, *[16] * 8):
        arena.free(address)
    _take(arena, *[32] * 4)
    assert arena.reserved_bytes == 256 * MIB


def test_large_freed_segments_serve_smaller_requests() -> None:
    arena = CachingAllocator(1 << 40)
    for address in _take(arena, *[32] * 4):
        arena.free(address)
    _take(arena, *[16] * 8)
    assert arena.reserved_bytes == 128 * MIB


@pytest.mark.parametrize(
    ("size_mib", "segment_mib", "inactive_mib"),
    [(1.5, 20, 18.5), (12.25, 14, 1.75), (13.5, 14, 0)],
)
def test_a_block_is_split_only_where_more_than_one_mib_remains(
    size_mib: float, segment_mib: float, inactive_mib: float
) -> None:
    arena = CachingAllocator(1 << 40)
    _take(arena, size_mib)
    assert arena.reserved_bytes == _mib(segment_mib)
    assert arena.reserved_bytes - arena.allocated_bytes == _mib(inactive_mib)


def test_600_bytes_take_a_block_of_1024_in_a_two_mib_segment() -> None:
    arena = CachingAllocator(1 << 40)
    arena.allocate(600)
    assert (arena.allocated_bytes, arena.reserved_bytes) == (1024, 2 * MIB)


def test_a_cached_segment_is_given_back_before_out_of_memory() -> None:
    arena = CachingAllocator(96 * MIB)
    first, _ = _take(arena, 40, 40)
    arena.free(first)
    _take(arena, 50)
    assert (arena.retries, arena.ooms, arena.reserved_bytes) == (1, 0, 90 * MIB)


def _split_segment() -> CachingAllocator:
    arena = CachingAllocator(100 * MIB)
    (whole,) = _take(arena, 40)
    arena.free(whole)
    first, _ = _take(arena, 20, 20)
    arena.free(first)
    return arena


def test_a_live_split_pins_its_segment_so_that_free_bytes_do_not_serve() -> None:
    arena = _split_segment()
    assert arena.free_bytes == 80 * MIB
    assert arena.allocate(61 * MIB) is None
    assert arena.ooms == 1


def test_what_the_driver_still_has_serves_beside_a_pinned_segment() -> None:
    assert _split_segment().allocate(60 * MIB) is not None


def test_the_largest_block_beside_a_pinned_segment_is_what_can_be_allocated() -> None:
    arena = _split_segment()
    assert arena.largest_block_bytes == 60 * MIB
    assert arena.fragmentation == pytest.approx(0.25)


@pytest.mark.parametrize(("size_mib", "times"), [(9, 6), (11, 5)])
def test_a_cap_of_64_mib_holds_as_many_blocks_as_segments_allow(size_mib: int, times: int) -> None:
    arena = CachingAllocator(64 * MIB)
    _take(arena, *[size_mib] * times)
    assert arena.allocate(size_mib * MIB) is None


def test_many_mib_cached_in_small_pieces_do_not_serve_a_request_of_less() -> None:
    arena = CachingAllocator(8 * 1024 * MIB)  # 1.86 GiB fails with about 5 GiB cached
    for address in _take(arena, *[1024] * 7):
        arena.free(address)
    for large in _take(arena, *[700, 300] * 7)[::2]:
        arena.free(large)  # what stays pins every segment
    assert arena.free_bytes > 5 * 1024 * MIB
    assert arena.allocate(_mib(1.86 * 1024)) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40 * MIB)), max_size=60))
def test_blocks_always_tile_their_segments(steps: list[tuple[bool, int]]) -> None:
    arena = CachingAllocator(256 * MIB)
    live: list[int] = []
    for give_back, size in steps:
        if give_back and live:
            arena.free(live.pop(size % len(live)))
        elif (address := arena.allocate(size)) is not None:
            live.append(address)
        arena.check()


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40 * MIB)), max_size=40))
def test_a_request_of_the_largest_block_never_fails(steps: list[tuple[bool, int]]) -> None:
    arena = CachingAllocator(256 * MIB)
    live: list[int] = []
    for give_back, size in steps:
        if give_back and live:
            arena.free(live.pop(size % len(live)))
        elif (address := arena.allocate(size)) is not None:
            live.append(address)
    if largest := arena.largest_block_bytes:
        assert arena.allocate(largest) is not None
