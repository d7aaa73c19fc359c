"""Prompts: causal flash attention over paged and contiguous KV, chunks after a past."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.spec import BlockSpec
from tests.kernels.blocks import GPT, LLAMA, assert_right, case, execute
from tests.strategies import block_specs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("spec", [LLAMA, GPT], ids=["llama", "gpt"])
def test_a_pass_of_prompts_chunks_and_decodes_is_what_float64_says(
    spec: BlockSpec, dtype: torch.dtype
) -> None:
    c = case(spec, [0, 21, 33], dtype, page=16, new=[20, 13, 1])
    assert_right(c, execute(c, "prefill"))


@settings(max_examples=6)
@given(
    block_specs(), st.sampled_from((0, 5, 16)),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=2),
    st.integers(0, 2**20),
)  # fmt: skip
def test_any_prompt_is_what_float64_says(
    spec: BlockSpec, page: int, parts: list[tuple[int, int]], seed: int
) -> None:
    past, new = [p for p, _ in parts], [n for _, n in parts]
    c = case(spec, past, torch.float32, page, new, seed)
    assert_right(c, execute(c, "prefill"))


def test_a_prompt_in_two_chunks_equals_the_prompt_in_one() -> None:
    whole = case(LLAMA, [0], torch.float32, page=16, new=[40], seed=3)
    out = execute(whole, "prefill")
    parts = case(LLAMA, [0], torch.float32, page=16, new=[40], seed=3)
    x = parts.x
    parts.x, parts.new = x[:24].clone(), [24]
    first = execute(parts, "prefill")
    parts.x, parts.new, parts.lengths = x[24:].clone(), [16], [24]
    torch.testing.assert_close(torch.cat([first, execute(parts, "prefill")]), out)
