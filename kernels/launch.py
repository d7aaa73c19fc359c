"""Launch the block: weights, cache and workspace as tensors, and the three launch shapes.

One workspace belongs to one stream: two launches on one corrupt each other, or hang.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import Tensor

from dispatch.errors import InputError
from kernels.block import block_kernel
from kernels.spec import DTYPES, LEAST_CAPABILITY, BlockSpec, Tiling, padded

Shape = Literal["mega", "split5", "prefill"]
PHASES: Final = ("qkv", "attention", "out", "up", "down")


@dataclass(slots=True)
class Weights:
    """Weights of one block, [out, in]; q, k and v stacked, gate over up; biases may be None."""

    norm1: Tensor
    qkv: Tensor
    out: Tensor
    norm2: Tensor
    up: Tensor
    down: Tensor
    norm1_b: Tensor | None = None
    qkv_b: Tensor | None = None
    out_b: Tensor | None = None
    norm2_b: Tensor | None = None
    up_b: Tensor | None = None
    down_b: Tensor | None = None

    @property
    def dtype(self) -> torch.dtype:
        """Of weights, activations and cache."""
        return self.qkv.dtype

    def check(self, spec: BlockSpec) -> None:
        """Raise InputError with every tensor that does not fit *spec*."""
        sizes = {
            "norm1": (spec.hidden,), "norm2": (spec.hidden,),
            "qkv": (spec.q_width + 2 * spec.kv_width, spec.hidden),
            "out": (spec.hidden, spec.q_width), "up": (spec.up_rows, spec.hidden),
            "down": (spec.hidden, spec.ffn),
        }  # fmt: skip
        if spec.norm == "layer":
            sizes |= {"norm1_b": (spec.hidden,), "norm2_b": (spec.hidden,)}
        if spec.qkv_bias:
            sizes |= {"qkv_b": (spec.q_width + 2 * spec.kv_width,)}
        if spec.bias:
            sizes |= {"out_b": (spec.hidden,), "up_b": (spec.up_rows,), "down_b": (spec.hidden,)}
        wrong = [
            f"{name} is {_told(getattr(self, name))}, not {size} and contiguous"
            for name, size in sizes.items() if not _fits(getattr(self, name), size, self.dtype)
        ]  # fmt: skip
        if str(self.dtype).removeprefix("torch.") not in DTYPES:
            wrong.append(f"{self.dtype} weights; the kernels know {', '.join(DTYPES)}")
        if wrong:
            raise InputError.at("weights of the block", "; ".join(wrong))


def _fits(tensor: Tensor | None, size: tuple[int, ...], dtype: torch.dtype) -> bool:
    if tensor is None:
        return False
    return tuple(tensor.shape) == size and tensor.is_contiguous() and tensor.dtype == dtype


def _told(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tuple(tensor.shape)} {tensor.dtype}"


@dataclass(slots=True)
class Cache:
    """Keys and values of one layer behind page tables, in elements from ``k`` and ``v``.

    ``k_table`` and ``v_table`` [sequences, pages] int64 name pages; page n begins at n x
    ``page_stride``. A contiguous sequence is one page that is as long as its room.
    """

    k: Tensor
    v: Tensor
    k_table: Tensor
    v_table: Tensor
    page_tokens: int
    page_stride: int
    token_stride: int
    head_stride: int

    @classmethod
    def paged(cls, k: Tensor, v: Tensor, table: Tensor) -> "Cache":
        """Wrap k and v [pages, page_tokens, kv_heads, head_dim] (any strides but the last)."""
        assert k.stride() == v.stride(), "keys and values lie alike"
        assert k.stride(-1) == 1, "a head lies in one piece"
        table = table.to(torch.int64).contiguous()
        return cls(k, v, table, table, k.shape[1], *k.stride()[:3])

    @classmethod
    def contiguous(cls, k: Tensor, v: Tensor) -> "Cache":
        """Wrap k and v [sequences, room, kv_heads, head_dim]."""
        lines = torch.arange(k.shape[0], device=k.device, dtype=torch.int64)[:, None]
        return cls.paged(k, v, lines.contiguous())


class Workspace:
    """Scratch of one stream: intermediates, counters and the barrier, which reset themselves."""

    def __init__(
        self, spec: BlockSpec, rows: int, tiling: Tiling, device: torch.device,
        dtype: torch.dtype = torch.float32, prompt: bool = False,
    ) -> None:  # fmt: skip
        def room(size: int, kind: torch.dtype = dtype) -> Tensor:
            return torch.empty(max(size, 1), dtype=kind, device=device)

        self.rows, self.splits = rows, 1 if prompt else tiling.splits
        cells = 0 if self.splits == 1 else rows * spec.heads * self.splits
        self.q = room(rows * spec.q_width)
        self.part = room(cells * spec.head_dim, torch.float32)
        self.tops = room(cells * 2, torch.float32)
        self.attn = room(rows * spec.q_width)
        self.mid = room(rows * spec.hidden, torch.float32)
        self.ffn = room(rows * spec.ffn)
        self.count = torch.zeros(rows * spec.kv_heads, dtype=torch.int32, device=device)
        self.bar = torch.zeros(1, dtype=torch.int32, device=device)

    @classmethod
    def of(cls, tensors: Sequence[Tensor], rows: int, splits: int) -> "Workspace":
        """Return the workspace that :attr:`scratch`, counters and barrier make up."""
        space = object.__new__(cls)
        space.q, space.part, space.tops, space.attn, space.mid, space.ffn = tensors[:6]
        space.count, space.bar = tensors[6:]
        space.rows, space.splits = rows, splits
        return space

    @property
    def scratch(self) -> tuple[Tensor, ...]:
        """Every intermediate, in the kernel's order without the counters."""
        return self.q, self.part, self.tops, self.attn, self.mid, self.ffn

    @property
    def size_bytes(self) -> int:
        """Bytes of all of it."""
        return sum(t.numel() * t.element_size() for t in (*self.scratch, self.count, self.bar))

    def poison(self) -> None:
        """Fill every intermediate with NaN: what is read before it is written shows."""
        for tensor in self.scratch:
            tensor.fill_(float("nan"))


@dataclass(slots=True)
class Batch:
    """New tokens of a pass: positions (-1: padded slot), lines of the tables, prompt tiles."""

    pos: Tensor  # [T] int32
    seq: Tensor  # [T] int32
    tile_first: Tensor
    tile_end: Tensor

    @classmethod
    def decode(cls, pos: Tensor) -> "Batch":
        """One token a sequence, in the order of the tables' lines."""
        lines = torch.arange(len(pos), dtype=torch.int32, device=pos.device)
        return cls(pos.to(torch.int32).contiguous(), lines, lines, lines)

    @classmethod
    def prompts(cls, past: Sequence[int], new: Sequence[int], bq: int, device: Any) -> "Batch":
        """``new[i]`` tokens of sequence i after ``past[i]``, one after another."""
        pos: list[int] = []
        seq: list[int] = []
        first: list[int] = []
        end: list[int] = []
        for line, (before, count) in enumerate(zip(past, new, strict=True)):
            start = len(pos)
            pos += range(before, before + count)
            seq += [line] * count
            for at in range(start, start + count, bq):
                first.append(at)
                end.append(min(at + bq, start + count))
        parts = [torch.tensor(p, dtype=torch.int32, device=device) for p in (pos, seq, first, end)]
        return cls(*parts)


def require_capability(device: torch.device) -> None:
    """Raise InputError where *device* is a GPU below compute capability 8.0 (no BF16 there)."""
    if device.type != "cuda":
        return
    major, minor = torch.cuda.get_device_capability(device)
    if major + minor / 10 < LEAST_CAPABILITY:
        name = torch.cuda.get_device_name(device)
        raise InputError.at(
            name, f"compute capability {major}.{minor}",
            "the fused kernels need 8.0 (Ampere) or later; run a three-stage plan there",
        )  # fmt: skip


def can_depend(device: torch.device) -> bool:
    """Return whether launches on *device* may start before the one before has ended: 9.0 on."""
    return device.type == "cuda" and bool(torch.cuda.get_device_capability(device) >= (9, 0))


def run(
    spec: BlockSpec, weights: Weights, rope: Tensor | None, x: Tensor, cache: Cache, batch: Batch,
    space: Workspace, tiling: Tiling, shape: Shape, grid: int, out: Tensor | None = None,
    phases: Sequence[tuple[int, int]] | None = None,
) -> Tensor:  # fmt: skip
    """Run the block over x [T, hidden] and return its output; new keys and values go to *cache*.

    *grid* is the number of programs; for ``mega`` all must be resident at once. *phases* overrides
    which phases each launch runs. Raises InputError where tensors do not fit.
    """
    require_capability(x.device)
    weights.check(spec)
    if x.shape[1:] != (spec.hidden,) or x.dtype != weights.dtype or not x.is_contiguous():
        raise InputError.at("x", _told(x), f"give [T, {spec.hidden}] {weights.dtype}, contiguous")
    if x.shape[0] > space.rows or (shape != "prefill" and space.splits < tiling.splits):
        raise InputError.at(
            "workspace", f"{space.rows} rows, {space.splits} splits", "make it anew"
        )
    if spec.rope and rope is None:
        raise InputError.at("rope", "no table", "give cos and sin as [2, context, head_dim / 2]")
    out = torch.empty_like(x) if out is None else out
    if x.shape[0] == 0:
        return out
    given = arguments(spec, weights, rope, x, cache, batch, space, out)
    dependent = tiling.dependent and shape != "mega" and can_depend(x.device)
    fixed = constants(spec, tiling, cache.page_tokens, shape == "prefill")
    fixed |= {"WARM": tiling.warm and x.device.type == "cuda", "DEPENDENT": dependent}
    launches = phases or ([(0, 5)] if shape == "mega" else [(i, i + 1) for i in range(5)])
    work = tasks(spec, tiling, x.shape[0], len(batch.tile_first), shape == "prefill")
    for low, high in launches:
        block_kernel[(min(grid, max(work[low:high])),)](
            *given, **fixed, LO=low, HI=high, num_warps=tiling.warps,
            num_stages=tiling.stages, launch_cooperative_grid=high - low > 1,
            launch_pdl=dependent, enable_fp_fusion=True,
        )  # fmt: skip
    return out


def tasks(
    spec: BlockSpec, tiling: Tiling, rows: int, prompt_tiles: int, prompt: bool
) -> list[int]:  # fmt: skip
    """Return how many tasks each phase has; more programs than that have nothing to do."""
    down = math.ceil(rows / tiling.bm)
    pairs = (spec.q_width + 2 * spec.kv_width) // 2
    return [
        down * math.ceil(pairs / (tiling.bn // 2)),
        prompt_tiles * spec.heads if prompt else rows * spec.kv_heads * tiling.splits,
        down * math.ceil(spec.hidden / tiling.bn), down * math.ceil(spec.up_rows / tiling.bn),
        down * math.ceil(spec.hidden / tiling.bn),
    ]  # fmt: skip


def arguments(
    spec: BlockSpec, w: Weights, rope: Tensor | None, x: Tensor, cache: Cache, batch: Batch,
    space: Workspace, out: Tensor,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the kernel's runtime arguments in order; what a layout lacks is some other pointer."""

    def held(tensor: Tensor | None) -> Tensor:
        return w.norm1 if tensor is None else tensor

    table = w.norm1 if rope is None else rope
    return (
        x, out, batch.pos, batch.seq, x.shape[0], batch.tile_first, batch.tile_end,
        len(batch.tile_first), w.norm1, held(w.norm1_b), w.qkv, held(w.qkv_b), w.out,
        held(w.out_b), w.norm2, held(w.norm2_b), w.up, held(w.up_b), w.down, held(w.down_b), table,
        cache.k, cache.v, cache.k_table, cache.v_table, cache.k_table.shape[1], cache.page_stride,
        cache.token_stride, cache.head_stride, space.q, space.part, space.tops, space.count,
        space.attn, space.mid, space.ffn, space.bar, spec.eps, spec.head_dim**-0.5,
        table.shape[1] if rope is not None else 0,
    )  # fmt: skip


def constants(spec: BlockSpec, tiling: Tiling, page_tokens: int, prompt: bool) -> dict[str, Any]:
    """Return the kernel's compile-time arguments but LO, HI and what is for a GPU alone."""
    return {
        "D": spec.hidden, "H": spec.heads, "KV": spec.kv_heads, "HD": spec.head_dim,
        "HP": padded(spec.head_dim), "F": spec.ffn, "NORM": 1 if spec.norm == "rms" else 2,
        "GATED": spec.gated, "ROPE": spec.rope, "QKV_BIAS": spec.qkv_bias, "BIAS": spec.bias,
        "PAGE": page_tokens, "BM": tiling.bm, "BN": tiling.bn, "BK": tiling.bk,
        "GP": padded(spec.group), "BT": tiling.bt, "BQ": tiling.bq, "SPLITS": tiling.splits,
        "LEAST": tiling.least, "PROMPT": prompt,
    }  # fmt: skip
