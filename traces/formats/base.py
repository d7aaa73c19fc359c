"""What a format is: how it is told apart, how a record becomes rows, what it cannot tell."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from traces.assemble import Facts
from traces.rows import Row

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Options:
    """What a caller may say about a file.

    ``unit``: unit of numeric times ("s", "ms", "us", "ns"), None for the format's own. ``columns``:
    a column map for files of no known format. ``rate_per_s``: arrivals to draw where there are
    none. ``prompt_bytes`` and ``output_bytes``: bytes a token, where lengths come from bytes.
    """

    unit: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    rate_per_s: float | None = None
    seed: int = 0
    prompt_bytes: float | None = None
    output_bytes: float | None = None


class Reader(Protocol):
    """Turns the records of one file into rows, one record after another.

    ``at`` is set to the place of a record before :meth:`rows` sees it, for rows that come later.
    """

    at: int

    def rows(self, record: Record) -> Iterable[Row]:
        """Return the requests of one record; a BadRow says why it cannot be used."""

    def finish(self) -> Iterable[Row]:
        """Return what could only be told at the end."""

    def facts(self) -> Facts:
        """Return what holds of this file."""


@dataclass(frozen=True, slots=True)
class Quick:
    """Columns of a plain numeric CSV, for the vectorised reader; times are ISO or in ``unit``."""

    arrival: str
    prompt: str
    output: str
    unit: Literal["iso", "s", "ms", "us", "ns"] = "s"
    model: str = ""
    session: str = ""
    duration: str = ""  # in seconds
    zero_output_failed: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """One format that traces come in.

    ``kind``: "csv", "json" (one object a line, an array, or one document) or "text". ``columns``:
    headers that a CSV of this format must have. ``claims``: whether a JSON record looks like it.
    ``split`` parts a record that holds many, so that one bad part costs one part.
    """

    name: str
    about: str
    kind: Literal["csv", "json", "text"]
    reader: Callable[[Options], Reader]
    columns: tuple[str, ...] = ()
    claims: Callable[[Record], bool] = lambda record: False
    quick: Quick | None = None
    facts: Facts | None = None
    split: Callable[[Record], Iterable[Record]] | None = None


class Base:
    """What most readers share: nothing is left over at the end."""

    at = 0

    def finish(self) -> Iterable[Row]:
        """Return no more rows."""
        return ()


class Simple(Base):
    """A reader whose every record is one request."""

    def __init__(self, parse: Callable[[Record, Options], Row], facts: Facts, options: Options):
        self._parse, self._facts, self._options = parse, facts, options

    def rows(self, record: Record) -> Iterable[Row]:
        return (self._parse(record, self._options),)

    def facts(self) -> Facts:
        return self._facts


def simple(parse: Callable[[Record, Options], Row], facts: Facts) -> Callable[[Options], Reader]:
    """Return a reader factory for a format of one request a record."""
    return lambda options: Simple(parse, facts, options)
