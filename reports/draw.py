"""Matplotlib, tamed: the same picture as a slim inline SVG or on a PDF page, byte for byte.

Colours are Okabe and Ito's, each series with its own line style as well. In the SVG every colour
of the palette becomes a CSS variable, so that pictures follow the page into dark mode.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from reports.document import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK: Final = "#1b1f24"
SOFT: Final = "#5b6570"
RULE: Final = "#d3d9df"
SERIES: Final = ("#b84a00", "#0072b2", "#007a5a", "#9c6500", "#a3487a", "#2a86b8")
DASHES: Final[tuple[Any, ...]] = (
    (0, (5, 2)),
    "solid",
    (0, (7, 2, 1.5, 2)),
    (0, (1.5, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (8, 3)),
)
GOOD: Final = "#007a5b"
BAD: Final = "#b84b00"

CSS_NAMES: Final = {
    INK: "currentColor",
    SOFT: "var(--soft)",
    RULE: "var(--rule)",
    GOOD: "var(--good)",
    BAD: "var(--bad)",
    **{colour: f"var(--s{i})" for i, colour in enumerate(SERIES)},
}

WIDTH_IN: Final = 4.7
WIDE_IN: Final = 9.6

_SETTINGS: Final[dict[str, Any]] = {
    "svg.hashsalt": "zerolayer",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "path.simplify": True,
    "figure.dpi": 72,
    "text.hinting": "no_hinting",  # pages are vectors, and unhinted text is set twice as fast
}


@contextmanager
def settings() -> Iterator[None]:
    """Draw under the house's settings only, whatever the user's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        yield


def place(axes: "Axes", plot: Plot, scale: float = 1.0) -> None:
    """Draw *plot* into *axes*; text shrinks by *scale* where a page is narrower than the screen."""
    plot.draw(axes)
    if scale != 1.0:
        from matplotlib.text import Text

        for text in axes.findobj(Text):
            text.set_fontsize(float(text.get_fontsize()) * scale)


def svg(plot: Plot) -> str:
    """Return *plot* as one ``<svg>`` element for inlining: ids unique to it, no scripts, no dates.

    Call under :func:`settings`.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    width = WIDE_IN if plot.wide else WIDTH_IN
    figure = Figure(figsize=(width, plot.height_in))
    FigureCanvasSVG(figure)
    axes = figure.add_axes(inner(plot, width))
    place(axes, plot)
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    return _slim(buffer.getvalue(), plot)


def inner(plot: Plot, width_in: float) -> tuple[float, float, float, float]:
    """Return the axes' rectangle in shares of a figure of *width_in* by the plot's height."""
    left, right, bottom, top = plot.left_in, plot.right_in, 0.5, 0.16
    return (
        left / width_in,
        bottom / plot.height_in,
        (width_in - left - right) / width_in,
        (plot.height_in - bottom - top) / plot.height_in,
    )


def _slim(text: str, plot: Plot) -> str:
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.S)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{plot.key}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{plot.key}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{plot.key}-\1)", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
    for colour, name in CSS_NAMES.items():
        text = text.replace(colour, name)
    title = _escape(plot.title)
    label = f'role="img" aria-labelledby="{plot.key}-t {plot.key}-d"'
    opening = re.search(r"<svg[^>]*>", text)
    assert opening is not None
    box = re.search(r'viewBox="([^"]+)"', opening.group(0))
    assert box is not None
    head = (
        f'<svg xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box.group(1)}" {label}>'
        f'<title id="{plot.key}-t">{title}</title>'
        f'<desc id="{plot.key}-d">{_escape(plot.reading)}</desc>'
    )
    body = text[opening.end() :]
    return head + re.sub(r">\s+<", "><", body).strip()


def _escape(text: str) -> str:
    plain = text.replace("**", "").replace("`", "")
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def standalone(inline: str) -> str:
    """Return an inline ``<svg>`` as a file of its own: namespace, white ground, real colours."""
    text = inline.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    for colour, name in CSS_NAMES.items():
        text = text.replace(name, colour)
    ground = '<rect width="100%" height="100%" fill="white"/>'
    at = text.index("</desc>") + len("</desc>")
    font = "<style>text{font-family:sans-serif}</style>"
    return text[:at] + font + ground + text[at:] + "\n"
