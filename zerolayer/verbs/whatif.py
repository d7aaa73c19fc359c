"""``zerolayer whatif``: a grid of overrides over a scenario, all arms at every point."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from zerolayer.options import (
    ClusterOption,
    ForceOption,
    JobsOption,
    JsonOption,
    OutputOption,
    QuietOption,
    ScenarioArgument,
    SetOption,
)


def whatif(
    scenario: ScenarioArgument,
    /,
    *,
    vary: Annotated[
        list[str] | None,
        Parameter(help="key=value,value,...: one axis of the grid. Repeatable.", negative=""),
    ] = None,
    named: Annotated[
        list[str] | None,
        Parameter(help="A bundled what-if by name; `all` takes those that apply.", negative=""),
    ] = None,
    seeds: Annotated[int | None, Parameter(help="Replicates of every point.")] = None,
    set: SetOption = None,
    output: OutputOption = None,
    jobs: JobsOption = 0,
    cluster: ClusterOption = None,
    cache: Annotated[Path | None, Parameter(help="Folder of finished cells.")] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Run a grid of what-ifs and say how every arm fares at each point.

    Finished cells are kept: the same command goes on where it was stopped.
    Exit code 0; 1 where a cell failed.
    """
    from contextlib import nullcontext

    from scenarios import whatif as engine
    from scenarios.cluster import executor
    from scenarios.folder import whole as claim
    from scenarios.store import Store
    from scenarios.sweep import Sweep
    from scenarios.whatif_folder import write
    from scenarios.whatif_report import METRICS, as_text, figure, label_keys
    from zerolayer.output import print_json, print_table

    short = [] if seeds is None else [f"replicates={seeds}"]
    made = engine.grid(scenario, [*(set or []), *short], vary or [], named or [])
    with (
        nullcontext() if output is None else claim(output, force) as place,
        executor(cluster) as make,
        Sweep(jobs, store=Store(cache), make_executor=make, quiet=quiet) as sweep,
    ):
        engine.run(made, sweep)
        rows = engine.rows(made)
        if place is not None:
            write(place, made, rows)
    if json:
        print_json({"folder": str(output) if output else None, "cells": rows})
    else:
        keys = label_keys(made)
        shown = {  # short, so that names of arms stay whole at 80 columns
            "attainment": "SLO met, %", "oom_rate": "OOM, %", "ttft_p99_s": "TTFT p99, s",
            "e2e_p99_s": "e2e p99, s",
        }  # fmt: skip
        body = [
            (
                *(point.labels.get(key, "") for key in keys),
                arm.name,
                *(
                    as_text(figure(rows, point.labels, arm.name, m).scaled(METRICS[m][1]))
                    for m in shown
                ),
            )
            for point, whole in made.points
            for arm in whole.arms
        ]
        head = [*keys, "arm", *shown.values()]
        print_table(f"What if: {made.base.name}", head, body, len(shown), lines=False)
    return 1 if any(row["failure"] for row in rows) else 0
