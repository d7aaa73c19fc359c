"""The cost model against measured tables: errors by table, stack and GPU, beside their bars.

An error is ``|model / measured - 1|`` of one row. A row is *held out* where its file was not read
by the fit at all, or where the split by :func:`held_out` kept it from the fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from dispatch import hardware
from dispatch.errors import InputError
from dispatch.hardware import Calibration, calibration
from scenarios import estimate
from scenarios.measured import Measured, Unread, read_folder
from scenarios.split import digest, held_out

SECTION: Final[Mapping[str, str]] = {
    "gemm": "gemm", "elementwise": "elementwise", "prefill_attention": "attention",
    "decode_attention": "attention", "all_reduce": "collective", "layer": "gemm",
    "prompt": "host", "token": "host",
}  # fmt: skip
"""The section of a calibration that a kind of table is fitted into."""

TITLES: Final[Mapping[str, str]] = {
    "prompt": "prompt time", "token": "token time", "gemm": "GEMM", "elementwise": "elementwise",
    "prefill_attention": "attention, prompt", "decode_attention": "attention, decode",
    "all_reduce": "all-reduce", "layer": "layer",
}  # fmt: skip
REDUCE_BYTES: Final = (1024.0, 512.0 * 2**20)
"""Message sizes over which all-reduces are judged."""


@dataclass(frozen=True, slots=True)
class Bar:
    """What the median of a table may be, and with one GPU-and-TP group left out of the fit."""

    median: float
    left_out: float | None = None


EVERY: Final = "all"
BARRED: Final = "llama-2-70b"
WHOLE: Final = {"prompt": Bar(0.05, 0.09), "token": Bar(0.035, 0.07)}


def bar_of(kind: str, stack: str, gpu: str, part: str) -> Bar | None:
    """Return the bar of a line, None where there is none.

    Whole-model times are judged over all GPUs together, and for the model that the fit is for.
    """
    if kind in WHOLE:
        return WHOLE[kind] if (gpu, part) == (EVERY, BARRED) else None
    if part.startswith("custom"):
        return None
    if kind.endswith("attention"):
        return Bar(0.12)
    if kind == "all_reduce":
        return Bar(0.15)
    return Bar(0.10) if stack in ("vidur", "helix") else None


@dataclass(frozen=True, slots=True)
class Line:
    """The error of one quantity of one stack on one GPU."""

    kind: str
    stack: str
    gpu: str
    rows: int
    median: float
    p90: float
    bias: float  # median of model / measured - 1
    held_out_rows: int
    held_out: float  # median over the held-out rows; NaN where there are none
    left_out: float  # from the fit: each GPU-and-TP group predicted without it; NaN: not made
    bar: float | None
    left_out_bar: float | None
    calibrated: bool  # whether this GPU and stack have constants of their own
    files: tuple[str, ...]
    note: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the bars hold; None where there is none."""
        if self.bar is None:
            return None
        fine = self.median <= self.bar
        if self.left_out_bar is not None and self.left_out == self.left_out:
            fine = fine and self.left_out <= self.left_out_bar
        return fine


@dataclass(frozen=True, slots=True)
class Validation:
    """Everything that a folder of measurements says of the cost model."""

    lines: tuple[Line, ...]
    serving: tuple[Any, ...]
    unread: tuple[Unread, ...]
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def holds(self) -> bool:
        """Whether no bar is missed."""
        missed = [line for line in (*self.lines, *self.serving) if line.holds is False]
        return not missed

    def as_dict(self, folder: Path) -> dict[str, Any]:
        """Return the JSON document of ``zerolayer validate --json``."""
        return {
            "holds": self.holds,
            "tables": [asdict(line) | {"holds": line.holds} for line in self.lines],
            "serving": [run.as_dict() for run in self.serving],
            "not_read": [
                {"file": str(u.path.relative_to(folder)), "why": u.why} for u in self.unread
            ],
            "notes": list(self.notes),
        }


def errors(
    item: Measured, constants: Mapping[str, Calibration] | None = None
) -> pd.DataFrame:  # fmt: skip
    """Return (kind, gpu, stack, estimate_us, measured_us, held_out, file) of every row of a table.

    Prompt and token times of whole models are two rows each; all-reduces outside
    :data:`REDUCE_BYTES` are left out.
    """
    table = item.table
    if item.kind == "all_reduce":
        table = table[table.bytes.between(*REDUCE_BYTES)].reset_index(drop=True)
    wanted = {"whole": (("prompt", "whole", "prompt_us"), ("token", "tokens", "token_us"))}
    made = []
    for kind, estimator, column in wanted.get(item.kind, ((item.kind, item.kind, "us"),)):
        made.append(pd.DataFrame({
            "kind": kind, "gpu": table.gpu, "stack": item.stack, "file": item.path.name,
            "part": parts_of(kind, table),
            "estimate_us": estimate.estimate(estimator, item.stack, table, constants),
            "measured_us": table[column].to_numpy(dtype=float),
            "held_out": held_out(item.kind, table),
        }))  # fmt: skip
    return pd.concat(made, ignore_index=True)


def parts_of(kind: str, table: pd.DataFrame) -> Any:
    """Return what splits a kind of table into lines of their own: the back end of all-reduces."""
    if kind == "all_reduce":
        return table.backend.where(table.per_node == table.n, table.backend + ", nodes")
    if kind == "layer":
        return table.phase
    return table.model if kind in WHOLE else ""


def lines(items: Iterable[Measured]) -> list[Line]:
    """Return one line a kind, part, stack and GPU, over all files that hold it."""
    items = [item for item in items if item.kind != "serving"]
    if not items:
        return []
    seen = {item.path.name: digest(item.path) for item in items}
    rows = pd.concat([errors(item) for item in items], ignore_index=True)
    rows = rows[(rows.measured_us > 0) & np.isfinite(rows.estimate_us)]
    found = []
    for (kind, part, stack, gpu), group in rows.groupby(["kind", "part", "stack", "gpu"]):
        found.append(_line(str(kind), str(part), str(stack), str(gpu), group, seen))
    for (kind, part, stack), group in rows[rows.kind.isin(WHOLE)].groupby(
        ["kind", "part", "stack"]
    ):
        found.append(_line(str(kind), str(part), str(stack), EVERY, group, seen))
    order = list(TITLES)
    return sorted(found, key=lambda x: (order.index(x.kind), x.stack, x.note, x.gpu))


def _line(
    kind: str, part: str, stack: str, gpu: str, rows: pd.DataFrame, seen: Mapping[str, str]
) -> Line:
    one = str(rows.gpu.iloc[0]) if gpu == EVERY else gpu
    cal = calibration(hardware.gpu(one), estimate.stack_plan(stack), stack)
    section = section_of(kind, part)
    fit = cal.fits.get(section)
    read = set(fit.files) if fit else set()
    ratio = (rows.estimate_us / rows.measured_us - 1.0).to_numpy(dtype=float)
    known = rows.file.map(lambda name: seen[name] in read).to_numpy(dtype=bool)
    kept = rows.held_out.to_numpy(dtype=bool) | ~known
    size = np.abs(ratio)
    bar = bar_of(kind, stack, gpu, part)
    left_out = fit.left_out.get(kind, float("nan")) if fit and gpu == EVERY else float("nan")
    if part != BARRED or not known.all():
        left_out = float("nan")
    return Line(
        kind, stack, gpu, len(rows), float(np.median(size)), float(np.quantile(size, 0.9)),
        float(np.median(ratio)), int(kept.sum()),
        float(np.median(size[kept])) if kept.any() else float("nan"), left_out,
        bar.median if bar else None, bar.left_out if bar else None,
        section not in cal.assumed, tuple(sorted(set(rows.file))), part,
    )  # fmt: skip


def section_of(kind: str, part: str) -> str:
    """Return the section of the calibration that a line rests on."""
    if kind == "all_reduce":
        if part.startswith("custom"):
            return "launch" if "eager" in part else "custom"
        return "network" if part.endswith("nodes") else "collective"
    return SECTION[kind]


def validate(folder: Path) -> Validation:
    """Return what the tables under *folder* say; InputError where none is of a known format."""
    from scenarios.serving import serve

    found, unread = read_folder(folder)
    runs = []
    for item in (i for i in found if i.kind == "serving"):
        try:
            runs.append(serve(item))
        except (InputError, KeyError) as error:
            unread.append(Unread(item.path, f"cannot be replayed: {error}"))
    return Validation(tuple(lines(found)), tuple(runs), tuple(unread))
