"""Operators against physics: nothing beats the card, more work is never quicker."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch import hardware
from dispatch.errors import UnknownNameError
from dispatch.hardware import calibration, collectives, operators, plan

FITTED = [("A100-80G", "vllm"), ("H100-80G", "vllm"), ("V100-PCIE-16G", "vllm"), ("H200", "vllm"),
          ("A100-80G", "vidur"), ("H100-80G", "vidur"), ("RTX-4090", "vllm"),
          ("A100-40G", "helix"), ("V100-16G", "helix"), ("A100-80G", "eager-2023"),
          ("H100-80G", "eager-2023")]  # fmt: skip
cards = st.sampled_from(FITTED)
sizes = st.integers(1, 16384)


def constants(name: str, stack: str) -> tuple[hardware.Gpu, hardware.Calibration]:
    card = hardware.gpu(name)
    return card, calibration(card, "strong", stack)


@pytest.mark.parametrize(("name", "stack"), FITTED)
def test_no_gemm_beats_the_peak_or_the_bandwidth_of_its_card(name: str, stack: str) -> None:
    """Five per cent over the datasheet are allowed: cards clock above their stated boost."""
    card, cal = constants(name, stack)
    m, n, k = (np.array(x, dtype=float) for x in np.meshgrid(
        [1, 16, 128, 1024, 8192], [1024, 8192, 28672], [1024, 8192, 28672]
    ))  # fmt: skip
    time = operators.gemm_s(card, cal.gemm, m, n, k, card.flops["fp16"])
    assert (time >= 2 * m * n * k / card.flops["fp16"] / 1.05).all()
    assert (time >= 2 * n * k / card.bandwidth_bytes_per_s / 1.05).all()


@given(cards, sizes, sizes, sizes, st.integers(1, 4096))
def test_a_larger_gemm_is_never_quicker(
    card: tuple[str, str], m: int, n: int, k: int, more: int
) -> None:
    gpu, cal = constants(*card)

    def time(rows: int, columns: int, width: float = 2.0) -> float:
        return float(operators.gemm_s(gpu, cal.gemm, rows, columns, k, gpu.flops["fp16"], width))

    assert time(m + more, n) >= time(m, n) > 0
    assert time(m, n + more) >= time(m, n)
    assert time(m, n, 1.0) <= time(m, n, 2.0)


@given(cards, st.integers(1, 128), st.sampled_from([(8, 8), (32, 8), (64, 8), (16, 1)]),
       st.integers(1, 32768), st.integers(1, 8192))  # fmt: skip
def test_more_context_or_more_sequences_never_decode_quicker(
    card: tuple[str, str], batch: int, heads: tuple[int, int], context: int, more: int
) -> None:
    gpu, cal = constants(*card)

    def time(sequences: int, tokens: int) -> float:
        return float(
            operators.decode_attention_s(gpu, cal.attention, *heads, 128, sequences, tokens)
        )

    assert time(batch, context + more) >= time(batch, context) > 0
    assert time(batch + 1, context) >= time(batch, context)
    bytes_moved = 2.0 * batch * context * heads[1] * 128 * 2
    assert time(batch, context) >= bytes_moved / gpu.bandwidth_bytes_per_s


@given(cards, st.integers(1, 8192), st.integers(0, 8192), st.integers(1, 1024))
def test_longer_prompts_after_more_past_are_never_quicker(
    card: tuple[str, str], new: int, past: int, more: int
) -> None:
    gpu, cal = constants(*card)

    def time(tokens: int, before: int) -> float:
        return float(operators.prefill_attention_s(gpu, cal.attention, 32, 8, 128, tokens, before))

    assert time(new + more, past) >= time(new, past) > 0
    assert time(new, past + more) >= time(new, past)


@given(cards, st.sampled_from([2, 4, 8, 16]), st.floats(1.0, 1e9), st.floats(1.0, 1e9))
def test_larger_messages_are_never_reduced_quicker(
    card: tuple[str, str], n: int, size: float, more: float
) -> None:
    gpu, cal = constants(*card)
    for graphed in (False, True):
        small = collectives.all_reduce_s(gpu, cal, n, size, graphed=graphed)
        large = collectives.all_reduce_s(gpu, cal, n, size + more, graphed=graphed)
        assert large >= small > 0


def test_one_gpu_reduces_nothing() -> None:
    gpu, cal = constants("A100-80G", "vllm")
    assert collectives.all_reduce_s(gpu, cal, 1, 1e9) == 0.0


# Reported of NCCL by third parties (us at 0.5 KB, 16 KB, 128 KB, 2 MB; bus GB/s at 512 MB).
NCCL = {
    ("A100-80G", 2): (10.0, 12.8, 13.4, 47.6, 193), ("A100-80G", 8): (22.6, 22.6, 27.4, 53.7, 222),
    ("H100-80G", 2): (6.2, 7.3, 7.7, 27.9, 318), ("H100-80G", 4): (9.5, 12.5, 11.4, 27.7, 350),
    ("H100-80G", 8): (15.6, 19.0, 19.0, 38.2, 445), ("H200", 4): (9.5, 10.9, 11.3, 27.4, 348),
    ("H200", 8): (16.0, 18.3, 21.4, 37.5, 460),
}  # fmt: skip


@pytest.mark.parametrize(("name", "n"), sorted(NCCL))
def test_all_reduces_take_what_nccl_was_seen_to_take(name: str, n: int) -> None:
    """The median within 10 %, every point within 40 % (a protocol changes at 2 MB)."""
    gpu, cal = constants(name, "vllm")
    *times, bus = NCCL[name, n]
    made = [collectives.all_reduce_s(gpu, cal, n, b) * 1e6 for b in (512, 2**14, 2**17, 2**21)]
    at_most = collectives.all_reduce_s(gpu, cal, n, 2**29)
    ratios = [a / b for a, b in zip(made, times, strict=True)]
    ratios.append(2 * (n - 1) / n * 2**29 / at_most / 1e9 / bus)
    off = sorted(abs(r - 1) for r in ratios)
    assert off[2] < 0.10
    assert off[-1] < 0.40


def test_bf16_runs_at_the_fp32_rate_where_there_is_no_hardware_for_it() -> None:
    card = hardware.gpu("V100-16G")
    assert card.flops_for("bf16") == card.flops["fp32"]
    assert card.flops_for("fp8") == card.flops_for("int4") == card.flops["fp16"]


def test_a_plan_name_gets_its_near_miss() -> None:
    with pytest.raises(UnknownNameError, match="three_stage"):
        plan("three_stages")
