"""The whole check in the order of what decides most: JSON lines, under four minutes."""

import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from dispatch import hardware
from dispatch.errors import NotMeasurable
from kernels.gpu import costs, shapes
from kernels.gpu.clock import Clock
from kernels.launch import require_capability
from kernels.plan import known_card, tiling_for
from kernels.selftest import failure
from kernels.spec import BlockSpec, decode_tiling, spec_of

Row = dict[str, Any]
STOP_STARTING_S: Final = 200.0
REPEATS: Final = 200


@dataclass(frozen=True)
class Size:
    """How much to do: all of it on a GPU, a taste of it to try the script on a CPU."""

    copy_bytes: int = 1 << 30
    side: int = 8192
    chain: tuple[int, int] = (64, 256)
    cold_bytes: float = shapes.COLD_BYTES
    timings: int = 20
    bitwise: int = REPEATS
    company: int = 32  # rows of the batch that one row is compared with
    spec: BlockSpec | None = None  # stands for every model
    decodes: tuple[tuple[str, int, int], ...] = shapes.DECODES
    prompts: tuple[tuple[str, int, int], ...] = shapes.PROMPTS
    compiled: tuple[tuple[str, int, int], ...] = shapes.COMPILED


def device() -> torch.device:
    """Return the GPU; NotMeasurable where there is none, InputError where it is too old."""
    if not torch.cuda.is_available():
        raise NotMeasurable(
            "no CUDA device here, so nothing was measured; `zerolayer kernels check` checks "
            "what a CPU can"
        )
    found = torch.device("cuda", torch.cuda.current_device())
    require_capability(found)
    return found


def rows(clock: Clock, size: Size) -> Iterator[Row]:
    """Yield every result; shapes stop starting after 200 s, and each left out is named."""
    cuda = clock.cuda
    properties = torch.cuda.get_device_properties(clock.device) if cuda else None
    grid = properties.multi_processor_count if properties else 1
    capability = properties.major + properties.minor / 10 if properties else 9.0
    yield from costs.ceilings(clock, size.copy_bytes, size.side)
    yield from costs.launch_costs(clock, grid, *size.chain)
    todo: list[tuple[str, tuple[str, int, int]]] = [("right", s) for s in size.decodes[:4]]
    todo += [("decode", s) for s in size.decodes] + [("prefill", s) for s in size.prompts]
    for kind, shape in todo:
        if clock.spent_s > STOP_STARTING_S:
            yield {"kind": "left_out", "what": kind, "shape": list(shape), "why": "out of time"}
            continue
        if kind == "right":
            yield from right(clock, size, shape, grid)
        elif kind == "decode":
            yield from shapes.decode_times(
                clock, *shape, grid, shape in size.compiled, size.spec, size.cold_bytes,
                size.timings,
            )  # fmt: skip
        else:
            yield from shapes.prompt_times(
                clock, *shape, capability, size.spec, size.cold_bytes, size.timings
            )
        if cuda:
            torch.cuda.empty_cache()
    yield from dram_bytes(clock)


def right(clock: Clock, size: Size, shape: tuple[str, int, int], grid: int) -> Iterator[Row]:
    """Yield whether a shape is right, repeats bit for bit, and does not hang on its company."""
    model, batch, length = shape
    spec = size.spec or spec_of(hardware.model(model))
    head = {"kind": "right", "model": model, "batch": batch, "length": length}
    lengths = tuple([length - 1] * batch)
    dtypes = (torch.bfloat16, torch.float16, torch.float32) if batch == 1 else (torch.bfloat16,)
    for name in ("mega", "split5"):
        for dtype in dtypes:
            tiling = tiling_for(spec, "latency_optimized", "decode", batch)
            if dtype == torch.float32:
                tiling = replace(tiling, bk=max(tiling.bk // 2, 32))
            told = failure(spec, name, dtype, clock.device, grid, tiling, lengths)
            yield {**head, "what": name, "dtype": str(dtype), "wrong": told}
    stack = shapes.Stack.build(spec, batch, length, 1, clock, cold_bytes=1.0)
    work = stack.fused("mega", grid, tiling_for(spec, "latency_optimized", "decode", batch))
    first = work().clone()
    different = sum(not torch.equal(work(), first) for _ in range(size.bitwise))
    yield {
        **head,
        "what": f"{size.bitwise} repeats",
        "wrong": f"{different} differ" * bool(different),
    }
    yield {
        **head,
        "what": f"a row of {size.company} alone",
        "wrong": _company(clock, spec, size.company, length, grid),
    }


def _company(clock: Clock, spec: BlockSpec, rows: int, length: int, grid: int) -> str:
    """Compare the last row of a batch of *rows* with the row alone, both with tiles of 16 rows."""
    stack = shapes.Stack.build(spec, rows, min(length, 512), 1, clock, cold_bytes=1.0)
    tiling = decode_tiling(spec, rows, invariant=True)
    together = stack.fused("split5", grid, tiling)().clone()
    lone = replace(
        stack, batch=1, x=stack.x[-1:].clone(),
        caches=[(k[-1:].clone(), v[-1:].clone()) for k, v in stack.caches],
    )  # fmt: skip
    alone = lone.fused("split5", grid, tiling)()
    return "" if torch.equal(alone[0], together[-1]) else "the bits differ"


def dram_bytes(clock: Clock) -> Iterator[Row]:
    """Yield DRAM bytes by ncu of one fused and one three-stage block; say so where it lacks."""
    shape = ("llama-3.2-1b", 1, 1024)
    if not clock.cuda or shutil.which("ncu") is None:
        yield {"kind": "bytes", "what": "ncu", "error": "ncu is not here: DRAM bytes not measured"}
        return
    if clock.spent_s > STOP_STARTING_S:
        yield {"kind": "left_out", "what": "bytes", "shape": list(shape), "why": "out of time"}
        return
    for variant in ("fused", "three_stage"):
        yield {"kind": "bytes", "variant": variant, "shape": list(shape), **_ncu(variant, shape)}


def _ncu(variant: str, shape: tuple[str, int, int]) -> Row:
    metrics = "dram__bytes_read.sum,dram__bytes_write.sum"
    command = [
        "ncu", "--clock-control", "none", "--metrics", metrics, "--csv", "--page", "raw",
        "--profile-from-start", "off", sys.executable, "-m", "kernels.gpu.once", variant,
        *map(str, shape),
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return {"dram_bytes": parse_ncu(done.stdout)}
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"error": f"ncu failed: {type(error).__name__}"}


def parse_ncu(text: str) -> float:
    """Return the sum of read and written DRAM bytes over the kernels of ncu's raw CSV page."""
    import csv

    lines = [line for line in text.splitlines() if line.startswith('"')]
    table = list(csv.reader(lines))
    if len(table) < 3:
        raise ValueError("no kernel in ncu's output")
    head, units, *kernels_ = table
    factor = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
    wanted = [i for i, name in enumerate(head) if name.startswith("dram__bytes_")]
    if not wanted:
        raise ValueError("no DRAM metric in ncu's output")
    return sum(
        float(row[i].replace(",", "")) * factor[units[i]] for row in kernels_ for i in wanted
    )


def document(clock: Clock, found: list[Row]) -> Row:
    """Return the result as it is committed: card, date, versions, costs and every row."""
    import triton

    name = torch.cuda.get_device_name(clock.device) if clock.cuda else platform.machine()
    return {
        "gpu": name, "date": time.strftime("%Y-%m-%d"),
        "versions": {"torch": torch.__version__, "triton": triton.__version__,
                     "python": platform.python_version()},
        "costs": {r["what"]: r["us"] for r in found if r["kind"] == "cost"}, "rows": found,
    }  # fmt: skip


def catalogue_name(card: str) -> str:
    """Return the catalogue's name of a card that torch names; the card's own where it has none."""
    known = known_card(card)
    return card.replace(" ", "-") if known is None else known.name


def write(result: Row, folder: Path) -> Path:
    """Write *result* to ``<card>.json`` below *folder*, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{catalogue_name(str(result['gpu'])).lower()}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return path
