"""What fusion can buy: floor, time and bytes of one block in every variant, by the cost model.

GPU, model and constants come from ``dispatch.hardware``. All variants do the same projections and
attention at the same rates; they differ only in launches, barriers, host time and the bytes that
they leave in memory between kernels, so a ratio here is one of structure. What a library's own
kernel starts with is in no variant: not its attention, nor in decode the waves of its products,
which the fits of some cards hold beside the launch (1.4 µs each on A100) and a ratio would count on
both sides. The floor takes datasheet
rates and no launch at all. Everything is modelled; :mod:`kernels.measured` holds what was measured.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from dispatch.hardware import (
    PRECISION_BYTES,
    Calibration,
    Gpu,
    Model,
    Roofline,
    calibration,
    plan,
)  # fmt: skip
from dispatch.hardware.plans import elements, extra_bytes
from kernels import measured
from kernels.variants import BASELINES, VARIANTS, Variant, variant

SPEED_CLAIM: Final = 2.3
BYTES_CLAIM: Final = 0.41
DECODE, PREFILL = "decode", "prefill"


@dataclass(frozen=True, slots=True)
class Work:
    """One block on one GPU: *batch* sequences of *length* tokens (decode: each adds one)."""

    model: Model
    gpu: Gpu
    phase: str = DECODE
    batch: int = 1
    length: int = 1024
    precision: str = "bf16"

    @property
    def tokens(self) -> int:
        """Rows of the projections."""
        return self.batch if self.phase == DECODE else self.batch * self.length

    @property
    def kv_precision(self) -> str:
        """Keys and values at the width of the weights, integers at 16 bits."""
        return self.precision if self.precision in ("fp32", "fp16", "bf16", "fp8") else "fp16"

    @property
    def kv_bytes(self) -> float:
        """Keys and values of the context of all sequences, one layer."""
        m = self.model
        each = 2.0 * m.kv_heads * m.head_dim * PRECISION_BYTES[self.kv_precision]
        return each * self.batch * self.length


@dataclass(frozen=True, slots=True)
class Bound:
    """One variant of one piece of work. Seconds and bytes; *host_s* runs beside the GPU."""

    variant: str
    launches: int
    barriers: int
    gpu_s: float
    host_s: float
    dram_bytes: float
    logical_bytes: float

    @property
    def total_s(self) -> float:
        """Time of the block: the slower of GPU and host."""
        return max(self.gpu_s, self.host_s)


def weight_bytes(work: Work) -> float:
    """Return the bytes of one block's weights, its norms and biases at 16 bits (fp32 at 32)."""
    m = work.model
    side = 4.0 if work.precision == "fp32" else 2.0
    vectors = 2 * m.hidden * (2 if m.norm == "layer" else 1)
    if m.bias in ("qkv", "all"):
        vectors += (m.heads + 2 * m.kv_heads) * m.head_dim
    if m.bias == "all":
        vectors += 2 * m.hidden + m.ffn
    return m.layer_weights * PRECISION_BYTES[work.precision] + vectors * side


def least_bytes(work: Work) -> float:
    """Return what any variant must move: weights, context, new keys and values, input, output."""
    m, width = work.model, 4.0 if work.precision == "fp32" else 2.0
    new = 2.0 * m.kv_heads * m.head_dim * PRECISION_BYTES[work.kv_precision] * work.tokens
    read = work.kv_bytes if work.phase == DECODE else 0.0
    return weight_bytes(work) + read + new + 2.0 * work.tokens * m.hidden * width


def least_flops(work: Work) -> float:
    """Return the multiply-adds times two of projections and causal attention."""
    m = work.model
    seen = work.batch * work.length if work.phase == DECODE else _causal_pairs(work)
    return 2.0 * work.tokens * m.layer_weights + 4.0 * seen * m.heads * m.head_dim


def floor_s(work: Work) -> float:
    """Return the least time at datasheet rates: bytes or flops, whichever is slower."""
    flops = least_flops(work) / work.gpu.flops_for(work.precision)
    return max(least_bytes(work) / work.gpu.bandwidth_bytes_per_s, flops)


def bound(work: Work, name: str) -> Bound:
    """Return time, launches and bytes of *work* under the variant *name*."""
    v = variant(name)
    cal = _calibration(work.gpu, v.plan)
    launches, barriers = v.launches(work.model, work.phase), v.barriers(work.phase)
    if barriers:
        fixed_us = cal.launch.once_us + barriers * cal.launch.barrier_us
    else:
        fixed_us = launches * cal.launch.graph_us
    extra = dram_extra(work, v, work.gpu.l2_bytes)
    sustained = work.gpu.bandwidth_bytes_per_s * cal.gemm.memory_ratio
    gpu_s = _operators_s(work) + _score_flops_s(work, v, cal) + extra / sustained + fixed_us * 1e-6
    host_s = 0.0 if v.graphed else launches * cal.launch.eager_us * 1e-6
    return Bound(
        name, launches, barriers, gpu_s, host_s,
        dram_bytes=least_bytes(work) + _between(work, work.gpu.l2_bytes) + extra,
        logical_bytes=least_bytes(work) + _between(work, 0) + dram_extra(work, v, 0),
    )  # fmt: skip


def bounds(work: Work) -> dict[str, Bound]:
    """Return every variant of *work* that has its phase."""
    return {
        name: bound(work, name)
        for name, v in VARIANTS.items() if work.phase == DECODE or v.prefill
    }  # fmt: skip


def dram_extra(work: Work, v: Variant, l2_bytes: int) -> float:
    """Return the bytes that *v* moves beyond the fused block; what half the L2 holds is free.

    With ``l2_bytes`` 0 every byte counts (logical traffic). Scores are the whole matrix: a
    three-stage GEMM writes the masked half as well. Copies of the cache are of every layer and so
    never stay in L2: cat reads and writes it, repeat_kv reads it once and writes and reads it once
    a query head of the group.
    """
    pairs = work.length * work.tokens
    extra = extra_bytes(work.model, v.plan, 1, work.tokens, pairs, l2_bytes)
    if not v.copies_kv:
        return extra
    group = work.model.heads // work.model.kv_heads
    copied = 2.0 + (2.0 * group if group > 1 else 0.0)
    scores = pairs * work.model.heads * 2.0
    cast = 8.0 * scores / 2.0 if scores > l2_bytes / 2 else 0.0  # fp32 and mask: 2 x 4 bytes more
    return extra + copied * work.kv_bytes + cast


def _between(work: Work, l2_bytes: int) -> float:
    """Return bytes written and read between projections in every variant."""
    each = elements(work.model, 1)
    width = 4.0 if work.precision == "fp32" else 2.0
    sizes = [each["qkv"], work.model.heads * work.model.head_dim, each["hidden"], each["ffn"]]
    tensors = [work.tokens * size * width for size in sizes]
    return sum(2.0 * t for t in tensors if t > l2_bytes / 2)


@lru_cache(maxsize=4096)
def _operators_s(work: Work) -> float:
    """Return projections and attention of one block, the same in every variant."""
    one = replace(work.model, layers=1)
    cal = _calibration(work.gpu, "fused")
    if work.phase == DECODE:  # bytes bound its products; a wave's start would be a launch's again
        cal = replace(cal, gemm=replace(cal.gemm, wave_us=0.0))
    line = Roofline(
        work.gpu, one, work.precision, work.kv_precision, 1, plan("fused"), cal
    )  # fmt: skip
    if work.phase == DECODE:
        parts = line.parts((), (), work.batch, float(work.batch * work.length))
    else:
        parts = line.parts([work.length] * work.batch, [0] * work.batch)
    # The cost model prices attention at the 16-bit rate; in FP32 that would beat the floor.
    return max(parts.projections_s + parts.attention_s, floor_s(work))


def _score_flops_s(work: Work, v: Variant, cal: Calibration) -> float:
    """Return the masked half of the score products, which only a flash kernel skips."""
    if not v.scores or work.phase == DECODE:
        return 0.0
    skipped = work.length * work.tokens - _causal_pairs(work)
    rate = work.gpu.flops["fp16"] * cal.attention.compute_ratio
    return 4.0 * skipped * work.model.heads * work.model.head_dim / rate


def _causal_pairs(work: Work) -> float:
    return work.batch * work.length * (work.length + 1) / 2.0


@lru_cache(maxsize=256)
def _calibration(gpu: Gpu, name: str) -> Calibration:
    cal = calibration(gpu, name)
    known = measured.costs(gpu.name)
    return cal if known is None else replace(cal, launch=known.launch(cal.launch))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The two claims against one baseline at one piece of work."""

    baseline: str
    speedup: float
    dram_saved: float  # share of the baseline's DRAM bytes
    logical_saved: float

    @property
    def speed_holds(self) -> bool:
        """Whether the fused block is predicted at least 2.3 times as fast."""
        return self.speedup >= SPEED_CLAIM

    @property
    def bytes_hold(self) -> bool:
        """Whether it is predicted to move at least 41 % fewer DRAM bytes."""
        return self.dram_saved >= BYTES_CLAIM


def verdict(work: Work, baseline: str) -> Verdict:
    """Compare the fused block with *baseline*."""
    ours, theirs = bound(work, "fused"), bound(work, baseline)
    return Verdict(
        baseline, theirs.total_s / ours.total_s,
        1.0 - ours.dram_bytes / theirs.dram_bytes, 1.0 - ours.logical_bytes / theirs.logical_bytes,
    )  # fmt: skip


def verdicts(work: Work) -> list[Verdict]:
    """Compare the fused block with every baseline that has the phase."""
    return [
        verdict(work, name)
        for name in BASELINES if work.phase == DECODE or VARIANTS[name].prefill
    ]  # fmt: skip


def widest_block(
    gpu: Gpu, baseline: str, length: int = 128, precision: str = "bf16"
) -> Model | None:
    """Return the largest GPT-like block at batch 1 whose predicted ratio is 2.3 or more.

    Widths go in steps of 64 (heads of 64, FFN of 4 widths); None where not even 64 holds.
    """
    best = None
    for width in range(64, 16384 + 64, 64):
        model = gpt_block(width)
        work = Work(model, gpu, DECODE, 1, length, precision)
        if not verdict(work, baseline).speed_holds:
            break
        best = model
    return best


def gpt_block(width: int) -> Model:
    """Return one GPT block of *width*: LayerNorm, biases, GELU, heads of 64, FFN of 4 widths."""
    return Model(
        f"gpt-width-{width}", 12 * width**2, 1, width, width // 64, width // 64, 64, 4 * width,
        False, 1, 1 << 20, norm="layer", bias="all", positions="learned",
    )  # fmt: skip
