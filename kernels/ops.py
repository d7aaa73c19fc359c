# mypy: disable-error-code="untyped-decorator"
"""The block as an opaque torch operator, so that torch.compile leaves it whole.

``torch.ops.zerolayer.block`` takes tensors and plain numbers; :func:`bind` is the typed way in.
"""

import json
from collections.abc import Callable
from dataclasses import asdict

import torch
from torch import Tensor

from kernels.launch import Batch, Cache, Weights, Workspace, run
from kernels.spec import BlockSpec, Tiling

_NAMES = (
    "norm1", "qkv", "out", "norm2", "up", "down", "norm1_b", "qkv_b", "out_b", "norm2_b", "up_b",
    "down_b",
)  # fmt: skip


@torch.library.custom_op("zerolayer::block", mutates_args=("k", "v", "scratch"))
def _block(
    x: Tensor, weights: list[Tensor], rope: Tensor, k: Tensor, v: Tensor, k_table: Tensor,
    v_table: Tensor, pos: Tensor, seq: Tensor, tile_first: Tensor, tile_end: Tensor,
    scratch: list[Tensor], strides: list[int], how: str,
) -> Tensor:  # fmt: skip
    told = json.loads(how)
    spec, tiling = BlockSpec(**told["spec"]), Tiling(**told["tiling"])
    named = dict(zip(told["weights"], weights, strict=True))
    cache = Cache(k, v, k_table, v_table, *strides)
    space = Workspace.of(scratch, told["rows"], told["splits"])
    return run(
        spec, Weights(**named), rope if spec.rope else None, x, cache,
        Batch(pos, seq, tile_first, tile_end), space, tiling, told["shape"], told["grid"],
    )  # fmt: skip


@_block.register_fake
def _(
    x: Tensor, weights: list[Tensor], rope: Tensor, k: Tensor, v: Tensor, k_table: Tensor,
    v_table: Tensor, pos: Tensor, seq: Tensor, tile_first: Tensor, tile_end: Tensor,
    scratch: list[Tensor], strides: list[int], how: str,
) -> Tensor:  # fmt: skip
    return torch.empty_like(x)


def bind(
    spec: BlockSpec, weights: Weights, rope: Tensor | None, cache: Cache, batch: Batch,
    space: Workspace, tiling: Tiling, shape: str, grid: int,
) -> Callable[[Tensor], Tensor]:  # fmt: skip
    """Return x -> block(x) through the operator; arguments as :func:`kernels.launch.run`."""
    given = {n: t for n in _NAMES if (t := getattr(weights, n)) is not None}
    told = {
        "spec": asdict(spec), "tiling": asdict(tiling), "shape": shape, "grid": grid,
        "weights": list(given), "rows": space.rows, "splits": space.splits,
    }  # fmt: skip
    how, tensors, table = json.dumps(told), list(given.values()), rope
    strides = [cache.page_tokens, cache.page_stride, cache.token_stride, cache.head_stride]
    scratch = [*space.scratch, space.count, space.bar]
    k, v, k_table, v_table = cache.k, cache.v, cache.k_table, cache.v_table
    pos, seq, first, end = batch.pos, batch.seq, batch.tile_first, batch.tile_end

    def block(x: Tensor) -> Tensor:
        found: Tensor = torch.ops.zerolayer.block(
            x, tensors, x if table is None else table, k, v, k_table, v_table, pos, seq, first,
            end, scratch, strides, how,
        )  # fmt: skip
        return found

    return block
