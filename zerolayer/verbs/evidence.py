"""``zerolayer evidence`` and ``run``: a scenario in, a run folder out."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from zerolayer.options import (
    ForceOption,
    JobsOption,
    JsonOption,
    OutputOption,
    QuietOption,
    ReplicatesOption,
    ScenarioArgument,
    SetOption,
    command,
    overrides,
)


def run(
    scenario: ScenarioArgument,
    /,
    *,
    output: OutputOption = None,
    set: SetOption = None,
    replicates: ReplicatesOption = None,
    jobs: JobsOption = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Replay every arm and write the journal's tables, a timeline for Perfetto and a manifest.

    There is no report: see evidence. Without -o nothing is kept: only the outcome counts are
    printed.
    """
    from reports import timeline
    from scenarios.load import load
    from scenarios.run import run as run_scenario
    from zerolayer.output import print_json, print_table

    whole = load(scenario, overrides(set, replicates))
    finish = timeline.write if output else None
    done = run_scenario(whole, output, jobs=jobs, force=force, quiet=quiet, finish=finish)
    arms: Mapping[str, Any] = done.manifest["arms"]
    if json:
        print_json({"folder": str(output) if output else None, "arms": arms})
        return 0
    names = next(iter(arms.values()))["facts"][0]["outcomes"]
    totals = {
        name: [sum(f["outcomes"][name] for f in about["facts"]) for about in arms.values()]
        for name in names
    }
    rows = [(name, *(f"{n:,}" for n in counts)) for name, counts in totals.items() if any(counts)]
    print_table(f"{whole.name}: all replicates", ["outcome", *arms], rows, len(arms))
    return 0


def evidence(
    scenario: ScenarioArgument,
    /,
    *,
    output: Annotated[
        Path | None,
        Parameter(
            name=["-o", "--output"], help="The folder to write; out/NAME of the scenario if none."
        ),
    ] = None,
    set: SetOption = None,
    replicates: ReplicatesOption = None,
    jobs: JobsOption = 0,
    force: ForceOption = False,
    inconclusive: Annotated[
        Literal["pass", "fail"], Parameter(help="pass: exit 0 where evidence is not enough.")
    ] = "fail",
    factorial: Annotated[
        bool, Parameter(help="Run all combinations of the scenario's factors too.", negative="")
    ] = False,
    maps: Annotated[
        bool, Parameter(help="Map where each claim holds: load, telemetry, H100.", negative="")
    ] = False,
    drills: Annotated[
        bool, Parameter(help="Drill each fault of the simulator under every arm.", negative="")
    ] = False,
    router_log: Annotated[
        Path | None,
        Parameter(help="A router's own log (CSV or JSONL: request, time, backend), replayed."),
    ] = None,
    oracle: Annotated[
        bool, Parameter(help="Run the candidate placed by an oracle too, as a bound.")
    ] = True,
    width: Annotated[
        float | None,
        Parameter(help="Points: replicates until SLO attainment's interval is ± this narrow."),
    ] = None,
    most: Annotated[int, Parameter(help="With --width: replicates at most.")] = 40,
    world: Annotated[
        Literal["sim", "live"],
        Parameter(help="live: real doors and devices on this machine, in real time."),
    ] = "sim",
    live_model: Annotated[str, Parameter(help="Live: a preset or a checkpoint folder.")] = "tiny",
    live_kind: Annotated[
        Literal["cpu", "cuda"], Parameter(help="Live: what the devices are slices of.")
    ] = "cpu",
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Replay every arm, judge the candidate against the baseline, and write the report.

    Exit code 0: safe; 1: unsafe; 2: bad input; 3: not enough evidence.
    """
    import reports.evidence
    from dispatch.errors import InputError
    from scenarios.extras import extras
    from scenarios.folder import whole as claim
    from scenarios.load import load
    from scenarios.run import run as run_scenario
    from scenarios.stop import terminable
    from zerolayer.output import print_json, print_text

    settings = overrides(set, replicates)
    whole = load(scenario, settings)
    target = output if output is not None else Path("out") / whole.name
    with terminable(), claim(target, force) as place:
        live = _live(whole, live_model, live_kind) if world == "live" else None
        for option, given in (("--router-log", router_log), ("--width", width)):
            if live is not None and given is not None:
                found = "is of a simulation only"
                raise InputError.at(option, found, "leave it or --world live away")
        more: dict[str, Any] = {}
        if width is not None:
            whole, more["stopping"] = _widened(whole, width, most, jobs, quiet)
        if live is None:
            whole = _beside(whole, router_log, oracle)
        asked = {"factorial": factorial, "maps": maps, "drills": drills}
        wanted = [name for name, on in asked.items() if on]
        words = [f"--{name}" for name in wanted]
        words += _words(live_model, live_kind) if live else ()
        words += ["--router-log", router_log.name] if router_log else []
        words += [] if oracle or live else ["--no-oracle"]
        words += [] if width is None else ["--width", f"{width:g}", "--most", str(most)]
        if wanted:
            more |= extras(whole, wanted, jobs=jobs, quiet=quiet)
        done = run_scenario(
            whole, target, jobs=jobs, force=force, quiet=quiet, finish=reports.evidence.write,
            extra=more, live=live, command=command("evidence", scenario, settings, *words),
            claimed=place,
        )  # fmt: skip
    verdict = done.outcome
    if json:
        print_json({"folder": str(target), "verdict": verdict.as_dict()})
    else:
        print_text(verdict.told)
        print(f"report: {target / 'report.html'}")
    return 0 if verdict.exit_code == 3 and inconclusive == "pass" else int(verdict.exit_code)


def _beside(whole: Any, router_log: Path | None, oracle: bool) -> Any:
    """Return the scenario with its reference arms."""
    from scenarios.reference import with_oracle, with_router_log

    if router_log is not None:
        whole = with_router_log(whole, router_log)
    return with_oracle(whole) if oracle else whole


def _widened(whole: Any, width: float, most: int, jobs: int, quiet: bool) -> Any:
    """Return the scenario with as many replicates as *width* takes, and why."""
    from scenarios.sweep import Sweep
    from scenarios.width import widened

    with Sweep(jobs, quiet=quiet) as sweep:
        return widened(whole, width, most, sweep)


def _words(model: str, kind: str) -> tuple[str, ...]:
    return ("--world", "live", "--live-model", model, "--live-kind", kind)


def _live(whole: Any, model: str, kind: str) -> Any:
    """Return what replays the cells of *whole* live; every set-up is tried before anything runs."""
    from functools import partial

    from scenarios.live_cell import LiveReplayer, config

    gpus = 1
    if kind == "cuda":
        from live.load import cuda_count

        gpus = cuda_count()
    for arm in whole.arms:
        config(whole, arm, model, kind, gpus)
    return partial(LiveReplayer, model=model, kind=kind, gpus=gpus)
