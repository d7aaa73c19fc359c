"""Lines and words on a page: measured with the real font, so that nothing overlaps."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

Line: TypeAlias = tuple[str, float, float, float, bool, str]
"""Text, x and y of its baseline from the lower left in points, size, bold, colour."""


@lru_cache(maxsize=4)
def _font(bold: bool) -> Any:
    from matplotlib.font_manager import FontProperties, findfont
    from matplotlib.ft2font import FT2Font

    weight = "bold" if bold else "normal"
    font = FT2Font(findfont(FontProperties(family="DejaVu Sans", weight=weight)))
    font.set_size(100, 72)
    return font


@lru_cache(maxsize=8192)
def _advance(character: str, bold: bool) -> float:
    """Return the width of one character as a share of the font size."""
    from matplotlib.ft2font import LoadFlags

    font = _font(bold)
    glyph = font.load_char(ord(character), flags=LoadFlags.NO_HINTING)
    return float(glyph.linearHoriAdvance) / 65536.0 / 100.0


def width_pt(text: str, size: float, bold: bool = False) -> float:
    """Return the width of *text* in points, kerning left out (it only narrows)."""
    return size * sum(_advance(c, bold) for c in text)


def wrap(text: str, size: float, room_pt: float, bold: bool = False) -> list[str]:
    """Return *text* as lines no wider than *room_pt*; a longer word is cut."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if width_pt(longer, size, bold) <= room_pt:
                line = longer
                continue
            if line:
                lines.append(line)
            while width_pt(word, size, bold) > room_pt and len(word) > 1:
                keep = _prefix(word, size, room_pt, bold)
                lines.append(word[:keep])
                word = word[keep:]
            line = word
        lines.append(line)
    return lines


def _prefix(word: str, size: float, room_pt: float, bold: bool) -> int:
    keep = len(word)
    while keep > 1 and width_pt(word[:keep], size, bold) > room_pt:
        keep -= 1
    return keep


@dataclass(frozen=True, slots=True)
class Columns:
    """The widths of a table's columns and the lines of every cell."""

    widths_pt: list[float]
    cells: list[list[list[str]]]


def columns(
    rows: list[list[str]],
    size: float,
    room_pt: float,
    gap_pt: float,
    firm: int | None = None,
    figures: Collection[int] = (),
) -> Columns:
    """Return column widths that fill *room_pt* fairly, and *rows* wrapped to them (row 0 bold).

    The column *firm* is never wrapped below its head; those of *figures* only where the words of
    the others leave too little room.
    """
    count = len(rows[0])
    natural, least, unbroken = [0.0] * count, [0.0] * count, [0.0] * count
    for at, row in enumerate(rows):
        for i, cell in enumerate(row):
            bold = not at or not i
            natural[i] = max(natural[i], width_pt(cell, size, bold) + gap_pt)
            word = max((width_pt(w, size, bold) for w in cell.split()), default=0.0)
            if at and i == firm:
                word = width_pt(cell, size, bold)
            least[i] = max(least[i], min(word, room_pt / 3) + gap_pt)
            whole = at and i in figures
            unbroken[i] = max(unbroken[i], width_pt(cell, size, bold) + gap_pt if whole else 0.0)
    unbroken = [max(pair) for pair in zip(unbroken, least, strict=True)]
    if sum(unbroken) <= room_pt:
        least = unbroken
    spare = room_pt - sum(least)
    if sum(natural) <= room_pt:
        widths = natural
    elif spare <= 0:
        widths = [w * room_pt / sum(least) for w in least]
    else:
        wants = [max(0.0, n - w) for n, w in zip(natural, least, strict=True)]
        widths = [w + spare * x / sum(wants) for w, x in zip(least, wants, strict=True)]
    cells = [
        [wrap(c, size, widths[i] - gap_pt, not at or not i) for i, c in enumerate(row)]
        for at, row in enumerate(rows)
    ]
    return Columns(widths, cells)


def page_text(lines: list[Line]) -> Any:
    """Return one artist that sets *lines*; an artist a line would lay each out several times."""
    from matplotlib.artist import Artist
    from matplotlib.font_manager import FontProperties

    fonts = {
        (size, bold): FontProperties(
            family="DejaVu Sans", size=size, weight="bold" if bold else "normal"
        )
        for _, _, _, size, bold, _ in lines
    }

    class PageText(Artist):  # type: ignore[misc, unused-ignore]
        def draw(self, renderer: Any) -> None:
            for text, x, y, size, bold, colour in lines:
                if text:
                    gc = renderer.new_gc()
                    gc.set_foreground(colour)
                    renderer.draw_text(gc, x, y, text, fonts[size, bold], 0)
                    gc.restore()

    return PageText()
