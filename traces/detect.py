"""Which format a file is in, told by its content, with the reason."""

import csv
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dispatch.errors import InputError, Problem, UnknownNameError, nearest
from traces import parquet, values
from traces.formats import ALL
from traces.formats.base import Format, Options
from traces.formats.columns import COLUMNS, guess
from traces.source import Source

if TYPE_CHECKING:
    from traces.records import Entry

_LOOKED_AT: Final = 40  # records that decide
_DELIMITERS: Final = ",;\t|"


@dataclass(frozen=True, slots=True)
class Detected:
    """A format and the sentence that says why.

    ``shape``: how records lie in the file: "csv", "lines", "array", "document", "text", "parquet".
    ``columns`` is a column map made from usual names; ``unit`` a unit told by the times themselves.
    """

    format: Format
    why: str
    shape: str
    columns: Mapping[str, str] | None = None
    unit: str | None = None


def detect(source: Source, wanted: str | None = None, options: Options | None = None) -> Detected:
    """Return the format of *source*; *wanted* overrides which, never the shape of the bytes."""
    options = options or Options()
    if source.is_parquet:
        shape = "parquet"
        if wanted in (None, OURS.name) and not options.columns and parquet.is_ours(source.path):
            return Detected(OURS, "its Parquet metadata says zerolayer", shape)
    else:
        shape = shape_of(source)
        _refuse_text(source, shape)
    if options.columns:
        if wanted not in (None, COLUMNS.name):
            raise InputError.at("--map", f"goes with no format, not with {wanted}", "drop one")
        _have_columns(source, shape, list(options.columns.values()), "--map")
        return Detected(COLUMNS, "given by --map", shape, dict(options.columns))
    if wanted is not None:
        return _wanted(source, wanted, shape)
    if shape in ("csv", "parquet"):
        return _by_header(source, shape)
    return _by_records(source, shape)


OURS: Final = Format(
    "zerolayer", "our own Parquet (trace convert -o x.parquet)", "csv", COLUMNS.reader
)
NAMES: Final = {**ALL, OURS.name: OURS}


def _wanted(source: Source, wanted: str, shape: str) -> Detected:
    if wanted not in NAMES:
        raise UnknownNameError(str(source.path), "trace format", wanted, NAMES)
    chosen = NAMES[wanted]
    if chosen is OURS or chosen is COLUMNS:
        way_out = "give --map arrival=...,prompt=...,output=..." if chosen is COLUMNS else ""
        raise InputError.at(str(source.path), f"cannot be read as {wanted}", way_out)
    if chosen.kind == "text":
        return Detected(chosen, "given by --format", "text")
    if shape in ("csv", "parquet"):
        if not chosen.columns:
            raise InputError.at(
                str(source.path), f"is a table, and {wanted} is a JSON format", "drop --format"
            )
        _have_columns(source, shape, chosen.columns, wanted)
    return Detected(chosen, "given by --format", shape)


def _names_of(source: Source, shape: str) -> list[str]:
    return parquet.names(source.path) if shape == "parquet" else header_of(source)[0]


def _have_columns(source: Source, shape: str, columns: Sequence[str], place: str) -> None:
    """Refuse a table that lacks *columns*, with the near miss of each."""
    if shape not in ("csv", "parquet"):
        return
    names = _names_of(source, shape)
    have = {_plain(name) for name in names}
    roots = {c: c if _plain(c) in have or shape == "csv" else c.split(".")[0] for c in columns}
    missing = [c for c, root in roots.items() if _plain(root) not in have]
    if missing:
        raise InputError(
            Problem(f"{source.path}: {place}", f"no column {c!r}", nearest(c, names))
            for c in missing
        )


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
    except (ValueError, RecursionError):
        return "document" if _pretty(head) else "lines"
    return "lines"


def _refuse_text(source: Source, shape: str) -> None:
    """Refuse text that has lines, but none that can be told apart, and models of traces."""
    place, head = str(source.path), source.head
    if shape in ("csv", "lines") and b"\n" not in head and b"\r" in head.strip(b"\r \t"):
        name = shlex.quote(place)
        raise InputError.at(
            place, "has lines that end in CR alone",
            f"convert it: tr '\\r' '\\n' < {name} > {shlex.quote('lf-' + source.path.name)}",
        )  # fmt: skip
    if shape == "csv" and b"\n[arrivals]" in b"\n" + head:
        raise InputError.at(
            place, "is a model of a trace, not a trace",
            f"in a scenario set trace.source=generated:{place}; or make a trace of it: "
            f"`zerolayer trace synth {place} -o made.parquet`",
        )  # fmt: skip


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


def _by_header(source: Source, shape: str) -> Detected:
    names = _names_of(source, shape)
    have = {_plain(name) for name in names}
    matches = [
        known
        for known in ALL.values()
        if known.columns and {_plain(name) for name in known.columns} <= have
    ]
    if matches:
        best = max(matches, key=lambda known: len(known.columns))
        why = f"its header has the columns {', '.join(best.columns)}"
        usual = guess(names)
        timeless = best.name.startswith("lengths")
        if not (timeless and usual is not None):
            return Detected(best, why, shape)
    text = _by_text(source) if shape == "csv" else None
    if text is not None:
        return text
    usual = guess(names)
    if usual is not None:
        return Detected(COLUMNS, usual.why, shape, usual.columns)
    what = "columns are" if shape == "parquet" else "first line is"
    raise _foreign(source, f"its {what} {values.clip(', '.join(names))}")


def _plain(name: str) -> str:
    return name.strip().lower()


def _by_text(source: Source) -> Detected | None:
    """Return the vLLM log where any of the first lines is one of its request lines."""
    for number, text in source.lines():
        if b"Received request" in text and b"params" in text:
            why = f"line {number} says 'Received request ... params'"
            return Detected(ALL["vllm-log"], why, "text")
        if number > 20_000:
            break
    return None


def _by_records(source: Source, shape: str) -> Detected:
    votes: dict[str, int] = {}
    entries = list(_sample(source, shape))
    records = [entry.record for entry in entries if entry.record is not None]
    for record in records:
        for known in ALL.values():
            if known.kind == "json" and known.claims(record):
                votes[known.name] = votes.get(known.name, 0) + 1
                break
    keys = ", ".join(list(records[0])[:8]) if records else ""
    if votes:
        best = max(votes, key=lambda name: votes[name])
        why = f"{votes[best]} of the first {len(records)} records have its keys ({keys})"
        unit, reason = _unit(best, records)
        return Detected(ALL[best], f"{why}{reason}", shape, unit=unit)
    usual = guess(records[0]) if records else None
    if usual is not None:
        return Detected(COLUMNS, usual.why, shape, usual.columns)
    if records:
        raise _foreign(source, f"its records have the keys {values.clip(keys)}")
    unit, found = (
        ("line", "no line is JSON") if shape == "lines" else ("item", "no item is an object")
    )
    first = [Problem(f"{source.path}: {unit} {e.number}", e.problem) for e in entries[:1]]
    raise InputError([*first, *_foreign(source, found).problems])


def _unit(name: str, records: list[dict[str, Any]]) -> tuple[str | None, str]:
    """Return the unit of ``timestamp`` where the values tell it, and the reason.

    The keys of Mooncake (ms), GuideLLM (s) and AIPerf (ms) are the same; dates tell their unit by
    their size, and whole numbers far apart are milliseconds.
    """
    if name not in ("mooncake", "guidellm", "aiperf"):
        return None, ""
    times = [r["timestamp"] for r in records if not values.is_absent(r.get("timestamp"))]
    epochs = {values.epoch_unit(time) for time in times}
    dates = sorted(unit for unit in epochs if unit is not None)
    if dates:  # a mixture with times since a start is refused where all of them are looked at
        return dates[0], f"; its times are dates in {dates[0]}"
    numbers = [float(t) for t in times if isinstance(t, int | float) and not isinstance(t, bool)]
    if len(numbers) < 2 or len(numbers) < len(times):
        return None, ""
    gap = (max(numbers) - min(numbers)) / (len(numbers) - 1)
    whole = all(number == int(number) for number in numbers if abs(number) < 1e300)
    if name == "guidellm" and whole and gap >= 50:
        return "ms", f"; its whole numbers lie {gap:.0f} apart on average, so they are ms"
    if name == "mooncake" and not whole and gap < 50:
        return "s", f"; its times are fractions {gap:.3g} apart on average, so they are seconds"
    return None, ""


def _sample(source: Source, shape: str) -> Iterator["Entry"]:
    """Yield the first entries, good and bad, until enough are JSON objects."""
    from traces.records import json_records

    found = 0
    for entry in json_records(source, shape):
        yield entry
        found += entry.record is not None
        if found == _LOOKED_AT or entry.number > _LOOKED_AT * 5:
            return


def _foreign(source: Source, found: str) -> InputError:
    return InputError.at(
        str(source.path),
        f"is in no known trace format: {found}",
        "name the columns, `zerolayer trace convert` with --map arrival=ts,prompt=in_tok,"
        "output=out_tok --unit ms, or the format, --format NAME",
    )
