"""A report as content: built once, then written as HTML, Markdown and PDF that say the same.

Text may hold two marks only: ``**bold**`` and ```code```.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text; *kind* is ``""``, ``lead``, ``note`` or ``warn``."""

    text: str
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Bullets:
    """A list of short sentences."""

    items: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text; the first cell of a row is its header.

    *text_columns* are set flush left, the others flush right. *status* is the column whose words
    (safe, holds …) are marked by colour and sign. *folded* tables open on demand in HTML.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: frozenset[int] = frozenset({0})
    status: int | None = None
    folded: bool = False


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture with one pair of axes, drawn by *draw*; *left_in* is the room for y labels.

    *reading* says in words what the picture shows: alternative text, and all that Markdown gets.
    """

    key: str
    title: str
    reading: str
    draw: "Callable[[Axes], None]"
    height_in: float = 3.1
    left_in: float = 0.62
    right_in: float = 0.18
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """One key figure of the first screen."""

    label: str
    value: str
    detail: str


@dataclass(frozen=True, slots=True)
class Banner:
    """The verdict: *answer* is safe, unsafe or unsure; *headline* says it in one sentence."""

    answer: str
    headline: str
    sentences: Sequence[str]
    tiles: Sequence[Tile]


Block: TypeAlias = Paragraph | Bullets | Table | Plot | Banner


@dataclass(slots=True)
class Section:
    """A heading with its blocks; *key* is its anchor, and names it in the row of links."""

    key: str
    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> "Section":
        """Append *blocks* and return the section."""
        self.blocks.extend(blocks)
        return self


@dataclass(slots=True)
class Document:
    """A whole report."""

    title: str
    subtitle: str
    sections: list[Section] = field(default_factory=list)
