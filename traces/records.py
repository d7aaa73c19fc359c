"""Records of a file one by one, with where they stand and the bytes they came from."""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dispatch.errors import InputError
from traces.detect import header_of
from traces.source import Source
from traces.trace import counted


@dataclass(slots=True)
class Entry:
    """One record: the parsed object, or None with the ``problem`` that kept it from parsing.

    ``number`` is the line of a text file on which it starts, else the row or item, from 1.
    """

    number: int
    record: dict[str, Any] | None
    text: bytes = b""
    problem: str = ""


def json_records(source: Source, shape: str) -> Iterator[Entry]:
    """Yield the objects of a JSON file: one a line, the items of an array, or one document."""
    if shape == "lines":
        yield from _json_lines(source)
        return
    with source.open() as stream:
        text = stream.read()
    try:
        document = json.loads(text)
    except RecursionError:
        raise InputError.at(
            str(source.path), "is JSON nested too deeply", "a record of a request is flat"
        ) from None
    except ValueError as error:
        raise InputError.at(
            str(source.path), f"is no whole JSON document: {error}", "is the file cut short?"
        ) from None
    items = document if isinstance(document, list) else [document]
    for number, item in enumerate(items, 1):
        if isinstance(item, dict):
            yield Entry(number, item, packed(item) if len(items) > 1 else b"")
        else:
            yield Entry(number, None, problem=f"is no object but {type(item).__name__}")


def packed(item: Any) -> bytes:
    """Return *item* as JSON for a side file, nothing of what is nested too deeply to be written."""
    try:
        return json.dumps(item).encode()
    except RecursionError:
        return b""


def _json_lines(source: Source) -> Iterator[Entry]:
    for line, text in source.lines():
        if text.isspace():
            continue
        entry = Entry(line, None, text)
        try:
            record = json.loads(text.decode())  # text: from bytes it would guess an encoding
        except RecursionError:
            entry.problem = "is JSON nested too deeply"
        except ValueError as error:
            reason = getattr(error, "msg", None) or getattr(error, "reason", type(error).__name__)
            entry.problem = f"is no JSON ({reason})"
        else:
            if isinstance(record, dict):
                entry.record = record
            else:
                entry.problem = "is JSON but no object"
        yield entry


def csv_records(source: Source, known: Iterable[str] = ()) -> Iterator[Entry]:
    """Yield the rows of a CSV as objects by column name; a quoted field may span lines.

    A column whose name differs from a *known* one by case alone goes by the known name.
    """
    names, delimiter = header_of(source)
    canonical = {name.lower(): name for name in known}
    names = [canonical.get(name.lower(), name) for name in names]
    if len(set(names)) < len(names):
        raise InputError.at(f"{source.path}: line 1", "names a column twice", "rename one")
    taken: list[bytes] = []
    begins = 0

    def decoded() -> Iterator[str]:
        nonlocal begins
        for line, text in source.lines():
            begins = begins if taken else line
            taken.append(text)
            yield text.decode("utf-8", "surrogateescape") + "\n"

    reader = csv.reader(decoded(), delimiter=delimiter)
    header = True
    while True:
        taken.clear()
        problem, cells = "", None
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problem = f"is no CSV ({error})"
        if header:
            header = False
            continue
        entry = Entry(begins, None, b"\n".join(taken), problem)
        if cells is not None and len(cells) != len(names):
            entry.problem = f"has {counted(len(cells), 'field')} where the header has {len(names)}"
        elif cells is not None:
            entry.record = dict(zip(names, cells, strict=True))
        yield entry
