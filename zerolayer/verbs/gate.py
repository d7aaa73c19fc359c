"""`zerolayer gate`: did this commit change placements, or make dispatch slower?"""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

app = App(name="gate", help="Gate a commit: placements exact, dispatch latency paired.")

Flag = Annotated[bool, Parameter(negative="")]


@app.default
def gate(
    *,
    base: str | None = None,
    repo: Path = Path(),
    policy: str = "topology",
    path: Literal["decisions", "door", "gpu"] = "decisions",
    tier: str = "0,1,2",
    scenarios: str = "migration-2023q3,h100-2024",
    limit: int = 1000,
    baseline: Path | None = None,
    accept: Flag = False,
    selftest: Flag = False,
    dirty: Flag = False,
    inconclusive: Literal["pass", "fail"] = "pass",
    output: Path | None = None,
    junit: Path | None = None,
    history: Path | None = None,
    json: Flag = False,
) -> int:
    """Compare this tree with a base commit and with the checked-in baseline.

    Parameters
    ----------
    base
        Branch or commit; its merge base with HEAD is measured. Default: the main branch.
    repo
        Any git repository with a `zerolayer.policies` entry point, or this one.
    policy
        Policy by its registered or entry-point name.
    path
        What tier 2 times: decisions, whole loopback requests through the HTTP door, or an
        engine's iterations on a GPU by CUDA events.
    tier
        0 exact simulation, 1 work counters, 2 paired wall clock.
    scenarios
        Scenarios of tier 0.
    limit
        Requests of each scenario.
    baseline
        Checked-in file of tier 0 and 1; default .zerolayer/gate.json of the repository.
    accept
        Rewrite the baseline and say what moved.
    selftest
        Show on this machine that A/A passes and A/A + 10 % fails.
    dirty
        Measure the working tree with its uncommitted changes.
    inconclusive
        Exit code of an inconclusive result: pass 0, fail 3.
    output
        File for the JSON result.
    junit
        File for JUnit XML.
    history
        CSV that gets one line.
    json
        Print JSON instead of the table.
    """
    from reports.gate import history as past
    from reports.gate import render
    from scenarios.gate import gate as gating

    options = gating.Options(
        repo=repo,
        base=base,
        policy=policy,
        path=path,
        tiers=_tiers(tier),
        scenarios=tuple(s for s in scenarios.split(",") if s),
        limit=limit,
        baseline=baseline,
        allow_dirty=dirty,
    )
    if accept:
        return _accept(options, json)
    result = (gating.selftest if selftest else gating.run)(options, _say)
    if output:
        output.write_text(render.to_json(result))
    if junit:
        junit.write_text(render.to_junit(result))
    if history:
        past.append(history, result)
    _publish(result)
    print(render.to_json(result) if json else _table(result), end="")
    return result.exit_code(inconclusive)


@app.command
def trend(history: Path, *, output: Path = Path("gate-trend.svg"), json: Flag = False) -> None:
    """Draw a gate history with its change points.

    Parameters
    ----------
    history
        The CSV that `gate --history` wrote.
    output
        The picture; its suffix names the format.
    json
        Print the change points as JSON.
    """
    import json as text

    from reports.gate import history as past

    found = past.draw(past.read(history), output)
    if json:
        print(text.dumps({"picture": str(output), "change_points": found}))
        return
    for metric, points in found.items():
        told = (
            "change points need the extra `trend` (ruptures)"
            if points is None
            else f"level changes at run {', '.join(map(str, points))}"
            if points
            else "level"
        )
        print(f"{metric}: {told}")
    print(f"drawn in {output}")


def _tiers(text: str) -> tuple[int, ...]:
    from dispatch.errors import InputError

    if not {"0", "1", "2"} >= (named := {part.strip() for part in text.split(",")}):
        raise InputError.at("--tier", f"{text!r} is no list of tiers 0, 1, 2", "e.g. --tier 0,1")
    return tuple(sorted(int(tier) for tier in named))


def _accept(options: "object", as_json: bool) -> int:
    import json as text

    from scenarios.gate import gate as gating

    assert isinstance(options, gating.Options)
    path, moved = gating.accept(options, _say)
    if as_json:
        print(text.dumps({"baseline": str(path), "moved": {c.name: c.detail for c in moved}}))
        return 0
    for check in moved:
        print(f"{check.name}: {check.detail}")
    print(f"accepted: {path}" if moved else f"accepted, nothing moved: {path}")
    return 0


def _publish(result: "object") -> None:
    """On GitHub, print annotations and append the step summary."""
    import os
    import sys

    from reports.gate import render
    from reports.gate.verdict import GateResult

    assert isinstance(result, GateResult)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        print(render.to_annotations(result), end="", file=sys.stderr)
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with open(summary, "a") as file:
                file.write(render.to_markdown(result))


def _table(result: "object") -> str:
    import io

    from rich.console import Console
    from rich.table import Table

    from reports.gate import render
    from reports.gate.verdict import GateResult

    assert isinstance(result, GateResult)
    table = Table("tier", "check", "verdict", "found", box=None, pad_edge=False)
    for column in table.columns[:3]:
        column.no_wrap = True
    for row in render.table_rows(result):
        table.add_row(*row)
    out = io.StringIO()
    console = Console(file=out, width=80)
    console.print(table)
    return out.getvalue() + render.sentence(result) + "\n"


def _say(text: str) -> None:
    import sys

    if sys.stderr.isatty():
        print(f"\r\033[Kgate: {text}", end="", file=sys.stderr, flush=True)
    else:
        print(f"gate: {text}", file=sys.stderr, flush=True)
