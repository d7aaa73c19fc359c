"""The report as one HTML file: no script, no other file, light, dark and print."""

import re
from importlib.resources import files
from itertools import groupby
from typing import Any, Final

from markupsafe import Markup, escape

from reports import draw
from reports.document import Block, Document, Plot

LIMIT_BYTES: Final = 2_000_000

_TONES: Final = {
    "good": ("safe", "holds", "met", "no worse", "better", "agrees"),
    "bad": ("unsafe", "does not hold", "missed", "worse"),
    "open": ("not enough evidence", "undecided", "unsure"),
}
_UNITS: Final = re.compile(
    r"[−+]?[\d.,]+ \[[^\]\n]{1,40}\](?: (?:%|points))?"  # a whole interval
    r"|(?<=\d) (?=(?:s|ms|µs|min|h)\b|%)|(?<=[≤≥]) (?=\d)"
)
_NAV: Final = {
    "causes": "Root causes",
    "segments": "Who got worse",
    "parts": "Which part did what",
    "maps": "When it holds",
    "pressure": "Load",
    "router-log": "Router log",
    "limits": "Workload",
    "ledger": "Keys",
}
"""Links that are not just the section's key: short, so that the verdict stays in sight."""
_SIGNS: Final = {"good": "✓", "bad": "✗", "open": "?", "flat": "–"}


def tone(word: str) -> str:
    """Return good, bad, open or flat for the words of a status."""
    for name, words in _TONES.items():
        if word.lower() in words:
            return name
    return "flat"


def sign(word: str) -> str:
    """Return the sign that goes with a status, so that colour is never alone."""
    return _SIGNS[tone(word)]


def plain(text: str) -> str:
    """Return *text* without its marks."""
    return text.replace("**", "").replace("`", "")


def marks(text: str) -> Markup:
    """Return *text* as safe HTML with its two marks carried out."""
    safe = _UNITS.sub(lambda hit: hit[0].replace(" ", "\u00a0"), str(escape(text)))
    safe = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", safe))


def grouped(blocks: list[Block]) -> list[list[Block]]:
    """Return *blocks* with neighbouring plots together, so that they share a grid."""
    runs = groupby(enumerate(blocks), lambda p: -1 if isinstance(p[1], Plot) else p[0])
    return [[block for _, block in run] for _, run in runs]


def render(document: Document, footer: str) -> str:
    """Return *document* as a whole HTML page."""
    from jinja2 import Environment, StrictUndefined

    folder = files("reports") / "templates"
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    filters: dict[str, Any] = {
        "marks": marks,
        "plain": plain,
        "tone": tone,
        "sign": sign,
        "nav": lambda key: _NAV.get(key, key.capitalize()),
        "grouped": grouped,
        "kind": lambda block: type(block).__name__,
        "svg": lambda plot: Markup(draw.svg(plot)),
    }
    environment.filters.update(filters)
    template = environment.from_string((folder / "report.html.j2").read_text("utf-8"))
    css = Markup(re.sub(r"\n\s*", "", (folder / "report.css").read_text("utf-8")))
    with draw.settings():
        return template.render(doc=document, css=css, footer=footer) + "\n"
