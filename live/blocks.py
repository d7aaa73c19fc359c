"""The decoder's blocks on the Triton kernels of ``kernels/``, over either KV layout.

A pass of decodes alone is one cooperative launch a block (``mega``) or five (``split5``), as
``kernels.plan`` has it for the card; the bits are the same. A pass with prompt chunks is five. The
cache stays where it is: page tables name the blocks of a paged cache, and for contiguous
blocks, whose layers lie as far apart as their room is long, the offset of each sequence's layer.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from dispatch.hardware import Gpu
from kernels.fallback import Launcher
from kernels.launch import Batch, Cache, Shape, Weights, Workspace
from kernels.plan import BlockPlan, choose, installed_triton, known_card, launch_shape, model_of
from kernels.selftest import failure
from kernels.spec import MOST_DECODES, BlockSpec, Tiling, decode_tiling, prompt_tiling
from kernels.tuned import bucket
from live.kv import ContiguousKv, KvCache, PagedKv
from live.model import Llama
from live.sequence import Run

_PROGRAMS_ON_CPU: Final = 1  # under Triton's interpreter programs run one after the other
_PRECISIONS: Final = {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}


class KernelBlocks:
    """Runs the blocks of *model* for one engine; the workspace belongs to its stream alone."""

    def __init__(self, model: Llama) -> None:
        shape = model.shape
        self.model = model
        self.spec = BlockSpec(
            shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.ffn, eps=shape.eps
        )
        self._weights = [
            Weights(b.norm1, b.qkv, b.out, b.norm2, b.gate_up, b.down) for b in model.blocks
        ]
        cuda = model.device.type == "cuda"
        self._programs = _PROGRAMS_ON_CPU
        self._capability = 9.0
        if cuda:
            self._programs = torch.cuda.get_device_properties(model.device).multi_processor_count
            major, minor = torch.cuda.get_device_capability(model.device)
            self._capability = major + minor / 10
        self._launches: Shape = "mega" if cuda else "split5"
        self._spaces: dict[bool, Workspace] = {}
        self.launcher = Launcher()
        self._card = known_card(torch.cuda.get_device_name(model.device)) if cuda else None
        self._plans: dict[tuple[str, int, int], BlockPlan] = {}

    def self_test(self) -> str:
        """Return why the kernels must not be used here; "" where they give right numbers.

        Where only the single launch fails, five launches take its place, and that is said.
        """
        device, dtype = self.model.device, self.model.dtype
        why = failure(self.spec, "prefill", dtype, device, self._programs)
        why = why or failure(self.spec, "split5", dtype, device, self._programs)
        if not why and self._launches == "mega":
            told = failure(self.spec, "mega", dtype, device, self._programs)
            if told:
                print(f"zerolayer: {told}; decodes run as five launches", file=sys.stderr)
                self._launches = "split5"
        return why

    def forward(self, tokens: Tensor, last: Tensor, cache: KvCache, runs: Sequence[Run]) -> Tensor:
        """Return the logits [len(last), vocab] at rows *last* of the flat batch *tokens* [T]."""
        with torch.inference_mode():
            return self._forward(tokens, last, cache, runs)

    def _forward(self, tokens: Tensor, last: Tensor, cache: KvCache, runs: Sequence[Run]) -> Tensor:
        model, shape = self.model, self.model.shape
        x = model.embed[tokens].contiguous()
        decodes = len(runs) <= MOST_DECODES and all(r.count == 1 for r in runs)
        tiling = self._tiling(len(tokens), decodes)
        launches, programs = self._launches if decodes else "prefill", self._programs
        if decodes and launches == "mega" and self._card is not None:
            plan = self.plan(self._card, runs)
            launches, programs = self._planned(plan)
            tiling = replace(tiling, warm=plan.tiling.warm, dependent=plan.tiling.dependent)
        batch = self._batch(runs, decodes, tiling)
        space = self._space(len(tokens), tiling, decodes)
        tables = _Tables(cache, runs)
        for layer, weights in enumerate(self._weights):
            x = self.launcher.run(
                self.spec, weights, model.rope, x, tables.of(layer), batch, space, tiling,
                launches, programs,
            )  # fmt: skip
        x = functional.rms_norm(x[last], (shape.hidden,), model.norm, shape.eps)
        return x @ model.head.T

    def plan(self, card: Gpu, runs: Sequence[Run]) -> BlockPlan:
        """Return the plan of a pass of decodes on *card*, by the hint that all of its jobs share.

        Hints break ties between launch shapes alone: how a context is split stays the engine's, so
        that a request's numbers do not hang on its company.
        """
        hints = {r.sequence.job.kernel_hint for r in runs}
        hint = hints.pop() if len(hints) == 1 else ""
        longest = max(r.past + 1 for r in runs)
        key = (hint, bucket(len(runs)), bucket(longest))
        if key not in self._plans:
            precision = _PRECISIONS[self.model.dtype]
            self._plans[key] = choose(
                model_of(self.spec), card, hint, batch=key[1], length=key[2], precision=precision,
                triton=installed_triton(),
            )  # fmt: skip
        return self._plans[key]

    def _planned(self, plan: BlockPlan) -> tuple[Shape, int]:
        five = launch_shape(plan) == "split5"
        return "split5" if five else "mega", self._programs * (1 if five else plan.programs_per_sm)

    def _tiling(self, rows: int, decodes: bool) -> Tiling:
        if decodes:
            return decode_tiling(self.spec, rows)
        return prompt_tiling(self.spec, rows, self._capability)

    def _batch(self, runs: Sequence[Run], decodes: bool, tiling: Tiling) -> Batch:
        device = self.model.device
        if decodes:
            return Batch.decode(torch.tensor([r.past for r in runs], device=device))
        return Batch.prompts([r.past for r in runs], [r.count for r in runs], tiling.bq, device)

    def _space(self, rows: int, tiling: Tiling, decodes: bool) -> Workspace:
        space = self._spaces.get(decodes)
        if space is None or space.rows < rows or (decodes and space.splits < tiling.splits):
            room = max(rows, MOST_DECODES if decodes else 256)
            space = Workspace(self.spec, room, tiling, self.model.device, prompt=not decodes)
            self._spaces[decodes] = space
        return space


class _Tables:
    """Where the keys and values of each sequence of a pass lie, layer by layer."""

    def __init__(self, cache: KvCache, runs: Sequence[Run]) -> None:
        self._cache = cache
        device = cache.memory.device
        if isinstance(cache, PagedKv):
            width = max(len(r.held.pages) for r in runs)
            rows = [r.held.pages + r.held.pages[:1] * (width - len(r.held.pages)) for r in runs]
            self._table = torch.tensor(rows, dtype=torch.int64, device=device)
        else:
            self._address = torch.tensor([r.held.address for r in runs], device=device)
            self._room = torch.tensor([r.held.room_tokens for r in runs], device=device)

    def of(self, layer: int) -> Cache:
        """Return the cache of one *layer* as the kernels address it."""
        cache = self._cache
        if isinstance(cache, PagedKv):
            return Cache.paged(cache.pages[:, layer, 0], cache.pages[:, layer, 1], self._table)
        assert isinstance(cache, ContiguousKv)
        shape = cache.shape
        flat = cache.memory.view(cache.dtype)
        token = shape.kv_heads * shape.head_dim
        first = self._address // cache.dtype.itemsize + 2 * layer * self._room * token
        k_table, v_table = first[:, None], (first + self._room * token)[:, None]
        # One page holds any position. Its length is a constant of the compiled kernel: that of the
        # longest room of each pass would have it compiled again for every new room.
        return Cache(
            flat, flat, k_table.contiguous(), v_table.contiguous(), shape.context_tokens, 1, token,
            shape.head_dim,
        )  # fmt: skip
