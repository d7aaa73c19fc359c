"""``zerolayer plan``: the smallest fleet per arm and the cheapest mix that hold the SLOs."""

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
    ReplicatesOption,
    ScenarioArgument,
    SetOption,
    overrides,
)


def plan(
    scenario: ScenarioArgument,
    /,
    *,
    slo: Annotated[
        list[str] | None,
        Parameter(
            help="ttft_p99_s=0.5 and so on; replaces the scenario's. Repeatable.", negative=""
        ),
    ] = None,
    arm: Annotated[
        list[str] | None, Parameter(help="Plan for this arm only. Repeatable.", negative="")
    ] = None,
    most: Annotated[int, Parameter(help="Largest fleet to consider, in replicas.")] = 64,
    deep: Annotated[
        bool, Parameter(help="Headroom, N-1, tornado and calibration error too.")
    ] = True,
    set: SetOption = None,
    replicates: ReplicatesOption = None,
    output: OutputOption = None,
    jobs: JobsOption = 0,
    cluster: ClusterOption = None,
    cache: Annotated[Path | None, Parameter(help="Folder of finished cells.")] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Find how many of which GPU hold the SLOs, by simulated runs alone.

    An SLO holds where it holds in every replicate, over all offered requests.
    Exit code 0: some arm has a fleet; 1: none has; 3: too few requests to tell.
    """
    from contextlib import nullcontext
    from sys import stderr

    from scenarios.cluster import executor
    from scenarios.folder import whole as claim
    from scenarios.plan.answer import as_dict
    from scenarios.plan.run import chosen, plan_arms
    from scenarios.plan.words import beside, sentence
    from scenarios.plan.write import write
    from scenarios.store import Store
    from scenarios.sweep import Sweep
    from zerolayer.output import print_json

    whole = chosen(scenario, overrides(set, replicates), slo or [], arm or [])
    with (
        nullcontext() if output is None else claim(output, force) as place,
        executor(cluster) as make,
        Sweep(jobs, store=Store(cache), make_executor=make, quiet=quiet) as sweep,
    ):
        answers = plan_arms(whole, sweep, most=most, deep=deep, quiet=quiet)
        if place is not None:
            write(place, whole, answers)
    for text, count in sweep.failures.items():  # they do not hold, and must not do so unseen
        print(f"{count:,} cells failed: {text}", file=stderr)
    if json:
        print_json({"answers": [as_dict(found) for found in answers]})
    else:
        for found in answers:
            print(sentence(found))
            for text in (*beside(found), found.trust):
                print(f"  {text}")
        if output is not None:
            print(f"report: {output / 'report.html'}")
    if any(found.best is not None for found in answers):
        return 0
    return 3 if any(found.unknown for found in answers) else 1
