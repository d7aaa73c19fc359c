# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The numbers that decide first: sustained rates, and what a launch and a barrier cost."""

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl

from kernels.gpu.clock import Clock
from kernels.phases import wait_for_all

Row = dict[str, Any]


@triton.jit
def tick_kernel(out):
    """Do next to nothing, in one program."""
    tl.store(out, 1)


@triton.jit
def barriers_kernel(bar, COUNT: tl.constexpr):
    """Come together COUNT times."""
    for _ in range(COUNT):
        wait_for_all(bar)


def ceilings(clock: Clock, size_bytes: int = 1 << 30, side: int = 8192) -> Iterator[Row]:
    """Yield copy and read bandwidth in TB/s, and the rate of a square BF16 product in TFLOP/s."""
    a = torch.empty(size_bytes // 2, dtype=torch.bfloat16, device=clock.device).normal_()
    b = torch.empty_like(a)
    seconds = clock.seconds(clock.graph(lambda: b.copy_(a)))
    yield {"kind": "ceiling", "what": "copy", "tb_per_s": 2 * size_bytes / seconds * 1e-12}
    seconds = clock.seconds(clock.graph(lambda: torch.sum(a, dtype=torch.float32)))
    yield {"kind": "ceiling", "what": "read", "tb_per_s": size_bytes / seconds * 1e-12}
    x = torch.randn(side, side, device=clock.device).to(torch.bfloat16)
    y = torch.randn(side, side, device=clock.device).to(torch.bfloat16)
    out = torch.empty_like(x)
    seconds = clock.seconds(clock.graph(lambda: torch.mm(x, y, out=out)))
    yield {"kind": "ceiling", "what": "matmul", "tflops": 2 * side**3 / seconds * 1e-12}


def launch_costs(clock: Clock, programs: int, few: int = 64, many: int = 256) -> Iterator[Row]:
    """Yield graph_us, eager_us, once_us and barrier_us, each a slope so that fixed parts drop out.

    If a barrier costs as much as a launch, one launch cannot beat five: then stop tuning it.
    """
    out = torch.zeros(1, dtype=torch.int32, device=clock.device)
    bar = torch.zeros(1, dtype=torch.int32, device=clock.device)

    def chain(count: int) -> float:
        def work() -> None:
            for _ in range(count):
                tick_kernel[(1,)](out)

        return clock.seconds(clock.graph(work))

    def cooperative(count: int) -> float:
        def work() -> None:
            for _ in range(count):
                barriers_kernel[(programs,)](bar, 1, launch_cooperative_grid=True)

        return clock.seconds(clock.graph(work))

    def round_of(count: int) -> float:
        def work() -> None:
            barriers_kernel[(programs,)](bar, count, launch_cooperative_grid=True)

        return clock.seconds(clock.graph(work))

    step = many - few
    barrier_s = (round_of(many) - round_of(few)) / step
    yield {"kind": "cost", "what": "graph_us", "us": (chain(many) - chain(few)) / step * 1e6}
    eager = clock.host_seconds(lambda: tick_kernel[(1,)](out), many)
    yield {"kind": "cost", "what": "eager_us", "us": eager * 1e6}
    once_s = (cooperative(many) - cooperative(few)) / step - barrier_s
    yield {"kind": "cost", "what": "once_us", "us": max(once_s, 0.0) * 1e6}
    yield {"kind": "cost", "what": "barrier_us", "us": barrier_s * 1e6}
