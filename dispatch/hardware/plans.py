"""What a kernel plan launches and moves beyond the floor, so that plans differ by just that.

Every plan reads weights, inputs and KV cache once and writes outputs once; the operators count
those bytes. A plan adds kernel launches (or barriers inside one launch) and passes over
intermediates that it leaves in memory between kernels. ``kernels/`` defines the same plans in code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from dispatch.errors import UnknownNameError
from dispatch.hardware.catalogue import Model


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """Launches of one layer and passes (reads plus writes) over what lies between kernels.

    ``passes`` counts elementwise traffic by tensor kind: ``hidden`` (tokens x hidden), ``qkv``,
    ``gate_up``, ``ffn``, ``scores`` (heads x query tokens x attended tokens). GEMM and attention
    kernels count their own inputs and outputs themselves.
    """

    name: str
    title: str
    graphed: bool  # launched from a CUDA graph, else eagerly by the host
    decode_launches: int
    prefill_launches: int
    decode_barriers: int = 0
    flash: bool = True
    passes: Mapping[str, int] = field(default_factory=dict, hash=False)
    scratch_bytes: int = 2  # width of intermediates


_APART: Final = MappingProxyType({"hidden": 10, "qkv": 2, "gate_up": 1, "ffn": 1})
_SCORES: Final = MappingProxyType({**_APART, "scores": 4})

PLANS: Final[Mapping[str, KernelPlan]] = MappingProxyType({
    p.name: p
    for p in (
        KernelPlan("three_stage", "LayerNorm | attention with scores in memory | FFN, eager",
                   False, 13, 13, flash=False, passes=_SCORES),
        KernelPlan("three_stage_graph", "the three stages in a CUDA graph",
                   True, 13, 13, flash=False, passes=_SCORES),
        KernelPlan("strong", "flash attention, compiled elementwise, CUDA graph",
                   True, 11, 11, passes=_APART),
        KernelPlan("split5", "five fused phases as five launches in a graph",
                   True, 5, 5, scratch_bytes=4),
        KernelPlan("fused", "one cooperative launch in decode, five in prefill",
                   True, 1, 5, decode_barriers=4, scratch_bytes=4),
    )
})  # fmt: skip


def plan(name: str) -> KernelPlan:
    """Return a kernel plan by name; UnknownNameError with the near miss."""
    try:
        return PLANS[name]
    except KeyError:
        raise UnknownNameError("", "kernel plan", name, PLANS) from None


def elements(model: Model, tp: int) -> dict[str, float]:
    """Return elements a token of each kind of intermediate on one GPU of *tp*."""
    return {
        "hidden": float(model.hidden),
        "qkv": (model.heads + 2 * max(model.kv_heads, tp)) * model.head_dim / tp,
        "gate_up": model.ffn * (2 if model.gated else 1) / tp,
        "ffn": model.ffn / tp,
    }


def extra_bytes(
    model: Model, name: str, tp: int, tokens: float, attended: float, l2_bytes: int = 0
) -> float:
    """Return bytes that one layer moves through DRAM beyond its operators' own.

    *attended* is the sum over query tokens of the tokens each looks at. An intermediate of less
    than half of *l2_bytes* stays in L2 and moves none (0 counts every byte: logical traffic).
    """
    p = plan(name)
    total = 0.0
    for kind, each in elements(model, tp).items():
        size = tokens * each * p.scratch_bytes
        if size > l2_bytes / 2:
            total += p.passes.get(kind, 0) * size
    scores = attended * model.heads / tp * p.scratch_bytes
    if scores > l2_bytes / 2:
        total += p.passes.get("scores", 0) * scores
    return total


def workspace_bytes(
    model: Model, name: str, tp: int, tokens: int, seqs: int, context: int | None = None
) -> float:
    """Return the peak of activations on one GPU in an iteration of *tokens* tokens.

    The larger of the forward pass (residual stream twice, the widest intermediate, and scores
    where the plan keeps them) and the sampler (logits at 16 bits, and at 32 the scaled, sorted,
    softmax and cumulative copies, plus 64-bit indices: 26 bytes each). *context* bounds the
    attended tokens of a score matrix; None takes one request of *tokens*.
    """
    p = plan(name)
    each = elements(model, tp)
    widest = max(each["qkv"] + model.heads * model.head_dim / tp, each["gate_up"] + each["ffn"])
    forward = tokens * (2 * each["hidden"] + widest) * p.scratch_bytes
    if not p.flash:
        rows = min(tokens, model.context_tokens)
        forward += score_bytes(model, name, tp, rows, context or rows)
    return max(forward, tokens * each["hidden"] * 4 + seqs * model.vocab * 26.0 / tp)


def score_bytes(model: Model, name: str, tp: int, new_tokens: int, context: int) -> float:
    """Return the scores that one prefill keeps on each GPU: none where attention is a flash kernel.

    Scores at 16 bits, the same again for the softmax, and the mask's copy: three of them.
    """
    if plan(name).flash:
        return 0.0
    return 3.0 * model.heads / tp * new_tokens * context * 2
