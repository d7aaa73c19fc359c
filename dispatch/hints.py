"""Kernel hints: what a caller asks for with ``x-kernel-hint``, and what it means to an engine."""

from dataclasses import dataclass
from typing import Final, Literal

from dispatch.errors import UnknownNameError
from dispatch.request import HINTS

KernelPlan = Literal["three_stage", "three_stage_graph", "split5", "fused", "strong"]


@dataclass(frozen=True, slots=True)
class HintPlan:
    """The fusion strategy and the batch limits that a tuning profile stands for.

    Limits are upper bounds: an engine takes the smaller of these and its own.
    """

    kernel_plan: KernelPlan
    max_num_seqs: int
    max_num_batched_tokens: int


PLANS: Final[dict[str, HintPlan]] = {
    # short iterations: few sequences, small prefill chunks, launches replayed as one graph
    "latency_optimized": HintPlan("strong", 32, 2048),
    # long iterations: everything that fits, weights read once for as many tokens as possible
    "throughput_optimized": HintPlan("fused", 1024, 16384),
    # least live activations: the smallest chunk, the fused block without its scratch
    "memory_efficient": HintPlan("fused", 64, 512),
}
assert tuple(PLANS) == HINTS


def plan_for(hint: str) -> HintPlan | None:
    """Return what *hint* stands for; None for no hint; raise InputError for an unknown one."""
    if not hint:
        return None
    if hint not in PLANS:
        raise UnknownNameError("x-kernel-hint", "kernel hint", hint, HINTS)
    return PLANS[hint]
