"""Very long plain CSV straight to our Parquet, a few megabytes at a time."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dispatch.errors import InputError
from traces import quick
from traces.assemble import Facts
from traces.datasets import DATASETS
from traces.detect import Detected, detect
from traces.export import parts_of
from traces.formats.base import Options
from traces.load import resolve
from traces.order import EPOCH_NS, LATEST_NS, RELATIVE_NS, Clock, ties
from traces.parquet import TraceWriter
from traces.rows import MISSING, Raw
from traces.source import Source
from traces.trace import Trace

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Streamed:
    """What was written: rows, and the time of the last one."""

    rows: int
    span_s: float
    format: str
    why: str


def to_parquet(
    path_or_name: str | Path, target: Path, options: Options, progress: Progress | None = None
) -> Streamed | None:
    """Convert a clean CSV in bounded memory; None where the file needs to be read as a whole.

    A file in arrival order, without holes, failures and second time formats can be streamed; what
    is written then is what :func:`traces.load.read` would have read with its times as recorded.
    """
    source = Source(resolve(path_or_name))
    found = detect(source, None, options)
    known = found.format
    if known.quick is None or known.facts is None or found.shape != "csv":
        return None
    part = parts_of(target)[1]
    try:
        done = _run(path_or_name, source, found, known.facts, part, options, progress)
        part.replace(target)
    except quick.NotPlain:
        return None
    except OSError as error:
        raise InputError.at(str(target), f"cannot be written: {error}") from None
    finally:
        part.unlink(missing_ok=True)
    return done


def _run(
    given: str | Path,
    source: Source,
    found: Detected,
    facts: Facts,
    part: Path,
    options: Options,
    progress: Progress | None,
) -> Streamed:
    assert found.format.quick is not None
    writer = TraceWriter(part)
    last: Trace | None = None
    origin = latest = rows = 0
    clock = Clock()
    for raw in quick.chunks(source, found.format.quick, options.unit):
        if not rows and len(raw):
            origin = latest = int(raw.arrival_ns[0])
        latest = _in_order(raw, origin, latest)
        rows += len(raw)
        clock.add(raw.arrival_ns)
        last = _piece(raw, origin, facts)
        writer.write(last)
        if progress is not None:
            progress(rows)
    if last is None or not rows:
        raise quick.NotPlain("no rows")
    about: dict[str, Any] = {
        "epoch_ns": origin if origin >= EPOCH_NS else None,
        "detected": f"{found.format.name}: {found.why}",
    }
    name = str(given) if str(given) in DATASETS else source.path.name
    last = replace(last, name=name, sha256=source.sha256(), source=about)
    writer.close(_with_ties(last, clock, facts.tick_s))
    return Streamed(rows, (latest - origin) / 1e9, found.format.name, found.why)


def _with_ties(last: Trace, clock: Clock, tick_s: float) -> Trace:
    """Return *last* with what a coarse clock did to all times."""
    tick_ns = clock.tick_ns(tick_s)
    if tick_ns is None:
        return last
    bunched = ties(clock.ties, tick_ns)
    return replace(
        last,
        quirks=(*last.quirks, bunched.quirk),
        cannot_tell=(*last.cannot_tell, bunched.cannot_tell),
        source={
            **last.source, "recorded": {"tick_s": bunched.tick_s, "ties": bunched.quirk.rows}
        },
    )  # fmt: skip


def _in_order(raw: Raw, origin: int, latest: int) -> int:
    """Return the last time of a chunk; leave to the careful reader what is out of order."""
    if not len(raw):
        return latest
    times = raw.arrival_ns
    if times[0] < latest or (np.diff(times) < 0).any() or times[-1] > LATEST_NS:
        raise quick.NotPlain("order")
    if (origin < RELATIVE_NS) and times[-1] >= EPOCH_NS:
        raise quick.NotPlain("two origins")
    if (raw.output == MISSING).any() or (raw.prompt == MISSING).any():
        raise quick.NotPlain("holes")
    return int(times[-1])


def _piece(raw: Raw, origin: int, facts: Facts) -> Trace:
    names: list[str] = raw.words.get("model", [])
    model = raw.extra.get("model")
    session = raw.extra.get("session")
    return Trace(
        (raw.arrival_ns - origin) / 1e9,
        raw.prompt.astype(np.int32),
        raw.output.astype(np.int32),
        format=facts.name,
        model=None if model is None else model.astype(np.int32),
        names=tuple(names),
        session=session,
        duration_s=raw.extra.get("duration_s"),
        source_row=raw.number,
        quirks=facts.quirks,
        cannot_tell=facts.cannot_tell,
    )
