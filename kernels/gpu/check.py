"""The whole check in the order of what decides most: JSON lines, under four minutes.

``python -m kernels.gpu.check FIRST SPENT`` runs its cases from number FIRST on, as a child of
:mod:`kernels.gpu.watch`, which loses one case where one hangs or ends the process.
"""

import json
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from dispatch import hardware
from dispatch.errors import NotMeasurable
from kernels.gpu import costs, shapes
from kernels.gpu.clock import Clock
from kernels.launch import Shape, require_capability
from kernels.plan import known_card, tiling_for
from kernels.selftest import failure
from kernels.spec import BlockSpec, Tiling, decode_tiling, spec_of

Row = dict[str, Any]
STOP_STARTING_S: Final = 200.0
REPEATS: Final = 200
BYTES_AT: Final = ("llama-3.2-1b", 1, 1024)
"""Where the baseline's DRAM bytes are counted too."""


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


@dataclass(frozen=True)
class Case:
    """One thing to find out; ``late`` ones do not start when time is nearly up."""

    kind: str
    shape: tuple[str, int, int] | None
    rows: Callable[[], Iterator[Row]]
    late: bool = True

    @property
    def what(self) -> str:
        """Its name."""
        return self.kind if self.shape is None else f"{self.kind} {' '.join(map(str, self.shape))}"


def cases(clock: Clock, size: Size) -> list[Case]:
    """Return what the check does, in order."""
    properties = torch.cuda.get_device_properties(clock.device) if clock.cuda else None
    grid = properties.multi_processor_count if properties else 1
    capability = properties.major + properties.minor / 10 if properties else 9.0

    def decode(shape: tuple[str, int, int]) -> Case:
        compiled = shape in size.compiled
        return Case("decode", shape, lambda: shapes.decode_times(
            clock, *shape, grid, compiled, size.spec, size.cold_bytes, size.timings))  # fmt: skip

    def prompt(shape: tuple[str, int, int]) -> Case:
        return Case("prefill", shape, lambda: shapes.prompt_times(
            clock, *shape, capability, size.spec, size.cold_bytes, size.timings))  # fmt: skip

    def is_right(shape: tuple[str, int, int]) -> Case:
        return Case("right", shape, lambda: right(clock, size, shape, grid))

    def moved(variant: str, shape: tuple[str, int, int]) -> Case:
        return Case(f"bytes of {variant}", shape, lambda: dram_bytes(clock, variant, shape))

    bytes_of = [("fused", BYTES_AT), ("three_stage", BYTES_AT)]
    bytes_of += [("fused", shape) for shape in size.decodes if shape != BYTES_AT]
    return [
        Case("ceilings", None, lambda: costs.ceilings(clock, size.copy_bytes, size.side), False),
        Case("costs", None, lambda: costs.launch_costs(clock, grid, *size.chain), False),
        *map(is_right, size.decodes[:4]), *map(decode, size.decodes), *map(prompt, size.prompts),
        *(moved(*each) for each in bytes_of),
    ]  # fmt: skip


def rows(clock: Clock, size: Size, first: int = 0, named: bool = False) -> Iterator[Row]:
    """Yield every result from case *first* on; each case that fails or finds no time is named.

    *named* yields a row before each case as well. An error of the device itself is not caught: its
    context is gone, and only a fresh process can go on.
    """
    for at, case in enumerate(cases(clock, size)):
        if at < first:
            continue
        if named:
            yield {"kind": "case", "at": at, "what": case.what}
        shape = list(case.shape) if case.shape else None
        if case.late and clock.spent_s > STOP_STARTING_S:
            yield {"kind": "left_out", "what": case.kind, "shape": shape, "why": "out of time"}
            continue
        try:
            yield from case.rows()
        except Exception as error:
            clock.wait()  # raises where the device is beyond use
            yield {"kind": "failed", "what": case.what, "at": at, "error": told_of(error)}
        if clock.cuda:
            torch.cuda.empty_cache()


def told_of(error: BaseException) -> str:
    """Return an error in one line."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def right(clock: Clock, size: Size, shape: tuple[str, int, int], grid: int) -> Iterator[Row]:
    """Yield whether a shape is right, repeats bit for bit, and does not hang on its company."""
    model, batch, length = shape
    spec = size.spec or spec_of(hardware.model(model))
    head = {"kind": "right", "model": model, "batch": batch, "length": length}
    lengths = tuple([length - 1] * batch)
    dtypes = (torch.bfloat16, torch.float16, torch.float32) if batch == 1 else (torch.bfloat16,)
    plain = tiling_for(spec, "latency_optimized", "decode", batch)
    early = replace(plain, warm=True, dependent=True)
    tries: list[tuple[str, Shape, Tiling, tuple[torch.dtype, ...]]] = [
        ("mega", "mega", plain, dtypes), ("split5", "split5", plain, dtypes),
        ("mega, warm", "mega", early, dtypes[:1]),
        ("split5, dependent", "split5", early, dtypes[:1]),
    ]  # fmt: skip
    for what, shape_, tiling, kinds in tries:
        for dtype in kinds:
            if dtype == torch.float32:
                tiling = replace(tiling, bk=max(tiling.bk // 2, 32))
            told = failure(spec, shape_, dtype, clock.device, grid, tiling, lengths)
            yield {**head, "what": what, "dtype": str(dtype), "wrong": told}
    stack = shapes.Stack.build(spec, batch, length, 1, clock, cold_bytes=1.0)
    first = stack.fused("mega", grid, plain)().clone()
    for what, shape_, tiling, _ in tries:
        work = stack.fused(shape_, grid, tiling)
        different = sum(not torch.equal(work(), first) for _ in range(size.bitwise))
        yield {
            **head, "what": f"{size.bitwise} times {what}",
            "wrong": f"{different} differ" * bool(different),
        }  # fmt: skip
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


def dram_bytes(clock: Clock, variant: str, shape: tuple[str, int, int]) -> Iterator[Row]:
    """Yield the DRAM bytes of one block by ncu; say so where it is not there."""
    row = {"kind": "bytes", "variant": variant, "shape": list(shape)}
    if not clock.cuda or shutil.which("ncu") is None:
        yield {**row, "error": "ncu is not here: DRAM bytes not measured"}
        return
    yield {**row, **_ncu(variant, shape)}


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
        said = str(getattr(error, "stderr", None) or getattr(error, "stdout", None) or error)
        last = said.strip().splitlines()[-1] if said.strip() else "no message"
        return {"error": f"ncu failed: {type(error).__name__}: {last}"}


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


def card() -> str:
    """Return torch's name of the GPU, of the machine where there is none."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()


def document(name: str, found: list[Row]) -> Row:
    """Return the result as it is committed: card, date, versions, costs and every row."""
    import triton

    return {
        "gpu": name, "date": time.strftime("%Y-%m-%d"),
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda,
                     "triton": triton.__version__, "python": platform.python_version()},
        "costs": {r["what"]: r["us"] for r in found if r["kind"] == "cost"}, "rows": found,
    }  # fmt: skip


def catalogue_name(name: str) -> str:
    """Return the catalogue's name of a card that torch names; the card's own where it has none."""
    known = known_card(name)
    return name.replace(" ", "-") if known is None else known.name


def write(result: Row, folder: Path) -> Path:
    """Write *result* to ``<card>.json`` below *folder*."""
    return write_to(result, folder / f"{catalogue_name(str(result['gpu'])).lower()}.json")


def write_to(result: Row, path: Path) -> Path:
    """Write *result* to *path*, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def main(first: int, spent_s: float) -> None:
    """Print the rows of the cases from *first* on, as a watched child."""
    clock = Clock(device())
    clock.begin_s -= spent_s
    for row in rows(clock, Size(), first, named=True):
        print(json.dumps(row), flush=True)
    print(json.dumps({"kind": "end"}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
