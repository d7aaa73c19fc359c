"""``read``: from a path or the name of a public trace to a Trace, or one clear error."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from dispatch.errors import InputError, Problem, nearest
from traces import datasets, parquet, quick
from traces import order as order_of
from traces.assemble import Choices, Facts, assemble
from traces.detect import OURS, Detected, detect
from traces.formats.base import Options, Reader
from traces.formats.columns import Columns
from traces.records import Entry, csv_records, json_records, packed
from traces.rows import BadRow, BadRows, Builder, Raw
from traces.source import Source
from traces.trace import Quirk, Trace, counted

UNITS: Final = {"csv": "line", "lines": "line", "text": "line", "parquet": "row"}


def read(
    path_or_name: str | Path,
    *,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    unit: Literal["s", "ms", "us", "ns"] | None = None,
    rate_per_s: float | None = None,
    order: Literal["strict", "sort", "append"] | None = None,
    spread: bool = True,
    cached: bool = False,
    partial: bool = False,
    seed: int = 0,
    skip_bad: Path | bool = False,
    prompt_bytes: float | None = None,
    output_bytes: float | None = None,
) -> Trace:
    """Return the trace at a path, or the public trace of that name.

    The format is told by content; *format* overrides. *columns* maps arrival, prompt, output and
    more to the columns of a file in no known format, with numbers in *unit*. *rate_per_s* draws
    arrivals where the file holds none. *skip_bad* leaves bad rows out, and writes them to a side
    file when it is a path. *partial* accepts a file without lengths or times, for a description.
    All else as in :class:`traces.assemble.Choices`. Anything unusable is an InputError that names
    file, line, reason and way out; bad rows are refused with the first ten and their count.
    """
    path = resolve(path_or_name)
    source = Source(path)
    options = Options(unit, columns or {}, rate_per_s, seed, prompt_bytes, output_bytes)
    found = detect(source, format, options)
    name = str(path_or_name) if str(path_or_name) in datasets.DATASETS else path.name
    choices = Choices(order, spread, cached, partial, seed)
    about: dict[str, Any] = {"path": str(path), "detected": f"{found.format.name}: {found.why}"}
    if found.format is OURS:
        trace = _ours(path, choices)
        if trace.name not in (name, "anonymous"):
            about["made_from"] = trace.name
        return replace(trace, name=name, sha256=source.sha256(), source={**trace.source, **about})
    bad = BadRows(UNITS.get(found.shape, "item"), keep_lines=bool(skip_bad))
    raw, facts = rows_of(source, found, options, bad)
    if bad.count and not (skip_bad and len(raw)):
        raise refusal(path, bad, len(raw))
    trace = assemble(str(path), raw, facts, choices)
    quirks = trace.quirks
    if bad.count:
        set_aside(bad, skip_bad, about)
        quirks = (
            *quirks,
            Quirk("bad_rows", f"{counted(bad.count, 'bad row')} left out", bad.count),
        )
    return replace(
        trace, name=name, sha256=source.sha256(), quirks=quirks, source={**trace.source, **about}
    )


def _ours(path: Path, choices: Choices) -> Trace:
    """Return a trace from our own Parquet, with ties spread now if they were kept as recorded."""
    trace = parquet.read(path)
    recorded = trace.source.get("recorded")
    if isinstance(recorded, dict) and choices.spread and "spread" not in recorded:
        tick_s = float(recorded.get("tick_s", 0.0))
        parted = order_of.spread(
            np.rint(trace.arrival_s * 1e9).astype(np.int64), tick_s, choices.seed
        )
        if parted is not None:
            trace = replace(trace, arrival_s=parted.arrival_s)
    unknown = trace.source.get("unknown", ())
    if unknown and not choices.partial:
        raise InputError.at(str(path), f"does not know {', '.join(map(str, unknown))}")
    return trace


def resolve(path_or_name: str | Path) -> Path:
    """Return the file that a path or the name of a public trace stands for."""
    path = Path(path_or_name)
    name = str(path_or_name)
    if path.exists() or (name not in datasets.DATASETS and ("." in name or "/" in name)):
        return path
    if name in datasets.DATASETS:
        return datasets.find(name)
    raise InputError.at(
        name, "is neither a file nor the name of a public trace", nearest(name, datasets.DATASETS)
    )


def rows_of(source: Source, found: Detected, options: Options, bad: BadRows) -> tuple[Raw, Facts]:
    """Return every good row of *source* as columns; bad ones gather in *bad*."""
    if found.unit is not None and options.unit is None:
        options = replace(options, unit=found.unit)
    known = found.format
    if known.quick is not None and known.facts is not None and found.shape == "csv":
        try:
            parts = list(quick.chunks(source, known.quick, options.unit))
            if parts:
                return quick.join(parts), known.facts
        except quick.NotPlain:
            pass  # the careful reader below says what is out of the ordinary
    return _careful(source, found, options, bad)


def _careful(source: Source, found: Detected, options: Options, bad: BadRows) -> tuple[Raw, Facts]:
    if found.columns is not None:
        reader: Reader = Columns(options, found.columns)
    else:
        reader = found.format.reader(options)
    builder = Builder()
    for entry in entries(source, found):
        if entry.record is None:
            bad.add(entry.number, entry.problem, entry.text)
            continue
        reader.at = entry.number
        try:
            rows = list(reader.rows(entry.record))
        except BadRow as problem:
            bad.add(entry.number, str(problem), entry.text)
            continue
        except KeyError as key:
            bad.add(entry.number, f"{key.args[0]} is missing", entry.text)
            continue
        except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
            # A field of a kind that the format never has: a list for a number, and the like.
            bad.add(entry.number, f"has a field of an unexpected kind ({error})", entry.text)
            continue
        for row in rows:
            row.number = row.number or entry.number
            builder.add(row)
    for row in reader.finish():
        builder.add(row)
    raw = builder.take()
    raw.unit = bad.unit
    return raw, reader.facts()


def entries(source: Source, found: Detected) -> Iterator[Entry]:
    """Return the records of *source* in the shape that was found, those that hold many parted."""
    split = found.format.split
    for entry in _whole(source, found):
        if split is None or entry.record is None:
            yield entry
            continue
        try:
            parts = list(split(entry.record))
        except BadRow as problem:
            yield Entry(entry.number, None, entry.text, str(problem))
            continue
        for part in parts:
            text = entry.text if len(parts) == 1 else packed(part)
            yield Entry(entry.number, dict(part), text)


def _whole(source: Source, found: Detected) -> Iterator[Entry]:
    if found.shape == "csv":
        return csv_records(source, found.format.columns)
    if found.shape == "text":
        return text_records(source)
    if found.shape == "parquet":
        rows = parquet.records(source.path)
        return (Entry(number, row) for number, row in enumerate(rows, 1))
    return json_records(source, found.shape)


def text_records(source: Source) -> Iterator[Entry]:
    """Yield each line of a text log as a record with the one key ``line``."""
    for line, text in source.lines():
        yield Entry(line, {"line": text.decode("utf-8", "replace")}, text)


def refusal(path: Path, bad: BadRows, good: int) -> InputError:
    """Return the error that names the first bad rows and says how many there are."""
    problems = [Problem(f"{path}: {bad.unit} {number}", reason) for number, reason in bad.first]
    share = f"{bad.count:,} of {counted(bad.count + good, 'row')} bad"
    shown = len(bad.first)
    head = f"{share}; the first {shown} are above" if bad.count > shown else share
    way_out = "check the format"
    if good:
        way_out = "repair them, or leave them out: `zerolayer trace convert` with --skip-bad"
    return InputError([*problems, Problem(str(path), head, way_out)])


def set_aside(bad: BadRows, side: Path | bool, about: dict[str, Any]) -> None:
    """Say how many rows are left out, and write them to the side file where one is named."""
    about["skipped_rows"] = bad.count
    if not isinstance(side, Path):
        return
    try:
        with side.open("wb") as copy:
            for number, reason, line in bad.lines:
                note = reason.encode("utf-8", "backslashreplace")
                copy.write(b"%s %d\t%s\t%s\n" % (bad.unit.encode(), number, note, line))
    except OSError as error:
        raise InputError.at(str(side), f"cannot be written: {error.strerror}") from None
    about["skipped_file"] = str(side)
