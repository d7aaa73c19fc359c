"""The decoder against a plain one written out here, and checkpoints in and out."""

import json
from pathlib import Path

import pytest
import torch

from dispatch.errors import InputError
from live import safetensors
from live.kv import ContiguousKv, Held, PagedKv
from live.model import Llama, load_model, random_weights
from live.sequence import Job, Run, Sequence
from live.shapes import LlamaShape, shape_of

SHAPE = LlamaShape("test", 48, 2, 4, 2, 12, 80, 64, 128)


def plain(weights: dict[str, torch.Tensor], tokens: list[int], shape: LlamaShape) -> torch.Tensor:
    """Logits of the last token by a decoder in float64 that keeps no cache and shares no code."""
    w = {name: t.double() for name, t in weights.items()}
    x = w["model.embed_tokens.weight"][tokens]
    n, d = len(tokens), shape.head_dim

    def norm(v: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return v / (v.pow(2).mean(-1, keepdim=True) + shape.eps).sqrt() * weight

    def turn(v: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(v)
        for position in range(n):
            for i in range(d // 2):
                angle = torch.tensor(position * shape.rope_theta ** (-2 * i / d)).double()
                a, b = v[position, :, i], v[position, :, i + d // 2]
                out[position, :, i] = a * angle.cos() - b * angle.sin()
                out[position, :, i + d // 2] = b * angle.cos() + a * angle.sin()
        return out

    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        h = norm(x, w[at + "input_layernorm.weight"])
        q = turn((h @ w[at + "self_attn.q_proj.weight"].T).view(n, shape.heads, d))
        k = turn((h @ w[at + "self_attn.k_proj.weight"].T).view(n, shape.kv_heads, d))
        v = (h @ w[at + "self_attn.v_proj.weight"].T).view(n, shape.kv_heads, d)
        heads = []
        for head in range(shape.heads):
            kv = head // (shape.heads // shape.kv_heads)
            scores = q[:, head] @ k[:, kv].T / d**0.5
            scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
            heads.append(scores.softmax(-1) @ v[:, kv])
        x = x + torch.cat(heads, -1) @ w[at + "self_attn.o_proj.weight"].T
        h = norm(x, w[at + "post_attention_layernorm.weight"])
        gate = h @ w[at + "mlp.gate_proj.weight"].T
        up = h @ w[at + "mlp.up_proj.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ w[at + "mlp.down_proj.weight"].T
    return norm(x[-1], w["model.norm.weight"]) @ w["lm_head.weight"].T


def cache_of(kind: str) -> PagedKv | ContiguousKv:
    device = torch.device("cpu")
    if kind == "paged":
        cache: PagedKv | ContiguousKv = PagedKv(SHAPE, 1 << 20, device, 4)
    else:
        cache = ContiguousKv(SHAPE, 1 << 20, device)
    cache.memory.view(torch.float32).fill_(torch.nan)  # what was never written must not matter
    return cache


def check(found: torch.Tensor, weights: dict[str, torch.Tensor], tokens: list[int]) -> None:
    torch.testing.assert_close(found.double(), plain(weights, tokens, SHAPE), atol=1e-5, rtol=1e-4)


def logits(
    model: Llama, cache: PagedKv | ContiguousKv, batch: list[tuple[Sequence, int]]
) -> torch.Tensor:
    runs, tokens, positions, last, start = [], [], [], [], 0
    for sequence, count in batch:
        run = Run(sequence, start, count)
        runs.append(run)
        tokens += sequence.tokens[run.past : run.past + count]
        positions += range(run.past, run.past + count)
        start += count
        last.append(start - 1)
    out = model.forward(
        torch.tensor(tokens), torch.tensor(positions), torch.tensor(last), cache.bind(runs)
    )
    for run in runs:
        run.held.stored_tokens += run.count
    return out


@pytest.mark.parametrize("kind", ["paged", "contiguous"])
def test_chunked_and_batched_passes_equal_a_plain_decoder(kind: str) -> None:
    weights = random_weights(SHAPE, 3)
    model, cache = Llama(SHAPE, weights, "cpu"), cache_of(kind)
    first = Sequence(Job(1, list(range(9)), 4), list(range(9)))
    second = Sequence(Job(2, [5, 4, 3], 4), [5, 4, 3])
    for sequence in (first, second):
        assert cache.reserve(sequence.held, 16)
    logits(model, cache, [(first, 6)])
    mixed = logits(model, cache, [(second, 3), (first, 3)])
    for row, sequence in zip(mixed, (second, first), strict=True):
        check(row, weights, sequence.tokens)
        sequence.tokens.append(int(row.argmax()))
    ones = logits(model, cache, [(first, 1), (second, 1)])
    for row, sequence in zip(ones, (first, second), strict=True):
        check(row, weights, sequence.tokens)


def write_checkpoint(folder: Path, weights: dict[str, torch.Tensor]) -> None:
    config = {
        "hidden_size": SHAPE.hidden,
        "num_hidden_layers": SHAPE.layers,
        "num_attention_heads": SHAPE.heads,
        "num_key_value_heads": SHAPE.kv_heads,
        "head_dim": SHAPE.head_dim,
        "intermediate_size": SHAPE.ffn,
        "vocab_size": SHAPE.vocab,
        "max_position_embeddings": SHAPE.context_tokens,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    safetensors.save(weights, folder / "model.safetensors")


def test_a_checkpoint_written_as_safetensors_loads_bit_for_bit(tmp_path: Path) -> None:
    weights = random_weights(SHAPE, 1)
    write_checkpoint(tmp_path, weights)
    loaded = safetensors.load(tmp_path)
    assert loaded.keys() == weights.keys()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)
    assert load_model(str(tmp_path), 0, "cpu").shape.hidden == SHAPE.hidden


def test_bfloat16_tensors_survive_the_file(tmp_path: Path) -> None:
    tensor = torch.randn(3, 5).bfloat16()
    safetensors.save({"x": tensor}, tmp_path / "a.safetensors")
    assert torch.equal(safetensors.load(tmp_path)["x"], tensor)


def test_a_checkpoint_that_lacks_tensors_is_refused_by_name(tmp_path: Path) -> None:
    weights = random_weights(SHAPE, 1)
    del weights["model.norm.weight"]
    weights["lm_head.weight"] = weights["lm_head.weight"][:3]
    write_checkpoint(tmp_path, weights)
    with pytest.raises(InputError, match=r"norm\.weight is missing; lm_head"):
        load_model(str(tmp_path), 0, "cpu")


def test_a_truncated_safetensors_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(InputError, match="header of"):
        safetensors.load(tmp_path)


def test_an_unknown_preset_is_refused_with_the_near_miss() -> None:
    with pytest.raises(InputError, match="did you mean tiny"):
        shape_of("tinny")


def test_the_same_seed_gives_the_same_weights() -> None:
    a, b, c = (random_weights(SHAPE, seed) for seed in (1, 1, 2))
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(a[name], b[name])
    assert not torch.equal(a[name], c[name])


@pytest.mark.parametrize("kind", ["paged", "contiguous"])
def test_released_memory_is_all_there_again(kind: str) -> None:
    cache = cache_of(kind)
    free = cache.arena.free_bytes
    held = [Held() for _ in range(5)]
    for at, one in enumerate(held):
        assert cache.reserve(one, 7 + at)
    for one in held[::2] + held[1::2]:
        cache.release(one)
    assert cache.arena.free_bytes == free


def test_pages_are_never_held_twice() -> None:
    cache = cache_of("paged")
    assert isinstance(cache, PagedKv)
    a, b = Held(), Held()
    assert cache.reserve(a, 5)
    assert cache.reserve(b, 9)
    assert cache.reserve(a, 11)
    assert not set(a.pages) & set(b.pages)
    assert len(a.pages) + len(b.pages) + cache.free_blocks == cache.arena.pages
