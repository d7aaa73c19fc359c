"""``zerolayer legacy``: the ledger of the 47 keys, and imports of other routers' files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from dispatch.legacy.imports import Imported

app = App(name="legacy", help="The legacy routing layer: what it does, and what of it is missed.")

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


@app.command
def ledger(*, json: Json = False) -> int:
    """List the 47 keys: what each does, what becomes of it without the layer, and its test.

    Exit code 1 where a row names a test that does not exist.
    """
    from dispatch.legacy.ledger import has_test
    from dispatch.legacy.ledger import ledger as rows_of

    root = Path(__file__).parents[2]
    rows = [(row, has_test(row, root)) for row in rows_of()]
    if json:
        from dataclasses import asdict
        from json import dumps

        print(dumps([{**asdict(row), "test_exists": exists} for row, exists in rows], indent=2))
    else:
        for row, exists in rows:
            mark = {True: "", False: " [no such test]", None: ""}[exists]
            print(f"{row.key} ({row.kind}): {row.without}")
            _told("does", row.does)
            _told("instead", row.how)
            _told("test", row.test.partition("::")[2] + mark)
        fates = [row.without for row, _ in rows]
        counts = ", ".join(f"{fates.count(f)} {f}" for f in ("gone", "replaced", "needed"))
        print(f"{len(rows)} keys: {counts}. By construction, not by measurement (C9).")
    return 1 if any(exists is False for _, exists in rows) else 0


def _told(name: str, text: str) -> None:
    """Print one indented fact of a key; a test's name stays whole, to be searched for."""
    import textwrap

    print(
        textwrap.fill(
            text, 80, initial_indent=f"    {name:<8}", subsequent_indent=" " * 12,
            break_long_words=False,
        )
    )  # fmt: skip


@app.command(name="import")
def import_(
    file: Annotated[
        Path, Parameter(help="nginx, Envoy (.json, .yaml) or our own .toml, told by its ending.")
    ],
    /,
    *,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="File to write; stdout otherwise.")
    ] = None,
    scenario: Annotated[
        bool,
        Parameter(help="Write a scenario to fill GPUs into, not our configuration.", negative=""),
    ] = False,
    json: Json = False,
) -> int:
    """Read nginx upstream blocks, Envoy clusters or our own TOML into the legacy configuration.

    Prints the configuration as TOML (or writes it to ``-o``) and lists what could not be carried
    over. YAML needs the yaml module; Envoy JSON needs nothing.
    """
    from dispatch.legacy.imports import read_file
    from dispatch.legacy.imports.scenario import as_scenario
    from zerolayer import targets

    if output is not None:
        targets.ready(output, [file])
    found = read_file(file)
    text = as_scenario(found) if scenario else found.as_toml()
    if output is not None:
        targets.write_text(output, text)
    if json:
        from dataclasses import asdict
        from json import dumps

        print(dumps(asdict(found), indent=2))
        return 0
    if output is None:
        print(text, end="")
    print(_summary(found), file=sys.stderr)
    return 0


def _summary(found: "Imported") -> str:
    """Say how much came over, and list what did not, or not as it was."""
    keys, servers = _counted(len(found.settings), "key"), _counted(len(found.peers), "server")
    head = f"{keys} and {servers} carried over; "
    if not found.left:
        return f"{head}nothing was left behind"
    things = _counted(len(found.left), "thing")
    rows = [f"  {row.place}: {row.what} ({row.why})" for row in found.left]
    return "\n".join((f"{head}{things} not, or not as it was:", *rows))


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
