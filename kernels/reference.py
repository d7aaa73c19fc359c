"""The block in float64 on plain torch, from its definition: what kernels are checked against."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from kernels.launch import Weights
from kernels.spec import BlockSpec


def rope_table(context: int, head_dim: int, theta: float = 10_000.0) -> Tensor:
    """Return cos and sin [2, context, head_dim / 2] in float64."""
    steps = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    angles = torch.outer(torch.arange(context, dtype=torch.float64), theta**-steps)
    return torch.stack([angles.cos(), angles.sin()])


def block(
    spec: BlockSpec, w: Weights, rope: Tensor | None, x: Tensor,
    past: Sequence[tuple[Tensor, Tensor]], rows: Sequence[tuple[int, int]],
) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:  # fmt: skip
    """Return the output [T, hidden] and each sequence's new keys and values, all in float64.

    Sequence i brings the rows ``rows[i]`` = (first, end) of x after the keys and values
    ``past[i]``, each [tokens, kv_heads, head_dim].
    """
    wide = {n: None if (t := getattr(w, n)) is None else t.double() for n in Weights.__slots__}
    x = x.double()
    h = _norm(spec, x, wide["norm1"], wide["norm1_b"])
    parts = functional.linear(h, wide["qkv"], wide["qkv_b"] if spec.qkv_bias else None)
    q, k, v = parts.split((spec.q_width, spec.kv_width, spec.kv_width), dim=-1)
    attended = torch.zeros(x.shape[0], spec.q_width, dtype=torch.float64, device=x.device)
    new = []
    for (keys, values), (first, end) in zip(past, rows, strict=True):
        before, count = keys.shape[0], end - first
        qs = q[first:end].view(count, spec.heads, spec.head_dim)
        ks = k[first:end].view(count, spec.kv_heads, spec.head_dim)
        vs = v[first:end].view(count, spec.kv_heads, spec.head_dim)
        if spec.rope:
            assert rope is not None
            cos, sin = rope.double()[:, before : before + count]
            qs, ks = _rotate(qs, cos, sin), _rotate(ks, cos, sin)
        new.append((ks, vs))
        all_k, all_v = torch.cat([keys.double(), ks]), torch.cat([values.double(), vs])
        attended[first:end] = _attend(spec, qs, all_k, all_v, before).reshape(count, -1)
    x = x + functional.linear(attended, wide["out"], wide["out_b"] if spec.bias else None)
    h = _norm(spec, x, wide["norm2"], wide["norm2_b"])
    lifted = functional.linear(h, wide["up"], wide["up_b"] if spec.bias else None)
    if spec.gated:
        gate, lift = lifted.split(spec.ffn, dim=-1)
        lifted = functional.silu(gate) * lift
    else:
        lifted = functional.gelu(lifted, approximate="tanh")
    down = functional.linear(lifted, wide["down"], wide["down_b"] if spec.bias else None)
    return x + down, new


def _norm(spec: BlockSpec, x: Tensor, gain: Tensor | None, shift: Tensor | None) -> Tensor:
    if spec.norm == "layer":
        return functional.layer_norm(x, (spec.hidden,), gain, shift, spec.eps)
    return functional.rms_norm(x, (spec.hidden,), gain, spec.eps)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def _attend(spec: BlockSpec, q: Tensor, k: Tensor, v: Tensor, before: int) -> Tensor:
    k = k.repeat_interleave(spec.group, dim=1)
    v = v.repeat_interleave(spec.group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * spec.head_dim**-0.5
    tokens = torch.arange(k.shape[0], device=q.device)
    at = tokens[None, :] > before + torch.arange(q.shape[0], device=q.device)[:, None]
    return torch.einsum("hqk,khd->qhd", scores.masked_fill(at, -torch.inf).softmax(-1), v)
