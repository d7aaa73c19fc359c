"""Run one variant once under the CUDA profiler: ``python -m kernels.gpu.once fused MODEL B L``."""

import sys

import torch

from dispatch import hardware
from kernels import baselines, bounds
from kernels.gpu.clock import Clock
from kernels.gpu.shapes import Stack
from kernels.plan import tiling_for
from kernels.spec import spec_of


def main(variant: str, model: str, batch: int, length: int) -> None:
    """Warm up with one layer, then profile another, whose weights are not in L2."""
    clock = Clock(torch.device("cuda"))
    spec = spec_of(hardware.model(model))
    stack = Stack.build(spec, batch, length, 1, clock)
    grid = torch.cuda.get_device_properties(0).multi_processor_count
    tiling = tiling_for(spec, "latency_optimized", bounds.DECODE, batch)
    last = len(stack.layers) - 1
    stacks = [stack]
    for at in (slice(0, last), slice(last, None)):
        part = Stack(**{f: getattr(stack, f) for f in Stack.__dataclass_fields__})
        part.layers, part.caches = stack.layers[at], stack.caches[at]
        stacks.append(part)
    works = [
        s.fused("mega", grid, tiling) if variant == "fused" else s.baseline(baselines.three_stage)
        for s in stacks[1:]
    ]
    works[0]()
    clock.wait()
    torch.cuda.profiler.start()
    works[1]()
    clock.wait()
    torch.cuda.profiler.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
