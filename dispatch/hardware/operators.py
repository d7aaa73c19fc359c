"""The operators of a decoder layer, each from its flops and bytes. Seconds on one GPU.

Every function takes floats or numpy arrays (shapes broadcast). GEMMs run in waves of output tiles,
as cuBLAS and CUTLASS schedule them; attention in tiles of query rows (prefill) or by KV bytes
(decode).
"""

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dispatch.hardware.calibration import Attention, Elementwise, Gemm
from dispatch.hardware.catalogue import Gpu, Model

Numbers: TypeAlias = float | NDArray[np.float64]
"""One figure or many: shapes broadcast by numpy's own rules."""

_TILES: Final = np.array(
    [(256, 128), (128, 256), (128, 128), (64, 256), (256, 64), (128, 64), (64, 128), (64, 64),
     (32, 128), (128, 32), (32, 64), (16, 64)], dtype=float,
)  # fmt: skip
_SPLITS: Final = (1.0, 2.0, 4.0, 8.0)  # ways to split k where tiles are too few
L2_SPILL: Final = (0.6, 0.85)
"""Traffic over L2 size between which a pass goes from all hits to all misses."""
_ROWS: Final = 128  # query rows of one attention tile


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


def _candidates() -> tuple[NDArray[np.float64], ...]:
    rows, columns, splits = [], [], []
    for bm, bn in _TILES:
        for split in _SPLITS:
            rows.append(bm)
            columns.append(bn)
            splits.append(split)
    return np.array(rows), np.array(columns), np.array(splits)


_BM, _BN, _SPLIT = _candidates()


def gemm_s(
    gpu: Gpu, c: Gemm, m: Numbers, n: Numbers, k: Numbers, flops: float, weight_bytes: float = 2.0
) -> NDArray[np.float64]:
    """Return the time of m x k by k x n products (16-bit activations), without their launch.

    The library picks the quickest tile and split of k: ceil(tiles x splits / SMs) waves, each as
    long as one tile; smaller tiles run at a lower rate. That and the bytes blend as a power mean.
    """
    m, n, k = (np.asarray(x, dtype=float)[..., None] for x in (m, n, k))
    rate = flops / gpu.sms * c.compute_ratio / (1.0 + c.tile_knee * (_BM + _BN) / (_BM * _BN))
    tiles = np.ceil(m / _BM) * np.ceil(n / _BN)
    each = 2.0 * _BM * _BN * (k / _SPLIT) / rate + c.wave_us * 1e-6
    reduce_s = tiles * _BM * _BN * 4.0 * _SPLIT / gpu.bandwidth_bytes_per_s + c.wave_us * 1e-6
    waves = np.ceil(tiles * _SPLIT / gpu.sms) * each + np.where(_SPLIT > 1, reduce_s, 0.0)
    waves = np.where((_SPLIT == 1) | (k / _SPLIT >= 256), waves, np.inf)
    compute = waves.min(axis=-1)
    m, n, k = m[..., 0], n[..., 0], k[..., 0]
    moved = n * k * weight_bytes + 2.0 * m * (n + k)
    memory = moved / (gpu.bandwidth_bytes_per_s * c.memory_ratio)
    return np.asarray(_blend(compute, memory, c.blend))


def prefill_attention_s(
    gpu: Gpu, c: Attention, heads: Numbers, kv_heads: Numbers, head_dim: Numbers,
    new: Numbers, past: Numbers = 0.0, batch: Numbers = 1.0,
) -> Any:  # fmt: skip
    """Return causal flash attention of *new* tokens after *past* ones, for *batch* sequences.

    Tiles of 128 query rows, each with a cost of its own, one for its rows, one for the tokens they
    look at, and one for the KV rows written and read; the longest tile bounds a small grid.
    """
    us = 1e-6
    rows = np.minimum(new, _ROWS)
    tiles = batch * heads * np.ceil(new / _ROWS)
    pair = 4.0 * head_dim / (gpu.flops["fp16"] / gpu.sms * c.compute_ratio)
    seen = past + (new + rows) / 2.0
    tile = (c.tile_us + c.row_us * rows / _ROWS) * us + pair * rows * seen
    copied = batch * new * kv_heads**c.kv_power / _ROWS * c.kv_row_us * us
    work = (tiles * tile + copied) / gpu.sms
    longest = c.tail * pair * rows * (past + new)
    return _blend(c.start_us * us, work + longest, c.prefill_blend)


def decode_attention_s(
    gpu: Gpu, c: Attention, heads: Numbers, kv_heads: Numbers, head_dim: Numbers,
    batch: Numbers, context: Numbers, kv_bytes: Numbers = 2.0,
) -> Any:  # fmt: skip
    """Return attention of one query a sequence over *context* tokens each, *batch* sequences.

    A start; a step that combines splits of the context; and, blended: a cost for each (sequence, KV
    head), the KV bytes, and the walk of one block along a context that no split shortens.
    """
    us = 1e-6
    group = heads / kv_heads
    unit = c.unit_us * (1.0 + c.group_cost * np.log2(group)) * us
    units = batch * kv_heads * unit / gpu.sms
    moved = 2.0 * batch * context * kv_heads * head_dim * kv_bytes
    memory = moved / (gpu.bandwidth_bytes_per_s * c.memory_ratio)
    walk = np.where(group == 1, c.alone_ns, c.serial_ns) * context * 1e-9
    combine = np.where((group > 1) & (context > _ROWS), c.combine_us * us, 0.0)
    p = c.decode_blend
    return c.start_us * us + combine + (units**p + memory**p + walk**p) ** (1.0 / p)


def _blend(a: Numbers, b: Numbers, power: float) -> Any:
    high, low = np.maximum(a, b), np.minimum(a, b)
    return high * (1.0 + (low / high) ** power) ** (1.0 / power)


def elementwise_ratio(c: Elementwise, kind: str) -> float:
    """Return the share of the bandwidth that passes of *kind* (norm, add, rope, act) reach."""
    return {"norm": c.norm_ratio, "add": c.add_ratio, "rope": c.rope_ratio, "act": c.act_ratio}[
        kind
    ]


def norm_s(gpu: Gpu, c: Elementwise, moved_bytes: Numbers, rows: Numbers, width: Numbers) -> Any:
    """Return the time of a norm of *rows* rows of *width* elements, without its launch.

    A norm runs a block a row, in waves of two blocks an SM; what it moves comes from DRAM once it
    no longer fits L2 (a cache that is cycled through misses as a whole).
    """
    low, high = L2_SPILL
    time = moved_bytes / (gpu.bandwidth_bytes_per_s * c.norm_ratio)
    spilt = np.clip((moved_bytes / max(gpu.l2_bytes, 1) - low) / (high - low), 0.0, 1.0)
    waves = np.ceil(rows / (2.0 * gpu.sms)) * width / 1024 * c.norm_us * 1e-6
    return np.maximum(time * spilt, waves)


def elementwise_s(
    gpu: Gpu, c: Elementwise, kind: str, moved_bytes: Numbers, rows: Numbers = 0.0,
    width: Numbers = 0.0,
) -> Any:  # fmt: skip
    """Return the time of a pass of *kind* (norm, add, rope, act), without its launch."""
    if kind == "norm":
        return norm_s(gpu, c, moved_bytes, rows, width)
    return moved_bytes / (gpu.bandwidth_bytes_per_s * elementwise_ratio(c, kind))
