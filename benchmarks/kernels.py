"""The bars of the fused kernels: ``python -m benchmarks.kernels [FILE]`` on a result of the check.

Judges a file of ``zerolayer kernels check --gpu`` (default: that of the H200 in kernels/measured).
Where there is none it says so and ends with 4: a bar that nobody measured neither holds nor fails.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dispatch import hardware
from kernels import bounds, measured

Row = dict[str, Any]
SMALL_PARAMETERS = 12e6


def bars(document: Row) -> Iterator[tuple[str, float, float, bool]]:
    """Yield (what, figure, bar, holds) for every bar that the file has a figure for."""
    times: dict[tuple[str, int, int], dict[str, float]] = {}
    for row in document["rows"]:
        if row["kind"] == "time" and row["phase"] == "decode" and "us" in row:
            shape = (row["model"], row["batch"], row["length"])
            times.setdefault(shape, {})[row["variant"]] = row["us"]
    for (model, batch, length), found in times.items():
        ours = min((found[v] for v in ("fused", "fused_2_a_sm") if v in found), default=None)
        if ours is None:
            continue
        told = f"{model} batch {batch}, {length} tokens"
        most = {"llama-3.1-8b": 118.0, "llama-3.2-1b": 43.0}.get(model)
        if batch == 1 and most is not None:
            yield f"{told}: µs a block", ours, most, ours <= most
        strong = min((found[v] for v in ("strong", "sdpa_graph") if v in found), default=None)
        if strong is not None:
            least = {"gpt-2": 1.7, "llama-3.2-1b": 1.25}.get(model, 0.97) if batch == 1 else 0.97
            ratio = strong / ours
            yield f"{told}: times the strong baseline", ratio, least, ratio >= least
        small = hardware.model(model).layer_weights <= SMALL_PARAMETERS
        if batch == 1 and small and "three_stage_graph" in found:
            ratio = found["three_stage_graph"] / ours
            yield f"{told}: times three-stage in a graph", ratio, 2.3, ratio >= 2.3
    for row in document["rows"]:
        if row["kind"] == "bytes" and row.get("variant") == "fused" and "dram_bytes" in row:
            model, batch, length = row["shape"]
            gpu = hardware.gpu(document["gpu"])
            least = bounds.least_bytes(
                bounds.Work(hardware.model(model), gpu, bounds.DECODE, batch, length)
            )
            ratio = row["dram_bytes"] / least
            yield f"{model}: DRAM bytes over the counted minimum", ratio, 1.05, ratio <= 1.05


def main(argv: list[str]) -> int:
    """Print every figure beside its bar; 0 all hold, 1 one does not, 4 nothing was measured."""
    path = Path(argv[0]) if argv else measured.FOLDER / "h200.json"
    if not path.is_file():
        print(f"{path} is not there: the kernels were not measured here, so no bar is judged.")
        print("On a machine with a GPU: zerolayer kernels check --gpu")
        return 4
    held = True
    for what, figure, bar, holds in bars(json.loads(path.read_text(encoding="utf-8"))):
        print(f"{'holds' if holds else 'FAILS'}  {what}: {figure:.3g} (bar {bar:g})")
        held &= holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
