"""The shape of a block and the tiles that its kernel runs in: plain numbers, no torch.

Any head size that is even, any head count in whole groups and any width run by padding to powers
of two and masking.
"""

import math
from dataclasses import dataclass
from typing import Final

from dispatch.errors import InputError
from dispatch.hardware import Model

LEAST_CAPABILITY: Final = 8.0
MOST_DECODES: Final = 64
DTYPES: Final = ("bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True)
class BlockSpec:
    """Dimensions and layout of one block; Llama: rms, gated, rope; GPT: layer, biases, GELU."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    norm: str = "rms"
    gated: bool = True
    rope: bool = True
    qkv_bias: bool = False
    bias: bool = False
    eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.head_dim % 2 or self.head_dim < 2:
            raise InputError.at("head_dim", f"{self.head_dim} given", "head sizes must be even")
        if self.heads % self.kv_heads:
            found = f"{self.heads} heads over {self.kv_heads} KV heads"
            raise InputError.at("heads", found, "heads must be a multiple of KV heads")
        if self.norm not in ("rms", "layer"):
            raise InputError.at("norm", f"{self.norm!r} given", "use rms or layer")

    @property
    def q_width(self) -> int:
        """Elements of all query heads of a token."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all key (or value) heads of a token."""
        return self.kv_heads * self.head_dim

    @property
    def up_rows(self) -> int:
        """Rows of the up projection: gate rows first where there are any."""
        return self.ffn * (2 if self.gated else 1)

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.heads // self.kv_heads

    @property
    def weights(self) -> int:
        """Elements of the four projections."""
        return self.hidden * (2 * self.q_width + 2 * self.kv_width + self.ffn + self.up_rows)


def spec_of(model: Model, eps: float = 1e-5) -> BlockSpec:
    """Return the block of a model of the catalogue; InputError for positions without a kernel."""
    if model.positions not in ("rope", "learned"):
        raise InputError.at(
            model.name,
            f"positions = {model.positions!r}",
            "kernels know rope and learned positions",
        )
    return BlockSpec(
        model.hidden, model.heads, model.kv_heads, model.head_dim, model.ffn, model.norm,
        model.gated, model.positions == "rope", model.bias in ("qkv", "all"), model.bias == "all",
        eps,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tiling:
    """Sizes of tiles and how often a context may be split; warps and stages of the launch.

    ``warm`` and ``dependent`` are for a GPU alone and change no number: weights asked for in L2
    before a barrier, and five launches of which each may start before the last has ended (9.0 on).
    """

    bm: int = 16  # rows of a projection
    bn: int = 32  # rows of weights
    bk: int = 256  # along the sum
    bt: int = 64  # tokens of a step of attention
    bq: int = 64  # rows of a tile of prompt attention
    splits: int = 16
    least: int = 256  # tokens of the smallest split
    warps: int = 4
    stages: int = 3
    warm: bool = False
    dependent: bool = False

    def split_tokens(self, length: int) -> int:
        """Return the tokens of one split of a context of *length*, by that length alone."""
        even = math.ceil(math.ceil(length / self.splits) / self.bt) * self.bt
        return max(even, self.least)

    def split_count(self, length: int) -> int:
        """Return how many splits a context of *length* is read in; 0 for none."""
        return -(-length // self.split_tokens(length)) if length > 0 else 0


def padded(size: int, least: int = 16) -> int:
    """Return the power of two that holds *size*, at least *least*."""
    return max(least, 1 << (size - 1).bit_length())


def decode_tiling(spec: BlockSpec, batch: int, splits: int = 16, invariant: bool = False) -> Tiling:
    """Return the tiles of a decode of *batch* rows.

    *invariant* keeps 16 rows a tile at any batch, so that each row's sums are the same in any
    company; weights then pass through L2 once for each 16 rows.
    """
    rows = 16 if invariant else min(padded(batch), 64)
    narrow = spec.hidden < 2048
    return Tiling(
        bm=rows, bn=16 if narrow and rows == 16 else 32, bk={16: 256, 32: 128, 64: 64}[rows],
        splits=splits,
    )  # fmt: skip


def prompt_tiling(spec: BlockSpec, tokens: int, capability: float = 9.0) -> Tiling:
    """Return the tiles of a pass of *tokens* new tokens with prompts among them.

    Cards whose SM has 100 KB of shared memory (8.6, 8.9, 12.x) get one stage less.
    """
    wide = spec.head_dim > 128
    if tokens <= 32:
        return Tiling(bm=padded(tokens), bn=32, bk=128, bt=32 if wide else 64, bq=16)
    small = capability in (8.6, 8.7, 8.9) or capability >= 12
    return Tiling(
        bm=64 if tokens <= 64 or small else 128, bn=128, bk=64, bt=32 if wide else 64,
        bq=64 if wide or small else 128, warps=8, stages=2 if small else 3,
    )  # fmt: skip
