"""Contiguous best fit and paged memory: blocks tile the arena, whatever comes and goes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.arena import ContiguousArena, PagedArena
from dispatch.errors import InputError, InvariantError

STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 200)), max_size=80)


def _filled(*sizes: int) -> tuple[ContiguousArena, list[int]]:
    arena = ContiguousArena(1000, align_bytes=1)
    taken = [arena.allocate(size) for size in sizes]
    assert None not in taken
    return arena, [a for a in taken if a is not None]


def test_the_smallest_hole_that_holds_the_request_is_taken() -> None:
    arena, at = _filled(100, 50, 30, 50, 100)
    arena.free(at[0])
    arena.free(at[2])
    assert arena.allocate(25) == at[2]


def test_of_equal_holes_the_lowest_address_is_taken() -> None:
    arena, at = _filled(50, 10, 50, 10)
    arena.free(at[2])
    arena.free(at[0])
    assert arena.allocate(50) == at[0]


def test_freed_neighbours_merge_at_once() -> None:
    arena, at = _filled(300, 300, 300)
    for address in (at[0], at[2], at[1]):
        arena.free(address)
    assert arena.largest_block_bytes == arena.free_bytes == 1000


def test_free_bytes_in_pieces_do_not_serve_a_large_request() -> None:
    arena, at = _filled(*[100] * 10)
    for address in at[::2]:
        arena.free(address)
    assert (arena.free_bytes, arena.largest_block_bytes) == (500, 100)
    assert arena.fragmentation == pytest.approx(0.8)
    assert arena.allocate(101) is None


def test_sizes_round_up_to_the_alignment() -> None:
    arena = ContiguousArena(4096, align_bytes=512)
    arena.allocate(1)
    assert arena.free_bytes == 4096 - 512


@pytest.mark.parametrize("size", [0, -1])
def test_nothing_and_less_cannot_be_asked_for(size: int) -> None:
    for arena in (ContiguousArena(1000), PagedArena(1000, 10)):
        with pytest.raises(InputError, match="ask for at least 1"):
            arena.allocate(size)


def test_a_range_is_given_back_only_once() -> None:
    for arena in (ContiguousArena(1000, 1), PagedArena(1000, 10)):
        address = arena.allocate(100)
        assert address is not None
        arena.free(address)
        with pytest.raises(InvariantError, match="nothing is allocated"):
            arena.free(address)


@given(STEPS)
def test_contiguous_blocks_always_tile_the_arena(steps: list[tuple[bool, int]]) -> None:
    arena = ContiguousArena(1000, 1)
    live: dict[int, int] = {}
    for give_back, size in steps:
        if give_back and live:
            address = sorted(live)[size % len(live)]
            del live[address]
            arena.free(address)
        else:
            largest = arena.largest_block_bytes
            got = arena.allocate(size)
            assert (got is None) == (size > largest)
            if got is not None:
                live[got] = size
        arena.check()
        assert arena.free_bytes == 1000 - sum(live.values())
    arena.clear()
    assert arena.largest_block_bytes == 1000


@given(STEPS)
def test_any_free_pages_serve(steps: list[tuple[bool, int]]) -> None:
    arena = PagedArena(1000, 10)
    live: dict[int, int] = {}
    for give_back, size in steps:
        if give_back and live:
            handle = sorted(live)[size % len(live)]
            del live[handle]
            arena.free(handle)
        else:
            pages = -(-size // 10)
            got = arena.allocate(size)
            assert (got is None) == (pages > 100 - sum(live.values()))
            if got is not None:
                live[got] = pages
        assert arena.free_pages == 100 - sum(live.values())
        assert arena.largest_block_bytes == arena.free_bytes
        assert arena.fragmentation == 0


def test_a_sequence_grows_by_pages_or_not_at_all() -> None:
    arena = PagedArena(100, 10)
    handle = arena.allocate(50)
    assert handle is not None
    assert arena.extend(handle, 5)
    assert not arena.extend(handle, 1)
    arena.free(handle)
    assert arena.free_pages == 10
