"""The ways to run one transformer block that the claims are made about, in words and in counts.

A claim names one of these as its baseline. Launches and barriers of what the simulator also runs
come from the kernel plans of ``dispatch.hardware``; the Hugging-Face style is only compared with.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dispatch.errors import UnknownNameError
from dispatch.hardware import PLANS, Model

HF_LAUNCHES: Final = MappingProxyType({"gpt": 30, "llama": 44})


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a block: ``plan`` is its name among the plans of the cost model."""

    name: str
    plan: str
    words: str
    copies_kv: bool = False  # cat of the cache, repeat_kv, fp32 softmax, mask apart
    prefill: bool = True

    @property
    def graphed(self) -> bool:
        """Whether a CUDA graph launches it, so that the host does not bound it."""
        return PLANS[self.plan].graphed

    @property
    def scores(self) -> bool:
        """Whether attention scores lie in memory between kernels."""
        return not PLANS[self.plan].flash

    def launches(self, model: Model, phase: str) -> int:
        """Return the kernels of one block."""
        if self.copies_kv:
            return HF_LAUNCHES["llama" if model.gated else "gpt"]
        own = PLANS[self.plan]
        return own.decode_launches if phase == "decode" else own.prefill_launches

    def barriers(self, phase: str) -> int:
        """Return the device-wide barriers inside its launches."""
        return PLANS[self.plan].decode_barriers if phase == "decode" else 0


VARIANTS: Final[Mapping[str, Variant]] = MappingProxyType({
    v.name: v
    for v in (
        Variant("fused", "fused",
                "ours: decode in one cooperative launch with four barriers; prefill in five "
                "launches (flash attention, norms in prologues, activation and residual in "
                "epilogues)"),
        Variant("split5", "split5",
                "ours: the same five phases as five launches in a CUDA graph: what the single "
                "launch alone is compared with", prefill=False),
        Variant("strong", "strong",
                "torch.compile with scaled_dot_product_attention in a CUDA graph, 11 kernels"),
        Variant("three_stage_graph", "three_stage_graph",
                "norm | attention with scores in memory | FFN with its activation apart: norm, "
                "QKV, rope and append, QK^T, scale+mask+softmax, PV, output projection, residual, "
                "norm, up, activation, down, residual: 13 kernels in a CUDA graph"),
        Variant("three_stage", "three_stage",
                "the same 13 kernels, launched eagerly, as the legacy groups ran them"),
        Variant("hf_graph", "three_stage_graph",
                "the Hugging-Face style in a CUDA graph", copies_kv=True),
        Variant("hf", "three_stage",
                "Hugging-Face eager style: q, k, v apart, norms and rope in many kernels, "
                "cache by cat, repeat_kv copies, mask apart, softmax in fp32: about 30 kernels "
                "(GPT) or 44 (Llama), launched eagerly", copies_kv=True),
    )
})  # fmt: skip
BASELINES: Final = tuple(name for name in VARIANTS if name != "fused")


def variant(name: str) -> Variant:
    """Return a variant by name; UnknownNameError with the near miss."""
    if name not in VARIANTS:
        raise UnknownNameError("", "kernel variant", name, VARIANTS)
    return VARIANTS[name]
