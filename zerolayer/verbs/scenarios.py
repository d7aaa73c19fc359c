"""``zerolayer scenarios``: what is bundled, what a scenario resolves to, whether it is sound."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from zerolayer.options import JsonOption, ScenarioArgument, SetOption

app = App(name="scenarios", help="List, show and check scenarios; print their JSON schema.")


@app.command(name="list")
def list_(*, json: JsonOption = False) -> int:
    """List the bundled scenarios."""
    from scenarios.document import Document, bundled_names
    from scenarios.load import resolve
    from zerolayer.output import print_json, print_table

    found = [resolve(Document.read(name)) for name in bundled_names()]
    if json:
        print_json(
            [{"name": s.name, "title": s.title, "arms": [a.name for a in s.arms]} for s in found]
        )
        return 0
    rows = [(s.name, s.title, ", ".join(a.name for a in s.arms)) for s in found]
    print_table("Bundled scenarios", ["name", "title", "arms"], rows)
    return 0


@app.command
def show(
    scenario: ScenarioArgument,
    /,
    *,
    set: SetOption = None,
    resolved: Annotated[bool, Parameter(help="With defaults filled in.", negative="")] = False,
    json: JsonOption = False,
) -> int:
    """Show a scenario as written, or resolved to the last key; both are scenario files.

    Resolved, a key that is not set is a comment: `# limit = none`. --json is resolved always.
    """
    from scenarios.document import find
    from scenarios.load import load
    from scenarios.toml_text import dump
    from zerolayer.output import print_json

    whole = load(scenario, set or [])
    if json:
        print_json(whole.model_dump(mode="json"))
    elif resolved or set:
        print(dump(whole.model_dump(mode="json")), end="")
    else:
        print(find(scenario).read_text(encoding="utf-8-sig"), end="")
    return 0


@app.command
def check(
    scenario: ScenarioArgument,
    /,
    *,
    set: SetOption = None,
    trace: Annotated[bool, Parameter(help="Read the trace too.")] = True,
    json: JsonOption = False,
) -> int:
    """Check a scenario and its trace without running anything."""
    from scenarios import history
    from scenarios.load import load
    from zerolayer.output import print_json

    whole = load(scenario, set or [])
    rows = len(history.load(whole)) if trace else None
    if json:
        print_json({"scenario": whole.name, "ok": True, "requests": rows})
        return 0
    requests = f" of {rows:,} requests" if rows is not None else ""
    arms = ", ".join(arm.name for arm in whole.arms)
    replays = f"{whole.replicates} replicates{requests} of {whole.trace.source}"
    print(f"{whole.name} is sound: arms {arms}; {replays}")
    return 0


@app.command
def schema(
    *,
    output: Annotated[
        Path | None,
        Parameter(name=["-o", "--output"], help="A file; an earlier schema is replaced."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Print the JSON schema of scenario files (always JSON), or write it with -o."""
    from dispatch.errors import InputError
    from scenarios.json_schema import is_schema, text

    if output is None:
        print(text(), end="")
        return 0
    if output.exists() and not is_schema(output):
        found = "exists already and is no schema of scenarios"
        raise InputError.at(str(output), found, "name another file")
    output.write_text(text(), encoding="utf-8")
    return 0
