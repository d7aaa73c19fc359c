"""``zerolayer kernels tune``: find the quickest tiles of a block on the GPU of this machine."""

import json as json_
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

Names = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Counts = Annotated[list[int] | None, Parameter(consume_multiple=True, negative="")]


def tune(
    *,
    model: Names = None,
    batch: Counts = None,
    length: Counts = None,
    budget: float = 120.0,
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
) -> int:
    """Measure tiles and launch shapes on this machine's GPU; plans take the quickest.

    Prints a JSON line for each candidate and writes a table by card, shape and triton version.
    Exit code 4 where there is no GPU.

    Parameters
    ----------
    model
        Models of the catalogue, or paths of TOML files (default: gpt-2 llama-3.2-1b llama-3.1-8b).
    batch
        Sequences of a decode (default: 1 8).
    length
        Tokens of context of each (default: 1024).
    budget
        Seconds for each shape; candidates beyond are left out and named.
    output
        Folder of the table (default: kernels/measured of this installation, where plans read it).
    """
    from dispatch import hardware
    from dispatch.errors import InputError, NotMeasurable

    for name, values in (("--batch", batch), ("--length", length)):
        for value in values or ():
            if value < 1:
                raise InputError.at(name, f"{value} given", "give whole numbers of 1 or more")
    if budget <= 0:
        raise InputError.at("--budget", f"{budget:g} given", "give seconds above 0")
    models = [hardware.model(n) for n in model or ("gpt-2", "llama-3.2-1b", "llama-3.1-8b")]
    for name in ("torch", "triton"):
        if find_spec(name) is None:
            raise NotMeasurable(f"{name} is not installed; `pip install 'zerolayer[live]'`")
    from kernels import measured, tuned
    from kernels.gpu import check
    from kernels.gpu import tune as gpu_tune
    from kernels.gpu.clock import Clock

    clock = Clock(check.device())
    found: list[dict[str, Any]] = []
    for one in models:
        for count in batch or (1, 8):
            for tokens in length or (1024,):
                for row in gpu_tune.rows(clock, one.name, count, tokens, budget):
                    found.append(row)
                    print(json_.dumps(row), flush=True)
    folder = output or measured.FOLDER
    path = tuned.path_of(check.catalogue_name(check.card()), folder)
    check.write_to(check.document(check.card(), found), path)
    print(f"written to {path}", file=sys.stderr)
    return 0
