"""``zerolayer policies``: every policy a scenario may name, or one of them in full."""

import re
from typing import Annotated, Any, Final

from cyclopts import Parameter

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
Markdown = Annotated[
    bool, Parameter(name="--markdown", negative="", help="Print the reference of docs/policies.md.")
]

LABELS: Final = ("Signals", "Ties", "Source", "Known failure mode")


def policies(name: str | None = None, *, json: Json = False, markdown: Markdown = False) -> int:
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
    elif markdown:
        print(reference(rows), end="")
    elif name:
        _print_one(rows[0])
    else:
        _print_list(rows)
    return 0


def sections(definition: str) -> dict[str, str]:
    """Return the parts of a policy's docstring by their labels; what comes first is ``rule``."""
    _, _, rest = definition.partition("\n")
    found: dict[str, str] = {}
    label = "rule"
    for piece in re.split(r"(Signals|Ties|Source|Known failure mode): ", " ".join(rest.split())):
        if piece in LABELS:
            label = piece
        else:
            found[label] = (piece.strip() or found.get(label, "")).removesuffix(".") + "."
    return {key: text for key, text in found.items() if text != "."}


def reference(rows: list[dict[str, Any]]) -> str:
    """Return a heading, the definition and the parameters of each policy, in Markdown."""
    lines = []
    for row in rows:
        lines += [f"### {row['name']}", "", _code(row["summary"]), ""]
        parts = sections(row["definition"])
        if rule := parts.pop("rule", ""):
            lines += [_code(rule), ""]
        lines += [f"- **{label}**: {_code(text)}" for label, text in parts.items()]
        if row["params"]:
            lines += ["", _code(" ".join(row["params_doc"].split())), ""]
            lines += ["| parameter | type | default |", "|---|---|---|"]
            for key, about in row["params"].items():
                kind = about["type"].replace("|", "or")
                lines.append(f"| `{key}` | {kind} | `{about['default']!r}` |")
        lines.append("")
    return "\n".join(lines)


def _code(text: str) -> str:
    """Return *text* with literals as Markdown has them, and stars that stay stars."""
    parts = text.split("``")
    parts[::2] = [part.replace("*", "\\*") for part in parts[::2]]
    return "`".join(parts)


def _print_one(row: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    parts = sections(row["definition"])
    console.print(Text(row["name"], style="bold"))
    console.print(Text(row["summary"]))
    if rule := parts.pop("rule", ""):
        console.print(Text("\n" + rule))
    table = Table.grid(padding=(0, 2))
    for label, text in parts.items():
        table.add_row(Text("Fails" if label.startswith("Known") else label), Text(text))
    console.print(Text(), table, Text())
    if row["params"]:
        console.print(Text(" ".join(row["params_doc"].split()) + "\n"))
    for key, about in row["params"].items():
        console.print(Text(f"  {key}: {about['type']} = {about['default']!r}"))


def _print_list(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(title=f"{len(rows)} placement policies", box=None)
    table.add_column("name", no_wrap=True)
    table.add_column("what it does", overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["summary"])
    console.print(table)
