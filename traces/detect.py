"""Which format a file is in, told by its content, with the reason."""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dispatch.errors import InputError, UnknownNameError
from traces import values
from traces.formats import ALL
from traces.formats.base import Format, Options
from traces.source import Source

_LOOKED_AT: Final = 40  # records that decide
_DELIMITERS: Final = ",;\t|"


@dataclass(frozen=True, slots=True)
class Detected:
    """A format and the sentence that says why."""

    format: Format
    why: str
    shape: str  # "csv", "lines", "array", "document", "text"


def detect(source: Source, wanted: str | None = None, options: Options | None = None) -> Detected:
    """Return the format of *source*; *wanted* overrides which, never the shape of the bytes."""
    shape = shape_of(source)
    if wanted is not None:
        if wanted not in ALL:
            raise UnknownNameError(str(source.path), "trace format", wanted, ALL)
        chosen = ALL[wanted]
        return Detected(chosen, "given by --format", "text" if chosen.kind == "text" else shape)
    if shape == "csv":
        return _by_header(source)
    return _by_records(source, shape)


def shape_of(source: Source) -> str:
    """Return how records lie in the file: by lines, as an array, one document, or CSV."""
    head = source.head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head[:1] == b"[" and _is_json_start(head[1:].lstrip()):
        return "array"
    if head[:1] != b"{":
        return "csv"
    line = head.split(b"\n", 1)[0].strip()
    try:
        json.loads(line)
    except ValueError:
        return "document" if _pretty(head) else "lines"
    return "lines"


def _is_json_start(head: bytes) -> bool:
    return head[:1] in (b"{", b"]", b"")


def _pretty(head: bytes) -> bool:
    """Return whether the second line is indented, as in a document written for people."""
    lines = head.split(b"\n", 2)
    return lines[0].strip() == b"{" or (len(lines) > 1 and lines[1][:1] in (b" ", b"\t"))


def header_of(source: Source) -> tuple[list[str], str]:
    """Return the column names of a CSV and its delimiter."""
    first = source.head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").split(b"\n", 1)[0]
    text = first.decode("utf-8", "replace").strip("\r")
    delimiter = max(_DELIMITERS, key=text.count)
    try:
        names = next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        names = []
    return [name.strip() for name in names], delimiter


def _by_header(source: Source) -> Detected:
    names, _ = header_of(source)
    have = {_plain(name) for name in names}
    matches = [
        known
        for known in ALL.values()
        if known.kind == "csv" and {_plain(name) for name in known.columns} <= have
    ]
    if matches:
        best = max(matches, key=lambda known: len(known.columns))
        why = f"its header has the columns {', '.join(best.columns)}"
        return Detected(best, why, "csv")
    text = _by_text(source)
    if text is not None:
        return text
    raise _foreign(source, f"its first line is {values.clip(', '.join(names))}")


def _plain(name: str) -> str:
    return name.strip().lower()


def _by_text(source: Source) -> Detected | None:
    return None


def _by_records(source: Source, shape: str) -> Detected:
    votes: dict[str, int] = {}
    seen, keys = 0, ""
    for record in sample(source, shape):
        seen += 1
        keys = keys or ", ".join(list(record)[:8])
        for known in ALL.values():
            if known.kind == "json" and known.claims(record):
                votes[known.name] = votes.get(known.name, 0) + 1
                break
    if not votes:
        found = f"its records have the keys {values.clip(keys)}" if seen else "no line is JSON"
        raise _foreign(source, found)
    best = max(votes, key=lambda name: votes[name])
    why = f"{votes[best]} of the first {seen} records have its keys ({keys})"
    return Detected(ALL[best], why, shape)


def sample(source: Source, shape: str) -> Iterator[dict[str, Any]]:
    """Yield the first records that are JSON objects."""
    from traces.records import json_records

    found = 0
    for entry in json_records(source, shape):
        if isinstance(entry.record, dict):
            yield entry.record
            found += 1
        if found == _LOOKED_AT or entry.number > _LOOKED_AT * 5:
            return


def _foreign(source: Source, found: str) -> InputError:
    return InputError.at(
        str(source.path),
        f"is in no known trace format: {found}",
        "name the columns, --map arrival=ts,prompt=in_tok,output=out_tok --unit ms, "
        "or the format, --format NAME",
    )
