"""Kernel hints: what a caller asks for with ``x-kernel-hint``, and what it means to an engine.

The one vocabulary of launches: a hint prefers launch shapes, and each shape is a kernel plan of the
cost model. Which shape a block gets is decided by predicted or measured time (``kernels.plan``); a
hint only breaks ties, bounds how far a context is split and narrows scratch.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from dispatch.errors import UnknownNameError
from dispatch.request import HINTS

KernelPlan = Literal["three_stage", "three_stage_graph", "split5", "fused", "strong"]
LaunchShape = Literal["mega", "split5", "prefill", "torch"]

COST_PLANS: Final[MappingProxyType[LaunchShape, KernelPlan]] = MappingProxyType({
    "mega": "fused",  # decode in one cooperative launch
    "split5": "split5",  # decode in five launches
    "prefill": "fused",  # prompts in five launches
    "torch": "strong",  # no kernel of ours: compiled torch with SDPA in a graph
})  # fmt: skip
"""The kernel plan of the cost model (``dispatch.hardware.plans``) that a launch shape is."""


@dataclass(frozen=True, slots=True)
class HintPlan:
    """What a tuning profile prefers, and the batch limits that it stands for.

    ``shapes`` are those of decode, the preferred first. Limits are upper bounds: an engine takes
    the smaller of these and its own.
    """

    shapes: tuple[LaunchShape, ...]
    splits: int  # of a context, at most
    narrow_scratch: bool  # intermediates at 16 bits
    max_num_seqs: int
    max_num_batched_tokens: int

    @property
    def kernel_plan(self) -> KernelPlan:
        """The cost model's plan of the preferred shape."""
        return COST_PLANS[self.shapes[0]]


PLANS: Final[dict[str, HintPlan]] = {
    # short iterations: few sequences, small prefill chunks, one launch a block
    "latency_optimized": HintPlan(("mega", "split5", "torch"), 16, False, 32, 2048),
    # long iterations: everything that fits, weights read once for as many tokens as possible
    "throughput_optimized": HintPlan(("split5", "mega", "torch"), 8, False, 1024, 16384),
    # least live activations: the smallest chunk, no splits to combine, narrow intermediates
    "memory_efficient": HintPlan(("mega", "split5", "torch"), 1, True, 64, 512),
}
DEFAULT_HINT: Final = "latency_optimized"
"""What a request without a hint gets as a launch shape; it has no limits of its own."""
assert tuple(PLANS) == HINTS


def plan_for(hint: str) -> HintPlan | None:
    """Return what *hint* stands for; None for no hint; raise InputError for an unknown one."""
    if not hint:
        return None
    if hint not in PLANS:
        raise UnknownNameError("x-kernel-hint", "kernel hint", hint, HINTS)
    return PLANS[hint]
