"""From a hint to a plan: launch shape, tiles and workspace of a block, by the cost model.

Times are those measured on the card where it has a table (:mod:`kernels.tuned`), else predicted,
with measured launch costs where there are some. The least time wins; a hint decides among those
within 3 % of it, and caps the workspace. Fused kernels are never picked where they are slower than
the strong baseline, nor where they do not run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Final

from dispatch.errors import InputError
from dispatch.hardware import Gpu, Model, gpus
from dispatch.hints import COST_PLANS, DEFAULT_HINT, PLANS, KernelPlan, LaunchShape, plan_for
from kernels import bounds, measured, tuned
from kernels.spec import (
    LEAST_CAPABILITY,
    MOST_DECODES,
    BlockSpec,
    Tiling,
    decode_tiling,
    prompt_tiling,
    spec_of,
)

TIE: Final = 1.03
_PRECISIONS: Final = ("bf16", "fp16", "fp32")


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """How one block runs, and what that is predicted to take; bytes are DRAM bytes, counted.

    ``predicted_s`` is the measured time where the card's table has the shape. ``costs`` says where
    times come from.
    """

    shape: LaunchShape
    hint: str
    tiling: Tiling
    scratch: str  # torch name of the intermediates' type
    launches: int
    barriers: int
    predicted_s: float
    bytes: float
    workspace_bytes: int
    why: str
    costs: str
    considered: tuple[tuple[LaunchShape, float], ...]
    programs_per_sm: int = 1

    @property
    def variant(self) -> KernelPlan:
        """The variant of the bounds, and the plan of the cost model, that this is."""
        return COST_PLANS[self.shape]


Times = Sequence[tuple[LaunchShape, float]]
Entries = dict[LaunchShape, tuned.Entry]


def choose(
    model: Model, gpu: Gpu, hint: str = "", *, phase: str = bounds.DECODE, batch: int = 1,
    length: int = 1024, precision: str = "bf16", ran_into: str = "", triton: str = "",
) -> BlockPlan:  # fmt: skip
    """Return the plan for *batch* sequences of *length* tokens; *hint* empty takes the default.

    *ran_into* is why fused kernels cannot run here (a failed self-test), where they cannot.
    *triton* is the version that will run, empty for any. Raises UnknownNameError for a hint that
    is none.
    """
    wanted = plan_for(hint) or PLANS[DEFAULT_HINT]
    work = bounds.Work(model, gpu, phase, batch, length, precision)
    refused = ran_into or refusal(model, gpu, phase, batch, precision)
    shapes: tuple[LaunchShape, ...] = ("torch",)
    if not refused:
        shapes = ("prefill", "torch") if phase == bounds.PREFILL else wanted.shapes
    predicted = [(shape, bounds.bound(work, COST_PLANS[shape]).total_s) for shape in shapes]
    entries = {} if refused else _entries(work, triton)
    times = _believed(predicted, entries)
    least = min(seconds for _, seconds in times)
    shape = next(s for s, seconds in times if seconds <= least * TIE)
    # on one footing: measured against measured, or predicted against predicted
    judged = times if any(s == "torch" for s, _ in times) else predicted
    if seconds_of(judged, shape) > seconds_of(judged, "torch"):
        shape, times = "torch", judged
    return _plan(work, shape, hint or DEFAULT_HINT, times, refused, entries.get(shape))


def _entries(work: bounds.Work, triton: str) -> Entries:
    known = tuned.table(work.gpu.name)
    if known is None:
        return {}
    spec = spec_of(work.model)
    found = known.find(spec, work.phase, work.precision, work.batch, work.length, triton)
    return found if any(shape != "torch" for shape in found) else {}


def _believed(predicted: Times, entries: Entries) -> Times:
    """Return measured times alone where there are some, else the predicted ones."""
    found = [(shape, entries[shape].us * 1e-6) for shape, _ in predicted if shape in entries]
    return found or predicted


def seconds_of(times: Times, shape: LaunchShape) -> float:
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
    work: bounds.Work, shape: LaunchShape, hint: str, times: Times, refused: str,
    entry: tuned.Entry | None,
) -> BlockPlan:  # fmt: skip
    found = bounds.bound(work, COST_PLANS[shape])
    narrow = PLANS[hint].narrow_scratch or shape == "prefill"
    scratch = dtype_name(work.precision) if narrow else "float32"
    if shape == "torch":
        tiling, space = Tiling(), 0
    else:
        spec = spec_of(work.model)
        tiling = tiling_for(spec, hint, work.phase, work.tokens, work.gpu.compute_capability)
        tiling = tiling if entry is None else entry.tiles(tiling)
        space = workspace_bytes(spec, tiling, work.tokens, scratch, shape == "prefill")
    return BlockPlan(
        shape, hint, tiling, scratch, found.launches, found.barriers, seconds_of(times, shape),
        found.dram_bytes, space, refused or _reason(shape, times, hint, entry is not None),
        _source(work.gpu, entry), tuple(times), 1 if entry is None else entry.programs_per_sm,
    )  # fmt: skip


def _source(gpu: Gpu, entry: tuned.Entry | None) -> str:
    table, known = tuned.table(gpu.name), measured.costs(gpu.name)
    if entry is not None and table is not None:
        return f"measured {table.date}, triton {table.triton}"
    return f"launches measured {known.date}" if known else "not measured"


def _reason(shape: LaunchShape, times: Times, hint: str, by_table: bool) -> str:
    told = ", ".join(f"{name} {seconds * 1e6:.1f} µs" for name, seconds in times)
    how = "measured time" if by_table else "prediction"
    return f"{shape} by {how} ({told}); {hint} breaks ties within 3 %"


def tiling_for(
    spec: BlockSpec, hint: str, phase: str, tokens: int, capability: float = 9.0
) -> Tiling:
    """Return the tiles of a pass; how often a context splits hangs on hint and its own length."""
    if phase == bounds.PREFILL:
        return prompt_tiling(spec, tokens, capability)
    return decode_tiling(spec, tokens, splits=PLANS[hint or DEFAULT_HINT].splits)


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


def model_of(spec: BlockSpec, name: str = "block") -> Model:
    """Return one layer of *spec* as a model of the catalogue, so that its block can be planned."""
    bias = "all" if spec.bias else "qkv" if spec.qkv_bias else "none"
    return Model(
        name, spec.weights, 1, spec.hidden, spec.heads, spec.kv_heads, spec.head_dim, spec.ffn,
        spec.gated, 1, 1 << 20, norm=spec.norm, bias=bias,
        positions="rope" if spec.rope else "learned",
    )  # fmt: skip


def launch_shape(plan: BlockPlan) -> LaunchShape:
    """Return the quickest of our own shapes that *plan* considered, five launches where none.

    For an engine whose only other way is plain torch, launched eagerly: slower than either.
    """
    if plan.shape != "torch":
        return plan.shape
    ours = [(seconds, shape) for shape, seconds in plan.considered if shape != "torch"]
    return min(ours)[1] if ours else "split5"


def known_card(name: str) -> Gpu | None:
    """Return the catalogue's card that torch calls *name*; None where it has none."""
    wanted = name.lower()
    for gpu in gpus().values():
        if wanted in (n.lower() for n in (gpu.name, *gpu.aliases)):
            return gpu
    return None


def installed_triton() -> str:
    """Return the version of triton that is installed, empty where none is."""
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        return ""
