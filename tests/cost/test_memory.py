"""Where the bytes of a replica go, by the reservation rule of the engine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch import hardware
from dispatch.hardware import memory_plan

LLAMA8 = hardware.model("llama-3.1-8b")


def test_kv_capacity_is_what_vllm_printed_on_an_rtx_4090() -> None:
    """2,588 blocks of 16 tokens: vLLM 0.19, bf16, 256 sequences, 2,048 tokens, 0.9 of the card."""
    plan = memory_plan(
        hardware.gpu("RTX-4090"), LLAMA8, "bf16", max_batched_tokens=2048, max_num_seqs=256
    )
    assert plan.capacity_tokens == 41_408


def test_a_16_gb_v100_cannot_hold_8_billion_parameters_at_16_bits() -> None:
    assert not memory_plan(hardware.gpu("V100-16G"), LLAMA8, "fp16").fits
    assert memory_plan(hardware.gpu("V100-16G"), LLAMA8, "int4").fits


def test_weights_of_70_billion_parameters_take_138_gb_at_16_bits() -> None:
    plan = memory_plan(hardware.gpu("A100-80G"), hardware.model("llama-2-70b"), tp=2)
    assert plan.weights_bytes == pytest.approx(137.95e9, rel=1e-3)


def test_scores_in_memory_need_the_square_of_the_prompt() -> None:
    card, shape = hardware.gpu("A100-80G"), hardware.model("llama-2-13b")
    short = memory_plan(card, shape, kernel_plan="three_stage", max_batched_tokens=2048)
    long = memory_plan(card, shape, kernel_plan="three_stage", max_batched_tokens=4096)
    flash = memory_plan(card, shape, kernel_plan="fused", max_batched_tokens=4096)
    scores = 3 * shape.heads * 2  # three copies of 16-bit scores a head
    assert long.workspace_bytes - short.workspace_bytes >= scores * (4096**2 - 2048**2)
    assert flash.workspace_bytes < scores * 4096**2


@given(
    ratio=st.floats(0.3, 1.0), more=st.floats(0.0, 0.5), tokens=st.integers(256, 8192),
    extra=st.integers(0, 8192), tp=st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip
def test_more_memory_or_less_work_never_leaves_less_cache(
    ratio: float, more: float, tokens: int, extra: int, tp: int
) -> None:
    card = hardware.gpu("A100-40G")

    def capacity(share: float, batched: int) -> int:
        return memory_plan(
            card, LLAMA8, tp=tp, utilization_ratio=share, max_batched_tokens=batched
        ).capacity_tokens

    assert capacity(min(1.0, ratio + more), tokens) >= capacity(ratio, tokens)
    assert capacity(ratio, tokens + extra) <= capacity(ratio, tokens)


@given(st.sampled_from(sorted(hardware.gpus())), st.sampled_from([1, 2, 4]))
def test_the_parts_of_a_plan_stay_within_its_budget(name: str, tp: int) -> None:
    plan = memory_plan(hardware.gpu(name), LLAMA8, tp=tp)
    if plan.fits:
        parts = plan.weights_bytes + plan.context_bytes + plan.workspace_bytes + plan.kv_pool_bytes
        assert parts <= plan.budget_bytes
        assert plan.capacity_tokens % plan.block_tokens == 0
