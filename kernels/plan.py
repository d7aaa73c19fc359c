"""From a hint to a plan: launch shape, splits and workspace of a block, by the cost model.

The cheapest prediction wins; a hint decides among those within 3 % of it, and caps the workspace.
Fused kernels are never picked where they are predicted slower than the strong baseline, nor where
they do not run. Launch costs are measured ones where the card has a file, else the cost model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dispatch.errors import InputError, UnknownNameError
from dispatch.hardware import Gpu, Model
from dispatch.request import HINTS
from kernels import bounds, measured
from kernels.spec import (
    LEAST_CAPABILITY,
    MOST_DECODES,
    BlockSpec,
    Tiling,
    decode_tiling,
    prompt_tiling,
    spec_of,
)

Shape = Literal["mega", "split5", "prefill", "torch"]
TIE: Final = 1.03
_VARIANT: Final = {"mega": "fused", "split5": "split5", "prefill": "fused", "torch": "strong"}
_ORDER: Final[dict[str, tuple[Shape, ...]]] = {
    "latency_optimized": ("mega", "split5", "torch"),
    "throughput_optimized": ("split5", "mega", "torch"),
    "memory_efficient": ("mega", "split5", "torch"),
}
_SPLITS: Final = {"latency_optimized": 16, "throughput_optimized": 8, "memory_efficient": 1}
DEFAULT_HINT: Final = "latency_optimized"
_PRECISIONS: Final = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How one block runs, and what that is predicted to take; bytes are DRAM bytes, counted."""

    shape: Shape
    hint: str
    tiling: Tiling
    scratch: str  # torch name of the intermediates' type
    launches: int
    barriers: int
    predicted_s: float
    bytes: float
    workspace_bytes: int
    why: str
    costs: str  # where launch costs come from
    considered: tuple[tuple[Shape, float], ...]

    @property
    def variant(self) -> str:
        """The variant of the bounds, and the plan of the cost model, that this is."""
        return _VARIANT[self.shape]


def choose(
    model: Model, gpu: Gpu, hint: str = "", *, phase: str = bounds.DECODE, batch: int = 1,
    length: int = 1024, precision: str = "bf16", ran_into: str = "",
) -> BlockPlan:  # fmt: skip
    """Return the plan for *batch* sequences of *length* tokens; *hint* empty takes the default.

    *ran_into* is why fused kernels cannot run here (a failed self-test), where they cannot.
    Raises UnknownNameError for a hint that is none.
    """
    if hint and hint not in HINTS:
        raise UnknownNameError("x-kernel-hint", "kernel hint", hint, HINTS)
    hint = hint or DEFAULT_HINT
    work = bounds.Work(model, gpu, phase, batch, length, precision)
    refused = ran_into or refusal(model, gpu, phase, batch, precision)
    shapes: tuple[Shape, ...] = ("torch",)
    if not refused:
        shapes = ("prefill", "torch") if phase == bounds.PREFILL else _ORDER[hint]
    times = [(shape, bounds.bound(work, _VARIANT[shape]).total_s) for shape in shapes]
    least = min(seconds for _, seconds in times)
    shape = next(s for s, seconds in times if seconds <= least * TIE)
    if seconds_of(times, shape) > seconds_of(times, "torch"):
        shape = "torch"
    return _plan(work, shape, hint, times, refused)


def seconds_of(times: Sequence[tuple[Shape, float]], shape: Shape) -> float:
    """Return the predicted time of *shape*."""
    return next(seconds for name, seconds in times if name == shape)


def refusal(model: Model, gpu: Gpu, phase: str, batch: int, precision: str) -> str:
    """Return why the fused kernels do not run this; empty where they do."""
    if gpu.compute_capability < LEAST_CAPABILITY:
        return (
            f"{gpu.name} has compute capability {gpu.compute_capability:.1f}; the fused kernels "
            f"need {LEAST_CAPABILITY:.1f}"
        )
    if precision not in _PRECISIONS:
        return f"there is no {precision} kernel here: modelled, unmeasured"
    if phase == bounds.DECODE and batch > MOST_DECODES:
        return f"batch {batch} is above {MOST_DECODES}, where decode stops being a matter of bytes"
    try:
        spec_of(model)
    except InputError as error:
        return str(error)
    return ""


def _plan(
    work: bounds.Work, shape: Shape, hint: str, times: Sequence[tuple[Shape, float]], refused: str
) -> BlockPlan:
    found = bounds.bound(work, _VARIANT[shape])
    narrow = hint == "memory_efficient" or shape == "prefill"
    scratch = dtype_name(work.precision) if narrow else "float32"
    if shape == "torch":
        tiling, space = Tiling(), 0
    else:
        spec = spec_of(work.model)
        tiling = tiling_for(spec, hint, work.phase, work.tokens, work.gpu.compute_capability)
        space = workspace_bytes(spec, tiling, work.tokens, scratch, shape == "prefill")
    known = measured.costs(work.gpu.name)
    why = refused or _reason(shape, times, hint)
    return BlockPlan(
        shape, hint, tiling, scratch, found.launches, found.barriers, found.total_s,
        found.dram_bytes, space, why, f"measured {known.date}" if known else "not measured",
        tuple(times),
    )  # fmt: skip


def _reason(shape: Shape, times: Sequence[tuple[Shape, float]], hint: str) -> str:
    told = ", ".join(f"{name} {seconds * 1e6:.1f} µs" for name, seconds in times)
    return f"{shape} by prediction ({told}); {hint} breaks ties within 3 %"


def tiling_for(
    spec: BlockSpec, hint: str, phase: str, tokens: int, capability: float = 9.0
) -> Tiling:
    """Return the tiles of a pass; how often a context splits hangs on hint and its own length."""
    if phase == bounds.PREFILL:
        return prompt_tiling(spec, tokens, capability)
    return decode_tiling(spec, tokens, splits=_SPLITS[hint or DEFAULT_HINT])


def dtype_name(precision: str) -> str:
    """Return torch's name of a 16- or 32-bit precision."""
    return {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}.get(precision, "bfloat16")


def workspace_bytes(
    spec: BlockSpec, tiling: Tiling, rows: int, scratch: str, prompt: bool = False
) -> int:
    """Return the bytes of a workspace for *rows* rows: what ``launch.Workspace`` allocates."""
    width = 4 if scratch == "float32" else 2
    splits = 1 if prompt else tiling.splits
    cells = 0 if splits == 1 else rows * spec.heads * splits
    sizes = [
        (rows * spec.q_width, width), (cells * spec.head_dim, 4), (cells * 2, 4),
        (rows * spec.q_width, width), (rows * spec.hidden, 4), (rows * spec.ffn, width),
    ]  # fmt: skip
    return sum(max(n, 1) * each for n, each in sizes) + 4 * rows * spec.kv_heads + 4
