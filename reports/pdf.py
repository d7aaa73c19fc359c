"""The report as PDF: A4 pages with selectable text and the same pictures as vectors.

matplotlib's own PDF writer sets it, so no system library (Pango, a browser) is needed.
"""

import io
from typing import TYPE_CHECKING, Any, Final

from reports import draw
from reports.document import (
    Banner,
    Block,
    Bullets,
    Document,
    Paragraph,
    Plot,
    Section,
    Table,
)
from reports.html import plain, sign, tone
from reports.typeset import Line, columns, page_text, width_pt, wrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAGE_IN: Final = (8.27, 11.69)
EDGE: Final = 48.0  # points
ROOM: Final = PAGE_IN[0] * 72 - 2 * EDGE
TOP: Final = PAGE_IN[1] * 72 - EDGE
BOTTOM: Final = EDGE + 14
LEADING: Final = 1.35
_TINT: Final = {"safe": "#e5f4ee", "unsafe": "#fdeee4", "unsure": "#fbf4dc"}
_WORD: Final = {"good": "#006b4f", "bad": "#a63d00", "open": "#6a5300", "flat": draw.SOFT}


def render(document: Document, footer: str) -> bytes:
    """Return *document* as PDF bytes without any date."""
    from matplotlib.backends.backend_pdf import PdfPages

    buffer = io.BytesIO()
    nothing = {"CreationDate": None, "Producer": "zerolayer", "Title": document.title}
    with draw.settings(), PdfPages(buffer, metadata=nothing) as pages:
        press = _Press(pages, plain(footer))
        press.text(document.title, 15, bold=True)
        press.text(document.subtitle, 8.5, colour=draw.SOFT, after=6)
        for section in document.sections:
            press.section(section)
        press.close()
    return buffer.getvalue()


class _Press:
    """Puts blocks on pages from the top down and turns the page when one is full."""

    def __init__(self, pages: Any, footer: str) -> None:
        self._pages, self._footer = pages, footer
        self._number = 0
        self._page: Figure
        self._y = 0.0
        self._turn()

    def _turn(self) -> None:
        from matplotlib.figure import Figure

        if self._number:
            self.close()
        self._number += 1
        self._page = Figure(figsize=PAGE_IN)
        self._lines: list[Line] = []
        self._y = TOP
        foot = f"{self._footer}   ·   page {self._number}"
        self._put(foot, EDGE, EDGE - 14, 7, colour=draw.SOFT)

    def close(self) -> None:
        """Write the page in hand."""
        self._page.add_artist(page_text(self._lines))
        self._pages.savefig(self._page)

    def _need(self, height: float) -> None:
        if self._y - height < BOTTOM and self._y < TOP:
            self._turn()

    def _put(
        self,
        text: str,
        x: float,
        y: float,
        size: float,
        bold: bool = False,
        colour: str = draw.INK,
        right: bool = False,
    ) -> None:
        at = x - width_pt(text, size, bold) if right else x
        self._lines.append((text, at, y, size, bold, colour))

    def _line(self, y: float, colour: str = draw.RULE, x0: float = EDGE, x1: float = 0.0) -> None:
        from matplotlib.lines import Line2D

        ends = [x / 72 / PAGE_IN[0] for x in (x0, x1 or EDGE + ROOM)]
        height = [y / 72 / PAGE_IN[1]] * 2
        self._page.add_artist(Line2D(ends, height, color=colour, linewidth=0.5))

    def _box(self, y0: float, y1: float, colour: str, edge: str) -> None:
        from matplotlib.patches import Rectangle

        for x, width, fill in ((EDGE, ROOM, colour), (EDGE, 4.0, edge)):
            corner = (x / 72 / PAGE_IN[0], y0 / 72 / PAGE_IN[1])
            size = (width / 72 / PAGE_IN[0], (y1 - y0) / 72 / PAGE_IN[1])
            patch = Rectangle(corner, *size, facecolor=fill, edgecolor="none", zorder=-1)
            self._page.add_artist(patch)

    def text(
        self,
        text: str,
        size: float = 9,
        bold: bool = False,
        colour: str = draw.INK,
        after: float = 4,
        indent: float = 0,
    ) -> None:
        """Set a paragraph."""
        for line in wrap(plain(text), size, ROOM - indent, bold):
            self._need(size * LEADING)
            self._y -= size * LEADING
            self._put(line, EDGE + indent, self._y, size, bold, colour)
        self._y -= after

    def section(self, section: Section) -> None:
        """Set a heading and its blocks."""
        opens_with_plot = any(isinstance(b, Plot) for b in section.blocks[:2])
        self._need(300 if opens_with_plot else 90)
        self._y -= 12
        self.text(section.title, 12.5, bold=True, after=3)
        pending: Plot | None = None
        for block in section.blocks:
            if isinstance(block, Plot) and not block.wide:
                if pending is None:
                    pending = block
                    continue
                self._plots([pending, block])
                pending = None
                continue
            if pending is not None:
                self._plots([pending])
                pending = None
            self._block(block)
        if pending is not None:
            self._plots([pending])

    def _block(self, block: Block) -> None:
        match block:
            case Banner():
                self._banner(block)
            case Paragraph():
                soft = draw.SOFT if block.kind == "note" else draw.INK
                self.text(block.text, 8 if block.kind == "note" else 9, colour=soft)
            case Bullets():
                for item in block.items:
                    self.text(f"•  {item}", 8.5, after=1, indent=6)
                self._y -= 4
            case Plot():
                self._plots([block])
            case Table():
                self._table(block)

    def _banner(self, block: Banner) -> None:
        head = wrap(plain(f"{sign(block.answer)} {block.headline}"), 13, ROOM - 26, True)
        texts = [wrap(plain(s), 9, ROOM - 26) for s in block.sentences]
        rows = len(head) * 13 + sum(map(len, texts)) * 9
        height = rows * LEADING + 3 * len(texts) + 14
        self._need(height)
        colour = _WORD[tone(block.answer)]
        self._box(self._y - height, self._y, _TINT[block.answer], colour)
        self._y -= 4
        for size, some in ((13.0, head), *((9.0, text) for text in texts)):
            for line in some:
                self._y -= size * LEADING
                self._put(line, EDGE + 14, self._y, size, bold=size > 9)
            self._y -= 0 if size > 9 else 3
        self._y -= 26
        self._tiles(block)

    def _tiles(self, block: Banner) -> None:
        """Set the key figures side by side."""
        width = ROOM / max(len(block.tiles), 1)
        details = [wrap(t.detail, 7, width - 8) for t in block.tiles]
        height = 36 + max(map(len, details), default=0) * 7 * LEADING
        self._need(height)
        for i, (tile, lines) in enumerate(zip(block.tiles, details, strict=True)):
            x = EDGE + i * width
            self._put(tile.label, x, self._y - 2, 7.5, colour=draw.SOFT)
            self._put(tile.value, x, self._y - 18, 14, bold=True)
            for n, line in enumerate(lines):
                self._put(line, x, self._y - 29 - n * 7 * LEADING, 7, colour=draw.SOFT)
        self._y -= height

    def _plots(self, plots: list[Plot]) -> None:
        """Set one wide plot or up to two narrow ones in a row, each with its caption."""
        gap = 14.0
        width = ROOM if plots[0].wide else (ROOM - gap) / 2
        scale = width / 72 / (draw.WIDE_IN if plots[0].wide else draw.WIDTH_IN)
        captions = [wrap(plain(p.reading), 7, width) for p in plots]
        height = max(p.height_in for p in plots) * 72 * scale
        self._need(height + 14 + max(map(len, captions)) * 7 * LEADING + 8)
        low = self._y
        for i, (plot, caption) in enumerate(zip(plots, captions, strict=True)):
            x = EDGE + i * (width + gap)
            self._put(plot.title, x, self._y - 11, 9, bold=True)
            own = plot.height_in * 72 * scale
            bottom = self._y - 14 - own
            self._axes(plot, x, bottom, width, own)
            y = bottom
            for line in caption:
                y -= 7 * LEADING
                self._put(line, x, y, 7, colour=draw.SOFT)
            low = min(low, y)
        self._y = low - 10

    def _axes(self, plot: Plot, x: float, y: float, width: float, height: float) -> None:
        whole = draw.WIDE_IN if plot.wide else draw.WIDTH_IN
        left, bottom, wide, high = draw.inner(plot, whole)
        page_w, page_h = PAGE_IN[0] * 72, PAGE_IN[1] * 72
        rectangle = (
            (x + left * width) / page_w,
            (y + bottom * height) / page_h,
            wide * width / page_w,
            high * height / page_h,
        )
        axes = self._page.add_axes(rectangle)
        draw.place(axes, plot, scale=width / 72 / whole)

    def _table(self, table: Table, size: float = 7.5) -> None:
        rows = [[plain(c) for c in row] for row in (table.head, *table.rows)]
        if table.status is not None:
            for row in rows[1:]:
                row[table.status] = f"{sign(row[table.status])} {row[table.status]}"
        figures = set(range(1, len(table.head))) - set(table.text_columns)
        laid = columns(rows, size, ROOM, 9.0, table.status, figures)
        self._need(size * LEADING * (2 + max(len(c) for c in laid.cells[0])) + 30)
        self.text(table.caption, 8.5, bold=True, after=1)
        for at, cells in enumerate(laid.cells):
            height = max(len(c) for c in cells) * size * LEADING + 3
            if at and self._y - height < BOTTOM:
                self._turn()
                self._row(table, laid.cells[0], laid.widths_pt, size, head=True)
            self._row(table, cells, laid.widths_pt, size, head=not at)
        self._y -= 8

    def _row(
        self, table: Table, cells: list[list[str]], widths: list[float], size: float, head: bool
    ) -> None:
        x = EDGE
        height = max(len(c) for c in cells) * size * LEADING + 3
        for i, (lines, width) in enumerate(zip(cells, widths, strict=True)):
            right = bool(i) and i not in table.text_columns and i != table.status
            colour = draw.SOFT if head else draw.INK
            if i == table.status and not head:
                colour = _WORD[tone(" ".join(lines)[2:])]
            for n, line in enumerate(lines):
                at = x + width - 9 if right else x
                y = self._y - (n + 1) * size * LEADING
                self._put(line, at, y, size, bold=head or not i, colour=colour, right=right)
            x += width
        self._y -= height
        self._line(self._y, draw.SOFT if head else draw.RULE)
