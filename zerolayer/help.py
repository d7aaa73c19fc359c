"""How ``--help`` is laid out: plain, one option a paragraph, wrapped with a hanging indent."""

import io
import textwrap
from typing import TYPE_CHECKING, Any

from cyclopts.help import PlainFormatter

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions


class Formatter(PlainFormatter):
    """Cyclopts' plain formatter breaks a line twice at 80 columns, and its indent only once."""

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """Print one panel: its title, then an entry a paragraph."""
        if not panel.entries:
            return
        lines = [f"{panel.title}:"] if panel.title else []
        for entry in panel.entries:
            names = ", ".join(entry.display_labels_with_metavar)
            text = " ".join([_plain(entry.description), *_facts(entry)]).strip()
            lines.append(
                textwrap.fill(
                    f"{names}: {text}" if text else names, console.width,
                    initial_indent="  ", subsequent_indent="      ",
                    break_long_words=False, break_on_hyphens=False,
                )
            )  # fmt: skip
        console.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
        console.print()

    def render_description(
        self, console: "Console", options: "ConsoleOptions", description: Any
    ) -> None:
        """Print what the verb does."""
        if text := _plain(description, keep_lines=True):
            paragraphs = [_wrapped(part, console.width) for part in text.split("\n\n")]
            console.print("\n\n".join(paragraphs), highlight=False, markup=False, soft_wrap=True)
            console.print()


def _wrapped(paragraph: str, width: int) -> str:
    """Return a paragraph as it stands where it fits, else wrapped anew."""
    fits = all(len(line) <= width for line in paragraph.splitlines())
    return paragraph if fits else textwrap.fill(" ".join(paragraph.split()), width)


def _facts(entry: "HelpEntry") -> list[str]:
    facts = []
    if entry.choices:
        facts.append(f"[choices: {', '.join(entry.choices)}]")
    if entry.default not in (None, "False"):  # a flag that is not given is not set
        facts.append(f"[default: {entry.default}]")
    if entry.required:
        facts.append("[required]")
    return facts


def _plain(text: Any, *, keep_lines: bool = False) -> str:
    """Return what a renderable says, without the breaks of a console's width."""
    from rich.console import Console

    if text is None:
        return ""
    wide = Console(file=io.StringIO(), width=10_000, no_color=True, highlight=False)
    with wide.capture() as said:
        wide.print(text, end="", markup=False)
    found = said.get()
    if keep_lines:
        return "\n".join(line.rstrip() for line in found.splitlines()).strip()
    return " ".join(found.split())
