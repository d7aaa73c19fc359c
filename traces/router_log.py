"""A router's own log of what it chose: which backend for which request.

CSV with a header, or JSON lines, plain or compressed; three columns:

- ``backend``: the device, by its name in the fleet (``a100-40g-2``) or its number (from 0);
- ``request``: the line of the trace file that the request stands on (``source_row`` of a journal);
- ``time``: seconds or ISO 8601. Where there is no ``request``, the log's order in time is the
  trace's, and it must hold a decision for every request. Where there are both, the first decision
  of a request in time counts (in file order without times); later ones are retries.
"""

import base64
import binascii
import hashlib
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dispatch.errors import InputError, Problem, nearest
from traces.records import Entry, csv_records, json_records
from traces.rows import SHOWN, BadRow
from traces.source import Source
from traces.trace import Trace, counted
from traces.values import clip, is_absent, time_ns

COLUMNS: Final = ("request", "time", "backend")
NONE: Final = -1
_MOST_ROW: Final = 100_000_000

Rows = NDArray[np.int64]
Devices = NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class RouterLog:
    """The decisions of one log in file order; *request* and *time_ns* are None where not given."""

    path: str
    sha256: str
    device: Devices
    request: Rows | None
    time_ns: Rows | None

    def __len__(self) -> int:
        return len(self.device)


def read(path: Path, names: Sequence[str]) -> RouterLog:
    """Read a router's log; *names* are the fleet's devices in the order of their numbers.

    Raises InputError that names file and line of every bad row (the first ten), or what lacks.
    """
    source = Source(path)
    first = source.head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if not first:
        raise InputError.at(str(path), "is empty", f"expected the columns {', '.join(COLUMNS)}")
    entries = json_records(source, "lines") if first == b"{" else csv_records(source, COLUMNS)
    numbers = {name: number for number, name in enumerate(names)}
    rows: list[tuple[int, int, int]] = []
    problems: list[Problem] = []
    bad = 0
    for entry in entries:
        try:
            rows.append(_row(entry, numbers))
        except BadRow as error:
            bad += 1
            if len(problems) < SHOWN:
                problems.append(Problem(f"{path}: line {entry.number}", str(error)))
    if problems:
        if bad > len(problems):
            problems.append(Problem(str(path), f"{counted(bad - len(problems), 'more bad row')}"))
        raise InputError(problems)
    return _columns(path, rows)


def _row(entry: Entry, numbers: Mapping[str, int]) -> tuple[int, int, int]:
    """Return (device, request, time in ns); -1 where one is not given."""
    if entry.record is None:
        raise BadRow(entry.problem)
    record = {str(key).strip().lower(): value for key, value in entry.record.items()}
    device = _device(record.get("backend"), numbers)
    request = record.get("request")
    time = record.get("time")
    if is_absent(request) and is_absent(time):
        raise BadRow("has neither request nor time; one of them must say which request it was")
    row = NONE if is_absent(request) else _line(request)
    return device, row, NONE if is_absent(time) else time_ns(time, "s")


def _device(value: Any, numbers: Mapping[str, int]) -> int:
    if is_absent(value):
        raise BadRow("backend is missing; expected a device of the fleet")
    if isinstance(value, str) and value.strip() in numbers:
        return numbers[value.strip()]
    number = _whole(value)
    if number is None:
        hint = nearest(str(value), numbers)
        if not hint.startswith("did you"):
            more = ", ..." if len(numbers) > 12 else ""
            hint = f"devices are {', '.join(list(numbers)[:12])}{more}"
        raise BadRow(f"backend {clip(value)} is no device of the fleet; {hint}")
    if not 0 <= number < len(numbers):
        raise BadRow(f"backend {number} is no device: numbers run from 0 to {len(numbers) - 1}")
    return number


def _line(value: Any) -> int:
    number = _whole(value)
    if number is None or not 1 <= number <= _MOST_ROW:
        raise BadRow(
            f"request {clip(value)} is no line of a trace file; expected a whole number from 1"
        )
    return number


def _whole(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    text = str(value).strip()
    if isinstance(value, str) and text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    return None


def _columns(path: Path, rows: list[tuple[int, int, int]]) -> RouterLog:
    if not rows:
        raise InputError.at(str(path), "holds no decision", "expected a header and rows")
    device, request, time = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    for name, column in (("request", request), ("time", time)):
        given = column != NONE
        if given.any() and not given.all():
            at = int(np.flatnonzero(~given)[0]) + 1
            found = (
                f"{name} is missing in {counted(int((~given).sum()), 'row')}, first decision {at}"
            )
            raise InputError.at(str(path), found, f"give {name} in every row or in none")
    with path.open("rb") as handle:
        sha256 = hashlib.file_digest(handle, "sha256").hexdigest()
    return RouterLog(
        str(path), sha256, device.astype(np.int16),
        request if (request != NONE).any() else None, time if (time != NONE).any() else None,
    )  # fmt: skip


def source_rows(trace: Trace) -> Rows:
    """Return the line of the trace file of every request, or its number from 1."""
    if trace.source_row is not None:
        return trace.source_row
    return np.arange(1, len(trace) + 1, dtype=np.int64)


def align(log: RouterLog, trace: Trace) -> Devices:
    """Return the device chosen for line k of the trace at index k, -1 where none is on record.

    Raises InputError where the log and the trace cannot be brought together.
    """
    lines = source_rows(trace)
    if len(np.unique(lines)) < len(lines):
        raise InputError.at(
            log.path,
            "speaks of single requests, and the trace repeats them",
            "set trace.scale to 1",
        )
    chosen = np.full(int(lines.max()) + 1, NONE, np.int16)
    order = _in_time(log)
    if log.request is None:
        if len(log) != len(lines):
            raise InputError.at(
                log.path,
                f"holds {counted(len(log), 'decision')} and the trace {len(lines):,} requests",
                "add a column `request` with the line of the trace file",
            )
        chosen[lines] = log.device[order]
        return chosen
    request, device = log.request[order], log.device[order]
    known = np.isin(request, lines)
    if not known.any():
        raise InputError.at(
            log.path,
            f"no request of it is in the trace (its lines run from {lines.min()} to {lines.max()})",
            "give the line of the trace file as `request`",
        )
    chosen[request[known][::-1]] = device[known][::-1]  # the first of each is written last
    return chosen


def _in_time(log: RouterLog) -> Rows:
    if log.time_ns is None:
        return np.arange(len(log))
    return np.argsort(log.time_ns, kind="stable")


def pack(chosen: Devices) -> str:
    """Return choices by line as text that a manifest can carry: about a byte a request."""
    return base64.b64encode(zlib.compress(chosen.astype("<i2").tobytes(), 9)).decode()


def unpack(text: str) -> Devices:
    """Return what :func:`pack` packed; InputError where *text* is something else."""
    try:
        raw = zlib.decompress(base64.b64decode(text, validate=True))
        return np.frombuffer(raw, dtype="<i2").astype(np.int16)
    except (ValueError, binascii.Error, zlib.error, TypeError) as error:
        raise InputError.at(
            "policy recorded.placements", f"cannot be read ({error})", "give it by --router-log"
        ) from None


def coverage(chosen: Devices, lines: Rows) -> float:
    """Return the share of *lines* that the log has a decision for."""
    return float((chosen[lines] != NONE).mean()) if len(lines) else 0.0


__all__ = ["COLUMNS", "RouterLog", "align", "coverage", "pack", "read", "source_rows", "unpack"]
