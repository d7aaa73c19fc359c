"""Try tiles for a block on a GPU, keep the quickest right ones: ``zerolayer kernels tune``.

A candidate counts only where its numbers are those of the plain tiles, up to the rounding of their
type. Splits are no candidates: they hang on a request's own length alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from dispatch import hardware
from dispatch.hints import LaunchShape
from kernels import baselines, bounds, tuned
from kernels.gpu.check import told_of
from kernels.gpu.clock import Clock
from kernels.gpu.shapes import COLD_BYTES, Stack
from kernels.plan import tiling_for
from kernels.spec import BlockSpec, Tiling, spec_of

Row = dict[str, Any]
Candidate = tuple[LaunchShape, Tiling, int]
NEAR: Final = 2e-2  # of the plain tiles' norm: another order of sums over some layers in BF16


def candidates(base: Tiling, quick: bool = False) -> Iterator[Candidate]:
    """Yield launch shape, tiles and programs an SM, the plain ones of each shape first."""
    tiles = [base]
    if not quick:
        tiles += [replace(base, bn=bn) for bn in (16, 32, 64) if bn != base.bn]
        tiles += [replace(base, warps=8), replace(base, stages=2), replace(base, stages=4)]
        tiles += [replace(base, bk=base.bk * 2), replace(base, bk=max(base.bk // 2, 32))]
    for one in tiles:
        for per_sm in (1,) if quick else (1, 2):
            yield "mega", one, per_sm
            yield "mega", replace(one, warm=True), per_sm
        yield "split5", one, 1
        yield "split5", replace(one, dependent=True), 1
        yield "split5", replace(one, dependent=True, warm=True), 1


def rows(
    clock: Clock, model: str, batch: int, length: int, budget_s: float = 120.0,
    spec: BlockSpec | None = None, cold_bytes: float = COLD_BYTES, quick: bool = False,
    repeats: int = 10,
) -> Iterator[Row]:  # fmt: skip
    """Yield an entry of the table for every candidate that runs right, and a row for each other.

    The strong baseline comes first: an entry without it would be compared with a prediction.
    """
    spec = spec or spec_of(hardware.model(model))
    stack = Stack.build(spec, batch, length, 1, clock, cold_bytes=cold_bytes)
    layers = len(stack.layers)
    grid = 1
    if clock.cuda:
        grid = torch.cuda.get_device_properties(clock.device).multi_processor_count
    begin = clock.spent_s
    strong = stack.baseline(baselines.strong)
    seconds = clock.seconds(clock.graph(strong), repeats)
    yield tuned.row(spec, bounds.DECODE, "bf16", batch, length, "torch", seconds / layers * 1e6)
    wanted: Tensor | None = None
    for shape, tiling, per_sm in candidates(
        tiling_for(spec, "latency_optimized", bounds.DECODE, batch), quick
    ):
        if clock.spent_s - begin > budget_s:
            yield {"kind": "left_out", "what": shape, "shape": [model, batch, length]}
            continue
        if shape == "mega" and per_sm > 1 and not clock.cuda:
            continue  # programs would wait for each other for ever, one after the other
        programs = grid * (per_sm if shape == "mega" else 2)
        row = tuned.row(spec, bounds.DECODE, "bf16", batch, length, shape, 1.0, tiling, per_sm)
        try:
            work = stack.fused(shape, programs, tiling)  # type: ignore[arg-type]
            found, seconds = _timed(clock, work, repeats)
        except Exception as error:
            clock.wait()  # raises where the device is beyond use
            yield {**row, "kind": "failed", "error": told_of(error)}
            continue
        wanted = found if wanted is None else wanted
        gap = float((found.double() - wanted.double()).norm() / wanted.double().norm())
        if not gap <= NEAR:
            yield {**row, "kind": "failed", "error": f"off by {gap:.2g}, so it is not used"}
            continue
        yield {**row, "us": seconds / layers * 1e6}


def _timed(clock: Clock, work: Callable[[], Tensor], repeats: int) -> tuple[Tensor, float]:
    found = work().clone()
    return found, clock.seconds(clock.graph(work), repeats)
