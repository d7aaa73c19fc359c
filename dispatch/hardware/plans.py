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

    ``passes`` counts elementwise traffic as (kind of pass, tensor): norms and residual adds over
    ``hidden`` (tokens x hidden), rotary embedding over ``qkv``, activation over ``gate_up`` and
    ``ffn``. GEMM and attention kernels count their own inputs and outputs themselves.
    """

    name: str
    title: str
    graphed: bool  # launched from a CUDA graph, else eagerly by the host
    decode_launches: int
    prefill_launches: int
    decode_barriers: int = 0
    flash: bool = True
    score_passes: int = 0  # over heads x query tokens x attended tokens
    library: bool = True  # attention is a library call with a start of its own
    passes: Mapping[tuple[str, str], int] = field(default_factory=dict, hash=False)
    scratch_bytes: int = 2  # width of intermediates


_APART: Final = MappingProxyType({
    ("norm", "hidden"): 4, ("add", "hidden"): 6, ("rope", "qkv"): 2, ("act", "gate_up"): 1,
    ("act", "ffn"): 1,
})  # fmt: skip

PLANS: Final[Mapping[str, KernelPlan]] = MappingProxyType({
    p.name: p
    for p in (
        KernelPlan("three_stage", "LayerNorm | attention with scores in memory | FFN, eager",
                   False, 13, 13, flash=False, score_passes=4, passes=_APART),
        KernelPlan("three_stage_graph", "the three stages in a CUDA graph",
                   True, 13, 13, flash=False, score_passes=4, passes=_APART),
        KernelPlan("eager", "flash attention, the rest apart, launched eagerly by the host",
                   False, 13, 13, passes=_APART),
        KernelPlan("strong", "flash attention, compiled elementwise, CUDA graph",
                   True, 11, 11, passes=_APART),
        KernelPlan("split5", "five fused phases as five launches in a graph",
                   True, 5, 5, library=False, scratch_bytes=4),
        KernelPlan("fused", "one cooperative launch in decode, five in prefill",
                   True, 1, 5, decode_barriers=4, library=False, scratch_bytes=4),
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


def pass_bytes(
    model: Model, name: str, tp: int, tokens: float, l2_bytes: int = 0
) -> dict[str, float]:
    """Return bytes that one layer moves through DRAM between its operators, by kind of pass.

    An intermediate of less than half of *l2_bytes* stays in L2 and moves none (0 counts every byte:
    logical traffic). Scores are apart: :func:`score_traffic`.
    """
    p, each = plan(name), elements(model, tp)
    moved = dict.fromkeys(("norm", "add", "rope", "act"), 0.0)
    for (kind, tensor), passes in p.passes.items():
        size = tokens * each[tensor] * p.scratch_bytes
        if size > l2_bytes / 2:
            moved[kind] += passes * size
    return moved


def extra_bytes(
    model: Model, name: str, tp: int, tokens: float, attended: float = 0.0, l2_bytes: int = 0
) -> float:
    """Return all bytes that one layer moves through DRAM beyond its operators' own."""
    moved = sum(pass_bytes(model, name, tp, tokens, l2_bytes).values())
    return moved + score_traffic(model, name, tp, attended, l2_bytes)


def score_traffic(model: Model, name: str, tp: int, attended: float, l2_bytes: int = 0) -> float:
    """Return bytes of attention scores that one layer moves through DRAM.

    *attended* is the sum over query tokens of the tokens each looks at.
    """
    p = plan(name)
    scores = attended * model.heads / tp * p.scratch_bytes
    return p.score_passes * scores if scores > l2_bytes / 2 else 0.0


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
