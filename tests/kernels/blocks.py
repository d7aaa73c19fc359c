"""Random blocks, caches with poisoned rest, and one run of the kernels beside float64."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels import reference
from kernels.interpreter.honest import Hooks, honest
from kernels.launch import Batch, Cache, Weights, Workspace, run
from kernels.selftest import random_weights
from kernels.spec import BlockSpec, Tiling

LIMITS = {torch.bfloat16: 6e-3, torch.float16: 1e-3, torch.float32: 2e-6}
LLAMA = BlockSpec(96, 4, 2, 24, 160)
GPT = BlockSpec(80, 4, 4, 20, 200, "layer", gated=False, rope=False, qkv_bias=True, bias=True)
WIDE_TILES = Tiling(bm=16, bn=128, bk=256, bt=32, bq=32, splits=3, least=32)
NAN = float("nan")


def weights(spec: BlockSpec, dtype: torch.dtype, seed: int) -> Weights:
    return random_weights(spec, dtype, torch.device("cpu"), seed)


@dataclass
class Case:
    """Everything of one run: a cache whose unused slots are NaN, and its expected results."""

    spec: BlockSpec
    weights: Weights
    rope: Tensor | None
    x: Tensor
    cache: Cache
    past: list[tuple[Tensor, Tensor]]
    new: list[int]
    lengths: list[int]  # -1: a padded slot

    def stored(self, line: int, token: int) -> tuple[Tensor, Tensor]:
        """Return keys and values that the cache holds for one token."""
        page = self.cache.k_table[line, token // self.cache.page_tokens]
        at = token % self.cache.page_tokens
        return self.cache.k[page, at], self.cache.v[page, at]


def case(
    spec: BlockSpec, lengths: Sequence[int], dtype: torch.dtype = torch.bfloat16, page: int = 0,
    new: Sequence[int] | None = None, seed: int = 0, context: int = 0,
) -> Case:  # fmt: skip
    """Return sequences of *lengths* past tokens; page 0 means contiguous KV."""
    draw = torch.Generator().manual_seed(seed + 1)
    new = list(new or [1] * len(lengths))
    room = max((max(n, 0) + c for n, c in zip(lengths, new, strict=True)), default=1) + 3
    size = page or room
    each = -(-room // size)
    count = each * len(lengths) + 2
    tail = (size, spec.kv_heads, spec.head_dim)
    k = torch.full((count, *tail), NAN, dtype=dtype)
    v = torch.full((count, *tail), NAN, dtype=dtype)
    order = torch.randperm(count, generator=draw)[: each * len(lengths)]
    table = order.view(len(lengths), each)
    cache = Cache.paged(k, v, table)
    past = []
    for line, length in enumerate(lengths):
        shape = (max(length, 0), spec.kv_heads, spec.head_dim)
        keys = torch.randn(shape, generator=draw).to(dtype)
        values = torch.randn(shape, generator=draw).to(dtype)
        for token in range(max(length, 0)):
            where = table[line, token // size], token % size
            k[where], v[where] = keys[token], values[token]
        past.append((keys, values))
    x = torch.randn(sum(new), spec.hidden, generator=draw).to(dtype)
    rope = reference.rope_table(max(room, context), spec.head_dim).float() if spec.rope else None
    return Case(spec, weights(spec, dtype, seed), rope, x, cache, past, new, list(lengths))


def expected(c: Case) -> tuple[Tensor, list[tuple[Tensor, Tensor]], list[int]]:
    """Return float64 output of the real rows, new keys and values, and which rows are real."""
    rows, first, kept = [], 0, []
    for length, count in zip(c.lengths, c.new, strict=True):
        if length >= 0:
            rows.append((first, first + count))
            kept += range(first, first + count)
        first += count
    real = [p for p, n in zip(c.past, c.lengths, strict=True) if n >= 0]
    out, new = reference.block(c.spec, c.weights, c.rope, c.x, real, rows)
    return out[kept], new, kept


def batch_of(c: Case, prompt: bool, tiling: Tiling) -> Batch:
    if prompt:
        return Batch.prompts(c.lengths, c.new, tiling.bq, c.x.device)
    return Batch.decode(torch.tensor(c.lengths))


def execute(
    c: Case, shape: str = "split5", grid: int = 1, tiling: Tiling = WIDE_TILES,
    space: Workspace | None = None, around: Callable[[Hooks], object] | None = None,
    scratch: torch.dtype = torch.float32, phases: Sequence[tuple[int, int]] | None = None,
) -> Tensor:  # fmt: skip
    """Run the kernels on *c* with output and scratch poisoned; returns the output."""
    prompt = shape == "prefill"
    if space is None:
        space = Workspace(c.spec, len(c.x), tiling, c.x.device, scratch, prompt)
    space.poison()
    out = torch.full_like(c.x, NAN)
    with honest() as hooks:
        context = around(hooks) if around else None
        if context is None:
            return run(c.spec, c.weights, c.rope, c.x, c.cache, batch_of(c, prompt, tiling), space,
                       tiling, shape, grid, out, phases)  # type: ignore[arg-type]  # fmt: skip
        with context:  # type: ignore[attr-defined]
            return run(c.spec, c.weights, c.rope, c.x, c.cache, batch_of(c, prompt, tiling), space,
                       tiling, shape, grid, out, phases)  # type: ignore[arg-type]  # fmt: skip


def error(found: Tensor, wanted: Tensor) -> float:
    """Return the largest error of a row, relative to that row's size."""
    if not wanted.numel():
        return 0.0
    gap = (found.double() - wanted).flatten(1).norm(dim=1)
    return float((gap / wanted.flatten(1).norm(dim=1)).max())


def assert_right(c: Case, out: Tensor) -> None:
    """Compare output, new keys and values with float64; padded rows are zero."""
    wanted, new, kept = expected(c)
    limit = LIMITS[c.x.dtype]
    assert error(out[kept], wanted) <= limit
    padded = [row for row in range(len(out)) if row not in kept]
    assert not out[padded].any()
    real = [line for line, n in enumerate(c.lengths) if n >= 0]
    for line, (keys, values) in zip(real, new, strict=True):
        for at in range(len(keys)):
            k, v = c.stored(line, c.lengths[line] + at)
            assert error(k[None], keys[at][None]) <= limit
            assert error(v[None], values[at][None]) <= limit
