"""``zerolayer policies``: every policy a scenario may name, or one of them in full."""

from typing import Annotated

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


def policies(name: str | None = None, *, json: Json = False) -> int:
    """List the placement policies with one line each; with NAME, its whole definition.

    Parameters
    ----------
    name
        A policy: its formula, signals, ties, source, known failure mode and parameters.
    """
    from dispatch import registry

    rows = [registry.describe(n) for n in ([name] if name else registry.names())]
    if json:
        import sys
        from json import dump

        dump(rows, sys.stdout, indent=2)
        print()
        return 0
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if name:
        (row,) = rows
        console.print(f"[bold]{row['name']}[/bold]\n{row['definition']}", highlight=False)
        for key, about in row["params"].items():
            console.print(f"  {key}: {about['type']} = {about['default']!r}", highlight=False)
        return 0
    table = Table(title=f"{len(rows)} placement policies", box=None)
    table.add_column("name", no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["summary"])
    console.print(table)
    return 0
