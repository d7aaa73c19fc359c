"""The bars of the fused kernels: ``python -m benchmarks.kernels [FILE]`` on a result of the check.

Judges a file of ``zerolayer kernels check --gpu`` (default: that of the H200 in kernels/measured).
Ends with 0 where all hold, 1 where one does not, 4 where there is no file or one is not in it: a
bar that nobody measured neither holds nor fails.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dispatch import hardware
from kernels import bounds, measured

Row = dict[str, Any]
Shape = tuple[str, int, int]
SMALL_PARAMETERS = 12e6
OURS = (
    "fused", "fused_warm", "fused_2_a_sm", "split5", "split5_dependent", "split5_dependent_warm"
)  # fmt: skip
STRONG = ("strong", "sdpa_graph")
DECODES: tuple[Shape, ...] = (
    ("gpt-2", 1, 128), ("gpt-2-large", 1, 1024), ("llama-3.2-1b", 1, 1024),
    ("llama-3.1-8b", 1, 4096), ("llama-3.2-1b", 8, 4096), ("llama-3.2-1b", 32, 4096),
    ("llama-3.1-8b", 8, 1024),
)  # fmt: skip


@dataclass(frozen=True)
class Bar:
    """One bar: its figure, None where it was not measured, and which side of the bar holds."""

    what: str
    figure: float | None
    bar: float
    most: bool = False  # the figure may be at most the bar, else at least

    @property
    def holds(self) -> bool | None:
        """Whether it holds; None where nobody measured it."""
        if self.figure is None:
            return None
        return self.figure <= self.bar if self.most else self.figure >= self.bar


def bars(document: Row) -> Iterator[Bar]:
    """Yield every bar, with the file's figure or None for what the file does not have."""
    rows: list[Row] = document["rows"]
    times: dict[Shape, dict[str, float]] = {shape: {} for shape in DECODES}
    for row in rows:
        if row["kind"] == "time" and row["phase"] == "decode" and "us" in row:
            shape = (row["model"], row["batch"], row["length"])
            times.setdefault(shape, {})[row["variant"]] = row["us"]
    for shape, found in times.items():
        yield from _times(shape, found, str(document["gpu"]))
    moved = {
        tuple(row["shape"]): row["dram_bytes"] for row in rows
        if row["kind"] == "bytes" and row["variant"] == "fused" and "dram_bytes" in row
    }  # fmt: skip
    gpu = hardware.gpu(str(document["gpu"]))
    for shape in DECODES:
        model, batch, length = shape
        work = bounds.Work(hardware.model(model), gpu, bounds.DECODE, batch, length)
        seen = moved.get(shape)
        ratio = None if seen is None else seen / bounds.least_bytes(work)
        yield Bar(f"{_told(shape)}: DRAM bytes over the counted minimum", ratio, 1.05, most=True)
    checks = [row for row in rows if row["kind"] == "right"]
    wrong = float(sum(bool(row["wrong"]) for row in checks)) if checks else None
    yield Bar(f"{len(checks)} checks of numbers, repeats and company: wrong", wrong, 0.0, most=True)


def _told(shape: Shape) -> str:
    model, batch, length = shape
    return f"{model} batch {batch}, {length} tokens"


def _times(shape: Shape, found: dict[str, float], card: str) -> Iterator[Bar]:
    """Yield the bars of one decode; H200's own ceilings only there."""
    model, batch, _ = shape
    told = _told(shape)
    ours = min((found[v] for v in OURS if v in found), default=None)
    strong = min((found[v] for v in STRONG if v in found), default=None)
    most = {"llama-3.1-8b": 118.0, "llama-3.2-1b": 43.0}.get(model)
    if batch == 1 and most is not None and "H200" in card:
        yield Bar(f"{told}: µs a block", ours, most, most=True)
    least = {"gpt-2": 1.7, "llama-3.2-1b": 1.25}.get(model, 0.97) if batch == 1 else 0.97
    yield Bar(f"{told}: times the strong baseline", _ratio(strong, ours), least)
    if batch == 1 and hardware.model(model).layer_weights <= SMALL_PARAMETERS:
        ratio = _ratio(found.get("three_stage_graph"), ours)
        yield Bar(f"{told}: times three-stage in a graph", ratio, 2.3)


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return None if theirs is None or ours is None else theirs / ours


def main(argv: list[str]) -> int:
    """Print every figure beside its bar; returns the exit code."""
    path = Path(argv[0]) if argv else measured.FOLDER / "h200.json"
    if not path.is_file():
        print(f"{path} is not there: the kernels were not measured here, so no bar is judged.")
        print("On a machine with a GPU: zerolayer kernels check --gpu")
        return 4
    try:
        judged = list(bars(json.loads(path.read_text(encoding="utf-8"))))
    except (ValueError, KeyError, TypeError) as error:
        print(f"{path} is no result of `zerolayer kernels check --gpu` ({error!r})")
        return 2
    for bar in judged:
        mark = {True: "holds", False: "FAILS", None: "unmeasured"}[bar.holds]
        figure = "-" if bar.figure is None else f"{bar.figure:.3g}"
        print(f"{mark:<10} {bar.what}: {figure} ({'≤' if bar.most else '≥'} {bar.bar:g})")
    if any(bar.holds is False for bar in judged):
        return 1
    return 4 if any(bar.holds is None for bar in judged) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
