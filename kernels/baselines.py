"""What the fused block is compared with, each in code; :mod:`kernels.variants` has the words.

All take x [sequences x tokens, hidden], a dense cache [sequences, kv_heads, room, head_dim] and the
positions of the rows, and append to the cache in place. ``steps`` gathers the name of each kernel,
so that a test holds the counts that the bounds use. In a CUDA graph they are the same functions.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from kernels.launch import Weights
from kernels.spec import BlockSpec, padded


@dataclass(slots=True)
class Dense:
    """Keys and values [sequences, kv_heads, room, head_dim] and positions [rows] int32."""

    k: Tensor
    v: Tensor
    pos: Tensor
    length: int  # tokens of the longest sequence, the new ones included
    steps: list[str] = field(default_factory=list)
    turn: Tensor | None = None  # cos and sin of the rows, and
    mask: Tensor | None = None  # what they do not see: once a model, not once a block

    def prepare(self, rope: Tensor | None, dtype: torch.dtype) -> None:
        """Look up what the Hugging-Face style computes once for all of its layers."""
        sequences = self.k.shape[0]
        pos = self.pos.view(sequences, 1, -1)
        if rope is not None:
            table = rope[:, pos.long()].to(dtype)
            self.turn = torch.cat([table, table], dim=-1)
        at = torch.arange(self.length, device=self.pos.device)
        hidden = at[None, None, None, :] > pos[..., None]
        self.mask = torch.zeros_like(hidden, dtype=dtype).masked_fill(hidden, float("-inf"))


def three_stage(
    spec: BlockSpec, w: Weights, rope: Tensor | None, x: Tensor, dense: Dense
) -> Tensor:
    """LayerNorm | attention with scores in memory | FFN: 13 kernels, GQA without copies."""
    from kernels import stages as s

    sequences = dense.k.shape[0]
    tokens = x.shape[0] // sequences
    step = dense.steps.append

    def norm(rows: Tensor, gain: Tensor, shift: Tensor | None) -> Tensor:
        out = torch.empty_like(rows)
        s.norm_kernel[(len(rows),)](
            rows, out, gain, gain if shift is None else shift, spec.eps, spec.hidden,
            padded(spec.hidden), spec.norm == "layer",
        )  # fmt: skip
        return out

    def add(a: Tensor, b: Tensor) -> Tensor:
        out = torch.empty_like(a)
        s.add_kernel[(-(-a.numel() // 1024),)](a, b, out, a.numel(), 1024)
        return out

    step("norm")
    h = norm(x, w.norm1, w.norm1_b)
    step("qkv")
    parts = functional.linear(h, w.qkv, w.qkv_b if spec.qkv_bias else None)
    step("rope and append")
    table = w.norm1 if rope is None else rope
    s.rope_append_kernel[(len(x), spec.heads + 2 * spec.kv_heads)](
        parts, dense.pos, table, dense.k, dense.v, dense.k.shape[2],
        0 if rope is None else rope.shape[1], spec.heads, spec.kv_heads, spec.head_dim,
        padded(spec.head_dim // 2, 1), spec.rope, tokens,
    )  # fmt: skip
    q = parts[:, : spec.q_width].view(sequences, tokens, spec.kv_heads, spec.group, spec.head_dim)
    if tokens == 1:  # a view: [sequences x kv_heads, group, head_dim]
        q = q.view(sequences, spec.kv_heads, spec.group, spec.head_dim)
    else:
        q = q.permute(0, 2, 3, 1, 4).reshape(sequences, spec.kv_heads, -1, spec.head_dim)
    rows = spec.group * tokens
    step("scores")
    scores = torch.matmul(q, dense.k[:, :, : dense.length].transpose(2, 3)).contiguous()
    step("scale, mask and softmax")
    s.softmax_kernel[(sequences * spec.kv_heads * rows,)](
        scores, dense.pos, spec.head_dim**-0.5, dense.length, rows, spec.kv_heads, tokens, 1024
    )
    step("values")
    attended = torch.matmul(scores, dense.v[:, :, : dense.length])
    if tokens > 1:
        attended = attended.view(sequences, spec.kv_heads, spec.group, tokens, spec.head_dim)
        attended = attended.permute(0, 3, 1, 2, 4)
    step("out")
    projected = functional.linear(
        attended.reshape(len(x), spec.q_width), w.out, w.out_b if spec.bias else None
    )
    step("residual")
    mid = add(x, projected)
    step("norm")
    h = norm(mid, w.norm2, w.norm2_b)
    step("up")
    lifted = functional.linear(h, w.up, w.up_b if spec.bias else None)
    step("activation")
    active = lifted.new_empty(len(x), spec.ffn)
    s.activation_kernel[(-(-active.numel() // 1024),)](
        lifted, active, active.numel(), spec.ffn, spec.gated, 1024
    )
    step("down")
    down = functional.linear(active, w.down, w.down_b if spec.bias else None)
    step("residual")
    return add(mid, down)


def hf_style(spec: BlockSpec, w: Weights, rope: Tensor | None, x: Tensor, dense: Dense) -> Tensor:
    """Hugging-Face eager: q, k, v apart, cache by cat, repeat_kv, mask apart, fp32 softmax."""
    sequences = dense.k.shape[0]
    tokens = x.shape[0] // sequences
    before = dense.length - tokens

    def norm(rows: Tensor, gain: Tensor, shift: Tensor | None) -> Tensor:
        if spec.norm == "layer":
            return functional.layer_norm(rows, (spec.hidden,), gain, shift, spec.eps)
        wide = rows.float()
        return gain * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + spec.eps)).to(
            x.dtype
        )

    def heads_of(rows: Tensor, first: int, count: int) -> Tensor:
        width = count * spec.head_dim
        bias = w.qkv_b[first : first + width] if spec.qkv_bias and w.qkv_b is not None else None
        found = functional.linear(rows, w.qkv[first : first + width], bias)
        return found.view(sequences, tokens, count, spec.head_dim).transpose(1, 2)

    def turned(rows: Tensor) -> Tensor:
        if dense.turn is None:
            return rows
        cos, sin = dense.turn
        a, b = rows.chunk(2, dim=-1)
        return rows * cos + torch.cat([-b, a], dim=-1) * sin

    if dense.mask is None:
        dense.prepare(rope, x.dtype)
    h = norm(x, w.norm1, w.norm1_b)
    q = turned(heads_of(h, 0, spec.heads))
    k = turned(heads_of(h, spec.q_width, spec.kv_heads))
    v = heads_of(h, spec.q_width + spec.kv_width, spec.kv_heads)
    keys = torch.cat([dense.k[:, :, :before], k], dim=2)
    values = torch.cat([dense.v[:, :, :before], v], dim=2)
    if spec.group > 1:
        keys, values = (
            t[:, :, None].expand(-1, -1, spec.group, -1, -1).reshape(sequences, spec.heads, -1,
                                                                     spec.head_dim)
            for t in (keys, values)
        )  # fmt: skip
    scores = torch.matmul(q, keys.transpose(2, 3)) * spec.head_dim**-0.5
    scores = scores + dense.mask
    shares = functional.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype)
    attended = torch.matmul(shares, values).transpose(1, 2).reshape(len(x), spec.q_width)
    x = x + functional.linear(attended, w.out, w.out_b if spec.bias else None)
    h = norm(x, w.norm2, w.norm2_b)
    if spec.gated:
        return x + _ffn(spec, w, h)
    lifted = functional.linear(h, w.up, w.up_b if spec.bias else None)
    inner = 0.7978845608028654 * (lifted + 0.044715 * torch.pow(lifted, 3.0))
    active = 0.5 * lifted * (1.0 + torch.tanh(inner))
    return x + functional.linear(active, w.down, w.down_b if spec.bias else None)


def _ffn(spec: BlockSpec, w: Weights, h: Tensor) -> Tensor:
    lifted = functional.linear(h, w.up, w.up_b if spec.bias else None)
    if spec.gated:
        gate, lift = lifted.split(spec.ffn, dim=-1)
        lifted = functional.silu(gate) * lift
    else:
        lifted = functional.gelu(lifted, approximate="tanh")
    return functional.linear(lifted, w.down, w.down_b if spec.bias else None)


def strong(spec: BlockSpec, w: Weights, rope: Tensor | None, x: Tensor, dense: Dense) -> Tensor:
    """The block for torch.compile: SDPA over the dense cache, the rest left to the compiler."""
    sequences = dense.k.shape[0]
    tokens = x.shape[0] // sequences

    def norm(rows: Tensor, gain: Tensor, shift: Tensor | None) -> Tensor:
        if spec.norm == "layer":
            return functional.layer_norm(rows, (spec.hidden,), gain, shift, spec.eps)
        return functional.rms_norm(rows, (spec.hidden,), gain, spec.eps)

    def turned(rows: Tensor) -> Tensor:
        if rope is None:
            return rows
        cos, sin = rope[:, dense.pos.view(sequences, 1, tokens).long()]
        a, b = rows.float().chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)

    parts = functional.linear(
        norm(x, w.norm1, w.norm1_b), w.qkv, w.qkv_b if spec.qkv_bias else None
    ).view(sequences, tokens, -1, spec.head_dim)
    q, k, v = parts.transpose(1, 2).split((spec.heads, spec.kv_heads, spec.kv_heads), dim=1)
    q, k = turned(q), turned(k)
    place = dense.pos.view(sequences, tokens).long()
    lines = torch.arange(sequences, device=x.device)[:, None]
    dense.k[lines, :, place] = k.transpose(1, 2)
    dense.v[lines, :, place] = v.transpose(1, 2)
    at = torch.arange(dense.length, device=x.device)
    seen = at[None, None, None, :] <= dense.pos.view(sequences, 1, tokens, 1)
    whole = tokens == dense.length  # a prompt without a past: the flash kernel's own causal mask
    attended = functional.scaled_dot_product_attention(
        q, dense.k[:, :, : dense.length], dense.v[:, :, : dense.length],
        attn_mask=None if whole else seen, is_causal=whole, enable_gqa=spec.group > 1,
    )  # fmt: skip
    attended = attended.transpose(1, 2).reshape(len(x), spec.q_width)
    x = x + functional.linear(attended, w.out, w.out_b if spec.bias else None)
    return x + _ffn(spec, w, norm(x, w.norm2, w.norm2_b))
