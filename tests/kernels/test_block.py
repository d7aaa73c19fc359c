"""The decode block under the interpreter against float64: layouts, types, odd shapes, splits."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch.errors import InputError
from kernels.baselines import strong
from kernels.launch import Batch, Workspace, run
from kernels.spec import BlockSpec, Tiling
from tests.kernels.blocks import (
    GPT,
    LLAMA,
    NAN,
    WIDE_TILES,
    assert_right,
    case,
    error,
    execute,
    expected,
)
from tests.kernels.test_baselines import dense
from tests.strategies import block_specs

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spec", [LLAMA, GPT], ids=["llama", "gpt"])
@pytest.mark.parametrize("page", [0, 16], ids=["contiguous", "paged"])
def test_a_decode_is_what_float64_says(spec: BlockSpec, dtype: torch.dtype, page: int) -> None:
    c = case(spec, [70, 0, -1], dtype, page)
    assert_right(c, execute(c))


@settings(max_examples=6)
@given(
    block_specs(), st.sampled_from(DTYPES), st.sampled_from((0, 1, 7, 16)),
    st.lists(st.integers(-1, 70), min_size=1, max_size=3), st.integers(0, 2**20),
)  # fmt: skip
def test_any_shape_is_what_float64_says(
    spec: BlockSpec, dtype: torch.dtype, page: int, lengths: list[int], seed: int
) -> None:
    c = case(spec, lengths, dtype, page, seed=seed)
    assert_right(c, execute(c))


@pytest.mark.parametrize(("head_dim", "heads", "kv_heads"), [(80, 2, 1), (96, 2, 2), (16, 14, 2)])
def test_head_sizes_and_groups_that_are_no_power_of_two(
    head_dim: int, heads: int, kv_heads: int
) -> None:
    spec = BlockSpec(64, heads, kv_heads, head_dim, 96)
    c = case(spec, [40, 3], page=16)
    assert_right(c, execute(c))


def test_a_layer_norm_of_a_width_that_is_no_power_of_two_counts_no_masked_lane() -> None:
    c = case(replace(GPT, hidden=130), [4], torch.float32)
    c.x += 3.0  # a mean far from zero shows lanes that were counted
    assert_right(c, execute(c))


@pytest.mark.parametrize("length", [0, 1, 31, 32, 33, 95, 96, 97])
def test_lengths_about_the_border_of_a_split(length: int) -> None:
    spec = BlockSpec(32, 2, 1, 16, 32)
    c = case(spec, [length], torch.float32)
    assert_right(c, execute(c))


def test_padded_slots_change_nothing_even_where_they_hold_nan() -> None:
    c = case(LLAMA, [-1, 20, -1])
    c.x[0] = c.x[2] = NAN
    before = c.cache.k.clone()
    out = execute(c)
    assert_right(c, out)
    changed = (c.cache.k.view(torch.int16) != before.view(torch.int16)).any(-1).any(-1)
    assert int(changed.sum()) == 1  # the one token of the one live sequence


def test_a_row_alone_equals_the_row_in_a_batch_bit_for_bit() -> None:
    together = case(LLAMA, [70, 5, 33], seed=4)
    out = execute(together)
    for row, length in enumerate(together.lengths):
        lone = case(LLAMA, [70, 5, 33], seed=4)
        lone.cache.k_table = lone.cache.k_table[row : row + 1].clone()
        lone.cache.v_table = lone.cache.k_table
        lone.x, lone.lengths = lone.x[row : row + 1].clone(), [length]
        assert torch.equal(execute(lone)[0], out[row])


def test_a_second_launch_on_the_same_workspace_gives_the_same_bits() -> None:
    c = case(LLAMA, [70, 5])
    space = Workspace(LLAMA, 2, WIDE_TILES, c.x.device)
    first = execute(c, space=space)
    assert torch.equal(execute(c, space=space), first)
    assert not space.count.any()
    assert not space.bar.any()


def test_sixteen_bit_scratch_stays_within_the_limit() -> None:
    c = case(LLAMA, [70, 5])
    assert_right(c, execute(c, scratch=torch.bfloat16))


def test_bf16_is_no_worse_than_torchs_own_block_by_more_than_a_fifth() -> None:
    c = case(LLAMA, [70, 70], seed=9)
    wanted, _, _ = expected(c)
    ours = error(execute(c), wanted)
    theirs = error(strong(c.spec, c.weights, c.rope, c.x, dense(c)), wanted)
    assert ours <= 1.2 * theirs


def test_more_rows_than_a_tile_holds() -> None:
    c = case(BlockSpec(32, 2, 2, 16, 32), [3] * 18)
    assert_right(c, execute(c))


def test_what_does_not_fit_is_named() -> None:
    c = case(LLAMA, [4])
    space = Workspace(LLAMA, 1, WIDE_TILES, c.x.device)
    c.weights.down = c.weights.down[:, :-1].contiguous()
    batch = Batch.decode(torch.tensor([4]))
    with pytest.raises(InputError, match=r"down is \(96, 159\)"):
        run(c.spec, c.weights, c.rope, c.x, c.cache, batch, space, WIDE_TILES, "split5", 1)


def test_a_workspace_that_is_too_small_is_refused() -> None:
    c = case(LLAMA, [4, 5])
    space = Workspace(LLAMA, 1, WIDE_TILES, c.x.device)
    batch = Batch.decode(torch.tensor(c.lengths))
    with pytest.raises(InputError, match="workspace"):
        run(c.spec, c.weights, c.rope, c.x, c.cache, batch, space, WIDE_TILES, "split5", 1)


@pytest.mark.parametrize(("field", "value"), [("head_dim", 25), ("kv_heads", 3), ("norm", "batch")])
def test_shapes_that_no_kernel_has_are_refused(field: str, value: object) -> None:
    with pytest.raises(InputError, match=field.replace("kv_heads", "heads")):
        replace(LLAMA, **{field: value})


@given(st.integers(1, 200_000), st.integers(1, 64))
def test_splits_cover_a_context_once_and_none_is_empty(length: int, splits: int) -> None:
    tiling = Tiling(splits=splits)
    each, count = tiling.split_tokens(length), tiling.split_count(length)
    assert count <= splits
    assert (count - 1) * each < length <= count * each
