"""The map of the two claims: where they can hold, by batch and length, against each baseline."""

from pathlib import Path
from typing import Any, Final

from dispatch.errors import InputError
from dispatch.hardware import Gpu, Model
from kernels.bounds import BYTES_CLAIM, DECODE, PREFILL, SPEED_CLAIM, Work, verdict

_SHOWN: Final = ("strong", "three_stage_graph", "three_stage", "hf")
_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64)
_LENGTHS: Final = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
_NAMES: Final = {
    "strong": "torch.compile + SDPA + graph",
    "three_stage_graph": "three-stage in a graph",
    "three_stage": "three-stage, eager",
    "hf": "Hugging-Face eager",
}


def draw(gpu: Gpu, model: Model, precision: str, path: Path) -> None:
    """Write the picture to *path*: shades are the ratio, lines the two borders.

    Raises InputError where the folder is missing or the ending is no picture's.
    """
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError.at("--plot", f"{path} is no picture", "end it in .png, .svg or .pdf")
    if not path.absolute().parent.is_dir():
        raise InputError.at("--plot", f"{path.parent} is no folder", "make it first")
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams["svg.hashsalt"] = "zerolayer"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, len(_SHOWN), figsize=(12, 6), layout="constrained")
    shade = None
    for row, phase in enumerate((DECODE, PREFILL)):
        for column, baseline in enumerate(_SHOWN):
            shade = _panel(axes[row][column], gpu, model, precision, phase, baseline)
            if not row:
                axes[row][column].set_title(_NAMES[baseline], fontsize=9)
        axes[row][0].set_ylabel(f"{phase}: batch")
    for axis in axes[1]:
        axis.set_xlabel("tokens a sequence")
    figure.colorbar(shade, ax=axes, label="fused is so many times as fast (predicted)")
    figure.suptitle(
        f"{model.name} block on {gpu.name}, {precision}: predicted, not measured. Solid red: "
        f"×{SPEED_CLAIM}; dashed blue: −{BYTES_CLAIM:.0%} DRAM bytes (inside the marks)",
        fontsize=10,
    )
    figure.savefig(path, dpi=120, metadata={} if path.suffix == ".png" else {"CreationDate": None}
                   if path.suffix == ".pdf" else {"Date": None})  # fmt: skip
    plt.close(figure)


def _panel(
    axis: Any, gpu: Gpu, model: Model, precision: str, phase: str, baseline: str
) -> Any:  # fmt: skip
    ratios, saved = [], []
    for batch in _BATCHES:
        found = [
            verdict(Work(model, gpu, phase, batch, length, precision), baseline)
            for length in _LENGTHS
        ]
        ratios.append([v.speedup for v in found])
        saved.append([v.dram_saved for v in found])
    shade = axis.pcolormesh(_LENGTHS, _BATCHES, ratios, vmin=1.0, vmax=4.0, cmap="Greys",
                            shading="nearest")  # fmt: skip
    _border(axis, ratios, SPEED_CLAIM, "tab:red", "solid")
    _border(axis, saved, BYTES_CLAIM, "tab:blue", "dashed")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log", base=2)
    axis.set_yticks(_BATCHES, [str(b) for b in _BATCHES], fontsize=7)
    axis.tick_params(labelsize=7)
    return shade


def _border(axis: Any, grid: list[list[float]], level: float, colour: str, style: str) -> None:
    values = [v for line in grid for v in line]
    text = "everywhere" if min(values) >= level else "nowhere" if max(values) < level else ""
    if text:
        place = 0.93 if colour == "tab:red" else 0.83
        kind = f"×{SPEED_CLAIM}" if colour == "tab:red" else f"−{BYTES_CLAIM:.0%}"
        axis.text(0.04, place, f"{kind} {text}", transform=axis.transAxes, fontsize=7, color=colour)
        return
    axis.contour(_LENGTHS, _BATCHES, grid, levels=[level], colors=colour, linestyles=style)
