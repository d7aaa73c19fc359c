"""How verbs print: JSON for machines, rich tables 80 columns wide for people."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(document: Any) -> None:
    """Print *document* as JSON on stdout; a figure that is not finite prints as null."""
    print(json.dumps(_finite(document), indent=1, sort_keys=True))


def _finite(node: Any) -> Any:
    if isinstance(node, float) and node - node != 0.0:
        return None
    if isinstance(node, dict):
        return {str(key): _finite(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_finite(value) for value in node]
    return node


def print_table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[Any]],
    numbers: int = 0,
    lines: bool = True,
) -> None:
    """Print a table; the last *numbers* columns are set flush right.

    Without *lines* between its columns it is narrower by two places a column.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=title, title_justify="left", pad_edge=False, show_edge=lines,
        box=box.HEAVY_HEAD if lines else box.SIMPLE_HEAD, collapse_padding=not lines,
    )  # fmt: skip
    for place, name in enumerate(head):
        right = place >= len(head) - numbers
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 80, highlight=False)
    console.print(table)


def print_text(paragraphs: Iterable[str]) -> None:
    """Print *paragraphs* wrapped to the terminal, to 80 columns elsewhere."""
    import re
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 80
    for text in paragraphs:
        bound = re.sub(r"(?<=[\d\]]) (?=%|points|m?s\b)", "\u00a0", text)  # units stay with figures
        bound = textwrap.fill(bound, width, break_long_words=False, break_on_hyphens=False)
        print(bound.replace("\u00a0", " "))
