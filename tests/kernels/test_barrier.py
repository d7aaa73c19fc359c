"""The persistent kernel with its barriers really interleaved, and with each of them taken away."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch

import kernels.block
from kernels.interpreter.honest import Hooks
from kernels.interpreter.schedule import ORDERS, Deadlock, Schedule, interleaved
from kernels.launch import Workspace
from kernels.spec import BlockSpec, Tiling
from tests.kernels.blocks import GPT, LLAMA, WIDE_TILES, Case, assert_right, case, execute, expected

SMALL = BlockSpec(32, 2, 1, 16, 48)
# Enough tiles that every program has work in every phase.
TILES = Tiling(bm=16, bn=32, bk=64, bt=16, splits=3, least=16)
Around = Callable[[Hooks], AbstractContextManager[Any]]


def moved_by(schedule: Schedule) -> Around:
    return lambda hooks: interleaved(hooks, schedule)


def small(seed: int = 0) -> Case:
    return case(SMALL, [40, 3], seed=seed)


@pytest.mark.parametrize("spec", [LLAMA, GPT], ids=["llama", "gpt"])
def test_one_launch_equals_five_bit_for_bit(spec: BlockSpec) -> None:
    five = case(spec, [70, 0, -1], page=16)
    once = case(spec, [70, 0, -1], page=16)
    wanted = execute(five)
    found = execute(once, "mega", 3, around=moved_by(Schedule("random", 1)))
    assert torch.equal(found, wanted)
    assert_right(once, found)
    assert torch.equal(five.cache.k.view(torch.int16), once.cache.k.view(torch.int16))


@pytest.mark.parametrize("order", ORDERS)
def test_any_order_of_programs_gives_the_same_bits(order: str) -> None:
    wanted = execute(small(), tiling=TILES)
    for seed in (1, 2):
        schedule = Schedule(order, seed, chance=0.03)  # type: ignore[arg-type]
        found = execute(small(), "mega", 3, TILES, around=moved_by(schedule))
        assert torch.equal(found, wanted), schedule
        assert schedule.switches > 12  # four barriers of three programs at the least


def test_one_program_does_all_the_work_alone() -> None:
    assert torch.equal(execute(small(), "mega", 1, TILES), execute(small(), tiling=TILES))


def test_barrier_and_tickets_reset_themselves() -> None:
    space = Workspace(SMALL, 2, TILES, torch.device("cpu"))
    first = execute(small(), "mega", 3, TILES, space, moved_by(Schedule("reverse")))
    again = execute(small(), "mega", 2, TILES, space, moved_by(Schedule("random", 3)))
    assert torch.equal(first, again)
    assert not space.bar.any()
    assert not space.count.any()


class Without:
    """Stands for the barrier, but lets programs through at the *missing* one of each launch."""

    def __init__(self, missing: int) -> None:
        self.missing, self.real = missing, kernels.block.wait_for_all
        self.passed: dict[int, int] = {}

    def __call__(self, bar: Any) -> None:
        from triton.runtime.interpreter import interpreter_builder

        program = interpreter_builder.grid_idx[0]
        at = self.passed[program] = self.passed.get(program, -1) + 1
        if at != self.missing:
            self.real(bar)


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")
@pytest.mark.parametrize("missing", range(4))
def test_each_barrier_is_needed(missing: int, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = execute(small(), tiling=TILES)
    caught = []
    for schedule in (*(Schedule(order) for order in ORDERS), Schedule("random", 5, 0.05)):
        with monkeypatch.context() as patched:
            patched.setattr(kernels.block, "wait_for_all", Without(missing))
            found = execute(small(), "mega", 3, TILES, around=moved_by(schedule))
        caught.append(not torch.equal(found, wanted))
    assert sum(caught) >= 2, caught


def test_a_program_that_never_arrives_is_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(Without):
        def __call__(self, bar: Any) -> None:
            from triton.runtime.interpreter import interpreter_builder

            if interpreter_builder.grid_idx[0] != 1:
                self.real(bar)

    monkeypatch.setattr(kernels.block, "wait_for_all", Lazy(-1))
    with pytest.raises(Deadlock, match="wait for ever under Schedule"):
        execute(small(), "mega", 3, TILES, around=moved_by(Schedule("random", 2)))


def test_stale_scratch_would_hide_a_race_so_poison_is_what_shows_it() -> None:
    c = small()
    space = Workspace(SMALL, 2, TILES, c.x.device)
    execute(c, "mega", 3, TILES, space, moved_by(Schedule("random", 1)))
    assert not torch.isnan(space.mid).any()
    space.poison()
    assert all(torch.isnan(t).all() for t in space.scratch)


def test_a_failing_program_ends_the_launch_with_its_own_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(Without):
        def __call__(self, bar: Any) -> None:
            raise ValueError("broken on purpose")

    monkeypatch.setattr(kernels.block, "wait_for_all", Broken(-1))
    with pytest.raises(ValueError, match="broken on purpose"):
        execute(small(), "mega", 3, TILES, around=moved_by(Schedule("random", 2)))


def test_wide_tiles_and_narrow_tiles_agree() -> None:
    wide, narrow = small(), small()
    assert_right(wide, execute(wide, tiling=WIDE_TILES))
    assert_right(narrow, execute(narrow, tiling=TILES))
    assert expected(wide)[0].shape == expected(narrow)[0].shape
