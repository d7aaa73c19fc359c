"""The operators of a decoder layer, each from its flops and bytes. Seconds on one GPU."""

from dataclasses import dataclass

from dispatch.hardware.calibration import Calibration
from dispatch.hardware.catalogue import PRECISION_BYTES, Gpu, Model


@dataclass(frozen=True, slots=True)
class Shape:
    """A projection of one GPU's shard: *n* outputs from *k* inputs."""

    name: str
    n: float
    k: float


def projections(model: Model, tp: int) -> tuple[Shape, ...]:
    """Return the four projections of a layer as one GPU of *tp* holds them."""
    kv = max(model.kv_heads / tp, 1.0)
    d = model.head_dim
    return (
        Shape("qkv", (model.heads / tp + 2 * kv) * d, model.hidden),
        Shape("out", model.hidden, model.heads / tp * d),
        Shape("up", model.ffn * (2 if model.gated else 1) / tp, model.hidden),
        Shape("down", model.hidden, model.ffn / tp),
    )


def gemm_s(gpu: Gpu, cal: Calibration, m: float, n: float, k: float, precision: str) -> float:
    """Return the time of an m x k by k x n product, without its launch."""
    flops = 2.0 * m * n * k
    weights = n * k * PRECISION_BYTES[precision]
    moved = weights + 2.0 * m * (k + n)
    return max(
        flops / (gpu.flops_for(precision) * cal.gemm.compute_ratio),
        moved / (gpu.bandwidth_bytes_per_s * cal.gemm.memory_ratio),
    )


def prefill_attention_s(
    gpu: Gpu,
    cal: Calibration,
    heads: float,
    kv_heads: float,
    head_dim: int,
    new: float,
    past: float,
) -> float:
    """Return causal flash attention of *new* tokens after *past* ones, one sequence."""
    pairs = new * (past + (new + 1) / 2)
    flops = 4.0 * heads * head_dim * pairs
    moved = 2.0 * head_dim * (2 * heads * new + 2 * kv_heads * (past + new))
    return max(
        flops / (gpu.flops["fp16"] * cal.attention.compute_ratio),
        moved / (gpu.bandwidth_bytes_per_s * cal.attention.memory_ratio),
    )


def decode_attention_line(
    gpu: Gpu, cal: Calibration, heads: float, kv_heads: float, head_dim: int, batch: int,
    kv_bytes: float,
) -> tuple[float, float]:  # fmt: skip
    """Return (base, slope): attention of *batch* queries over C tokens takes base + slope x C."""
    slope = 2.0 * kv_heads * head_dim * kv_bytes
    slope /= gpu.bandwidth_bytes_per_s * cal.attention.memory_ratio
    io = 2.0 * head_dim * 2 * heads * batch / gpu.bandwidth_bytes_per_s
    return cal.attention.fixed_us * 1e-6 + io, slope


def elementwise_s(gpu: Gpu, cal: Calibration, moved_bytes: float) -> float:
    """Return the time of passes over *moved_bytes*, without launches."""
    return moved_bytes / (gpu.bandwidth_bytes_per_s * cal.elementwise.memory_ratio)
