"""Every variant of a block at the shapes of the table, over enough layers that the L2 is cold."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor

from dispatch import hardware
from dispatch.hints import LaunchShape
from kernels import baselines, bounds, reference, tuned
from kernels.gpu.clock import Clock
from kernels.launch import Batch, Cache, Shape, Weights, Workspace, run
from kernels.plan import tiling_for
from kernels.selftest import random_weights
from kernels.spec import BlockSpec, Tiling, prompt_tiling, spec_of

Row = dict[str, Any]
Timed = tuple[str, Callable[[], Tensor], bool]  # variant, its layers, whether in a graph
Ours = tuple[LaunchShape, Tiling | None, int]  # launch shape, tiles, programs an SM
DECODES: Final = (
    ("gpt-2", 1, 128), ("gpt-2-large", 1, 1024), ("llama-3.2-1b", 1, 1024),
    ("llama-3.1-8b", 1, 4096), ("llama-3.2-1b", 8, 4096), ("llama-3.2-1b", 32, 4096),
    ("llama-3.1-8b", 8, 1024),
)  # fmt: skip
PROMPTS: Final = (("gpt-2", 1, 1536), ("llama-3.2-1b", 1, 4096), ("llama-3.1-8b", 1, 2048))
COMPILED: Final = (("gpt-2", 1, 128), ("llama-3.2-1b", 1, 1024))
COLD_BYTES: Final = 400e6


@dataclass
class Stack:
    """Layers of one block with weights and caches of their own, ready to run in any variant."""

    spec: BlockSpec
    batch: int
    length: int  # tokens of a sequence, the new ones included
    new: int
    dtype: torch.dtype
    device: torch.device
    layers: list[Weights]
    caches: list[tuple[Tensor, Tensor]]  # [sequences, kv_heads, room, head_dim]
    rope: Tensor | None
    x: Tensor

    @classmethod
    def build(
        cls, spec: BlockSpec, batch: int, length: int, new: int, clock: Clock,
        dtype: torch.dtype = torch.bfloat16, cold_bytes: float = COLD_BYTES,
    ) -> "Stack":  # fmt: skip
        """Draw as many layers as fill *cold_bytes*, two at the least."""
        width = dtype.itemsize
        count = max(2, math.ceil(cold_bytes / (spec.weights * width)))
        draw = torch.Generator(device=clock.device).manual_seed(7)
        shape = (batch, spec.kv_heads, length + 8, spec.head_dim)

        def rand(*size: int) -> Tensor:
            return torch.randn(*size, generator=draw, device=clock.device).to(dtype)

        rope = reference.rope_table(length + 8, spec.head_dim).float().to(clock.device)
        return cls(
            spec, batch, length, new, dtype, clock.device,
            [random_weights(spec, dtype, clock.device, seed) for seed in range(count)],
            [(rand(*shape), rand(*shape)) for _ in range(count)],
            rope if spec.rope else None, rand(batch * new, spec.hidden),
        )  # fmt: skip

    def positions(self) -> Tensor:
        """Return the positions of all new rows."""
        own = range(self.length - self.new, self.length)
        return torch.tensor([p for _ in range(self.batch) for p in own], dtype=torch.int32,
                            device=self.device)  # fmt: skip

    def fused(self, shape: Shape, grid: int, tiling: Tiling) -> Callable[[], Tensor]:
        """Return the layers one after another through our kernels."""
        rows = self.batch * self.new
        scratch = self.dtype if shape == "prefill" else torch.float32
        space = Workspace(self.spec, rows, tiling, self.device, scratch, shape == "prefill")
        if shape == "prefill":
            past = [self.length - self.new] * self.batch
            batch = Batch.prompts(past, [self.new] * self.batch, tiling.bq, self.device)
        else:
            batch = Batch.decode(self.positions())
        caches = [
            Cache.contiguous(k.transpose(1, 2), v.transpose(1, 2)) for k, v in self.caches
        ]  # fmt: skip

        def work() -> Tensor:
            x = self.x
            for weights, cache in zip(self.layers, caches, strict=True):
                x = run(self.spec, weights, self.rope, x, cache, batch, space, tiling, shape, grid)
            return x

        return work

    def baseline(self, block: Callable[..., Tensor]) -> Callable[[], Tensor]:
        """Return the layers one after another through a baseline."""
        pos = self.positions()
        dense = [baselines.Dense(k, v, pos, self.length) for k, v in self.caches]
        for one in dense:
            one.prepare(self.rope, self.dtype)

        def work() -> Tensor:
            x = self.x
            for weights, held in zip(self.layers, dense, strict=True):
                held.steps.clear()
                x = block(self.spec, weights, self.rope, x, held)
            return x

        return work


def decode_times(
    clock: Clock, model: str, batch: int, length: int, grid: int, compiled: bool = False,
    spec: BlockSpec | None = None, cold_bytes: float = COLD_BYTES, repeats: int = 20,
) -> Iterator[Row]:  # fmt: skip
    """Yield microseconds a block of every variant at one shape of decode."""
    spec = spec or spec_of(hardware.model(model))
    stack = Stack.build(spec, batch, length, 1, clock, cold_bytes=cold_bytes)
    tiling = tiling_for(spec, "latency_optimized", bounds.DECODE, batch)
    warm, both = replace(tiling, warm=True), replace(tiling, warm=True, dependent=True)
    dependent = replace(tiling, dependent=True)
    works: list[Timed] = [
        ("fused", stack.fused("mega", grid, tiling), True),
        ("fused_warm", stack.fused("mega", grid, warm), True),
        ("split5", stack.fused("split5", 2 * grid, tiling), True),
        ("split5_dependent", stack.fused("split5", 2 * grid, dependent), True),
        ("split5_dependent_warm", stack.fused("split5", 2 * grid, both), True),
        ("sdpa_graph", stack.baseline(baselines.strong), True),
        ("three_stage_graph", stack.baseline(baselines.three_stage), True),
        ("three_stage", stack.baseline(baselines.three_stage), False),
        ("hf_graph", stack.baseline(baselines.hf_style), True),
        ("hf", stack.baseline(baselines.hf_style), False),
    ]
    if clock.cuda:  # without co-residency two programs would wait for each other for ever
        works.insert(2, ("fused_2_a_sm", stack.fused("mega", 2 * grid, tiling), True))
    if compiled:
        works.append(("strong", stack.baseline(torch.compile(baselines.strong)), True))
    head = {"kind": "time", "phase": "decode", "model": model, "batch": batch, "length": length}
    entries: dict[str, Ours] = {
        "fused": ("mega", tiling, 1), "fused_warm": ("mega", warm, 1),
        "fused_2_a_sm": ("mega", tiling, 2), "split5": ("split5", tiling, 1),
        "split5_dependent": ("split5", dependent, 1), "split5_dependent_warm": ("split5", both, 1),
        "strong": ("torch", None, 1), "sdpa_graph": ("torch", None, 1),
    }  # fmt: skip
    for row in _times(clock, head, works, len(stack.layers), repeats):
        yield row
        if row["variant"] in entries and "us" in row:
            shape, tiles, per_sm = entries[row["variant"]]
            yield tuned.row(
                spec, bounds.DECODE, "bf16", batch, length, shape, row["us"], tiles, per_sm
            )


def prompt_times(
    clock: Clock, model: str, batch: int, length: int, capability: float,
    spec: BlockSpec | None = None, cold_bytes: float = COLD_BYTES, repeats: int = 10,
) -> Iterator[Row]:  # fmt: skip
    """Yield microseconds a block of every variant at one shape of prefill."""
    spec = spec or spec_of(hardware.model(model))
    stack = Stack.build(spec, batch, length, length, clock, cold_bytes=cold_bytes)
    tiling = prompt_tiling(spec, batch * length, capability)
    many = 1 << 16 if clock.cuda else 1  # programs: more than tasks, so that each takes one
    works: list[Timed] = [
        ("fused", stack.fused("prefill", many, tiling), True),
        ("sdpa_graph", stack.baseline(baselines.strong), True),
        ("three_stage_graph", stack.baseline(baselines.three_stage), True),
    ]
    head = {"kind": "time", "phase": "prefill", "model": model, "batch": batch, "length": length}
    yield from _times(clock, head, works, len(stack.layers), repeats)


def _times(
    clock: Clock, head: Row, works: list[Timed], layers: int, repeats: int
) -> Iterator[Row]:  # fmt: skip
    for name, work, graphed in works:
        row = {**head, "variant": name, "layers": layers}
        try:
            seconds = clock.seconds(clock.graph(work) if graphed else work, repeats)
        except Exception as error:  # one variant that cannot run must not hide the others
            clock.wait()  # raises where the device is beyond use: then a fresh process goes on
            lines = str(error).splitlines()
            told = lines[0] if lines else "no message"
            yield {**row, "error": f"{type(error).__name__}: {told}"}
            continue
        yield {**row, "us": seconds / layers * 1e6}
