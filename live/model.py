"""A Llama decoder on torch: RMSNorm, rotary positions, grouped queries, SwiGLU.

The cache and the attention over it belong to :mod:`live.kv`; a batch is one flat list of new
tokens of several sequences, so that prefill chunks and decodes share a pass.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from dispatch.errors import InputError
from live import safetensors
from live.shapes import LlamaShape, shape_of


class Attend(Protocol):
    """Stores the new keys and values of one layer and attends over all that is stored."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Take q [T, heads, d], k and v [T, kv_heads, d]; return [T, heads, d]."""


@dataclass(slots=True)
class Block:
    """Weights of one layer; projections are [out, in], q, k and v stacked, gate and up stacked."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    gate_up: Tensor
    down: Tensor


class Llama:
    """Weights on one device, and the pass over a flat batch of new tokens."""

    def __init__(self, shape: LlamaShape, tensors: dict[str, Tensor], device: str) -> None:
        self.shape = shape
        self.device = torch.device(device)
        self.dtype: torch.dtype = getattr(torch, shape.dtype)
        place = {"device": self.device, "dtype": self.dtype}
        take = _Taker(tensors, place)
        self.embed = take("model.embed_tokens.weight", (shape.vocab, shape.hidden))
        self.norm = take("model.norm.weight", (shape.hidden,))
        head = "model.embed_tokens.weight" if shape.tied else "lm_head.weight"
        self.head = take(head, (shape.vocab, shape.hidden))
        self.blocks = [_block(shape, take, layer) for layer in range(shape.layers)]
        take.done()
        self.rope = _rope_table(shape).to(**place)

    def forward(self, tokens: Tensor, positions: Tensor, last: Tensor, attend: Attend) -> Tensor:
        """Return the logits [len(last), vocab] at rows *last* of the flat batch *tokens* [T]."""
        with torch.inference_mode():
            return self._layers(tokens, positions, last, attend)

    def _layers(self, tokens: Tensor, positions: Tensor, last: Tensor, attend: Attend) -> Tensor:
        shape = self.shape
        x = self.embed[tokens]
        cos, sin = self.rope[0, positions], self.rope[1, positions]
        width_q, width_kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        for layer, block in enumerate(self.blocks):
            h = functional.rms_norm(x, (shape.hidden,), block.norm1, shape.eps)
            q, k, v = (h @ block.qkv.T).split((width_q, width_kv, width_kv), dim=-1)
            q = _rotate(q.view(-1, shape.heads, shape.head_dim), cos, sin)
            k = _rotate(k.view(-1, shape.kv_heads, shape.head_dim), cos, sin)
            v = v.view(-1, shape.kv_heads, shape.head_dim)
            x = x + attend(layer, q, k, v).reshape(-1, width_q) @ block.out.T
            h = functional.rms_norm(x, (shape.hidden,), block.norm2, shape.eps)
            gate, up = (h @ block.gate_up.T).split(shape.ffn, dim=-1)
            x = x + (functional.silu(gate) * up) @ block.down.T
        x = functional.rms_norm(x[last], (shape.hidden,), self.norm, shape.eps)
        return x @ self.head.T


def load_model(name: str, seed: int, device: str) -> Llama:
    """Build the preset *name* with random weights by *seed*, or load the checkpoint folder."""
    shape = shape_of(name)
    if (folder := Path(name)).is_dir():
        return Llama(shape, safetensors.load(folder), device)
    return Llama(shape, random_weights(shape, seed), device)


def random_weights(shape: LlamaShape, seed: int) -> dict[str, Tensor]:
    """Return random tensors by their Llama checkpoint names, equal for equal *seed*."""
    generator = torch.Generator().manual_seed(seed)
    found = {}
    for name, size in tensor_shapes(shape).items():
        if len(size) == 1:
            found[name] = torch.ones(size)
        else:
            found[name] = torch.randn(size, generator=generator) * size[1] ** -0.5
    return found


def tensor_shapes(shape: LlamaShape) -> dict[str, tuple[int, ...]]:
    """Return the name and size of every tensor of a Llama checkpoint of this *shape*."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocab, shape.hidden)}
    for layer in range(shape.layers):
        at = f"model.layers.{layer}"
        sizes[f"{at}.input_layernorm.weight"] = (shape.hidden,)
        sizes[f"{at}.self_attn.q_proj.weight"] = (q, shape.hidden)
        sizes[f"{at}.self_attn.k_proj.weight"] = (kv, shape.hidden)
        sizes[f"{at}.self_attn.v_proj.weight"] = (kv, shape.hidden)
        sizes[f"{at}.self_attn.o_proj.weight"] = (shape.hidden, q)
        sizes[f"{at}.post_attention_layernorm.weight"] = (shape.hidden,)
        sizes[f"{at}.mlp.gate_proj.weight"] = (shape.ffn, shape.hidden)
        sizes[f"{at}.mlp.up_proj.weight"] = (shape.ffn, shape.hidden)
        sizes[f"{at}.mlp.down_proj.weight"] = (shape.hidden, shape.ffn)
    sizes["model.norm.weight"] = (shape.hidden,)
    if not shape.tied:
        sizes["lm_head.weight"] = (shape.vocab, shape.hidden)
    return sizes


class _Taker:
    """Takes tensors by name and size, and raises every problem at once at the end."""

    def __init__(self, tensors: dict[str, Tensor], place: dict[str, Any]) -> None:
        self._tensors = tensors
        self._place = place
        self._problems: list[str] = []

    def __call__(self, name: str, size: tuple[int, ...]) -> Tensor:
        found = self._tensors.get(name)
        if found is None:
            self._problems.append(f"{name} is missing")
            return torch.empty(size, **self._place)
        if tuple(found.shape) != size:
            self._problems.append(f"{name} is {tuple(found.shape)}, config.json says {size}")
            return torch.empty(size, **self._place)
        return found.to(**self._place)

    def done(self) -> None:
        if self._problems:
            raise InputError.at("checkpoint", "; ".join(self._problems[:5]))


def _block(shape: LlamaShape, take: _Taker, layer: int) -> Block:
    sizes = tensor_shapes(shape)

    def get(part: str) -> Tensor:
        name = f"model.layers.{layer}.{part}.weight"
        return take(name, sizes[name])

    return Block(
        norm1=get("input_layernorm"),
        qkv=torch.cat([get(f"self_attn.{p}_proj") for p in "qkv"]),
        out=get("self_attn.o_proj"),
        norm2=get("post_attention_layernorm"),
        gate_up=torch.cat([get("mlp.gate_proj"), get("mlp.up_proj")]),
        down=get("mlp.down_proj"),
    )


def _rope_table(shape: LlamaShape) -> Tensor:
    """Return cos and sin [2, context, head_dim / 2] of the rotary angles."""
    steps = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    angles = torch.outer(
        torch.arange(shape.context_tokens, dtype=torch.float64), shape.rope_theta**-steps
    )
    return torch.stack([angles.cos(), angles.sin()])


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the two halves of each head (the layout of Hugging Face Llama checkpoints)."""
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
