"""``zerolayer kernels check``: without a GPU by interpreter and compiler, with one by measuring."""

import json as json_
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON lines.")]
UNMEASURED = (
    "Not measured here: time, DRAM bytes, memory order of a real GPU, co-residency of programs. "
    "`zerolayer kernels check --gpu` measures them where there is one."
)


def check(
    *,
    gpu: Annotated[bool, Parameter(negative="")] = False,
    compile_: Annotated[bool, Parameter(name="--compile")] = True,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    json: Json = False,
) -> int:
    """Check the kernels: against float64, interleaved, and compiled for sm_80 and sm_90.

    Exit code 1 where a check fails, 4 where nothing can be checked.

    Parameters
    ----------
    gpu
        Measure on the GPU of this machine instead: JSON lines, under four minutes. A case that
        hangs or ends its process is named, and the next one runs in a fresh process.
    compile_
        Compile ahead of time as well (about half a minute); needs no GPU.
    output
        With --gpu: the folder of the result, which bounds and plans read
        (default: kernels/measured of this installation).
    """
    from dispatch.errors import InputError, NotMeasurable

    if output is not None and not gpu:
        raise InputError.at("-o", "given without --gpu", "only measurements are written")
    for name in ("torch", "triton"):
        if find_spec(name) is None:
            raise NotMeasurable(f"{name} is not installed; `pip install 'zerolayer[live]'`")
    if gpu:
        return _measure(output)
    found = []
    for row in _rows(compile_):
        found.append(row)
        if json:
            print(json_.dumps(row), flush=True)
        else:
            _tell(row)
    wrong = [row for row in found if row["wrong"]]
    if not json:
        print(f"{len(found) - len(wrong)} of {len(found)} checks hold.\n{_folded(UNMEASURED)}")
    return 1 if wrong else 0


def _folded(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 80)


def _rows(compile_: bool) -> Iterator[dict[str, Any]]:
    """Yield rows of the children: interpreter and compiler cannot share a process."""
    parts = [("kernels.interpreter.check", "interpreter", "1")]
    parts += [("kernels.aot_check", "compiler", "")] if compile_ else []
    for module, by, interpret in parts:
        environment = {**os.environ, "TRITON_INTERPRET": interpret}
        if not interpret:
            del environment["TRITON_INTERPRET"]
        child = subprocess.Popen(
            [sys.executable, "-m", module], env=environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert child.stdout is not None
        for line in child.stdout:
            yield {"by": by, **json_.loads(line)}
        _, error = child.communicate()
        if child.returncode:
            last = error.strip().splitlines()[-1] if error.strip() else "no message"
            yield {"by": by, "what": module, "wrong": f"ended with {child.returncode}: {last}"}


def _tell(row: dict[str, Any]) -> None:
    mark = "WRONG" if row["wrong"] else "ok"
    told = f"{row['what']} {row.get('dtype', '')}".strip()
    if "registers" in row:
        told += f": {row['registers']} registers, {row['shared_bytes'] >> 10} KiB shared"
    print(f"{mark:<5} {row['by']:<11} {told}", flush=True)
    if row["wrong"]:
        print(f"      {row['wrong']}", flush=True)


def _measure(output: Path | None) -> int:
    from kernels import measured
    from kernels.gpu import check as gpu_check
    from kernels.gpu import watch

    gpu_check.device()  # refuses here, before a child has to
    found = []
    for row in watch.rows(watch.child_of("kernels.gpu.check")):
        found.append(row)
        print(json_.dumps(row), flush=True)
    result = gpu_check.document(gpu_check.card(), found)
    path = gpu_check.write(result, output or measured.FOLDER)
    failed = [row for row in found if row.get("wrong") or row["kind"] == "failed"]
    print(f"written to {path}; {len(failed)} checks wrong or failed", file=sys.stderr)
    return 1 if failed else 0
