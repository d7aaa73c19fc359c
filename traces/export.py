"""A trace in the formats that other tools read: Mooncake-style JSON lines and plain CSV."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from dispatch.errors import InputError
from traces import parquet
from traces.trace import CACHED, FAILED, Trace

ENDS: Final = (".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".csv", ".csv.gz", ".csv.zst")
_STATUS: Final = {0: "ok", FAILED: "failed", CACHED: "cached"}


def write(trace: Trace, target: Path) -> None:
    """Write *trace* to *target*, in the format of its ending; whole or not at all."""
    end = ending(target)
    reachable(target)
    if not len(trace):
        raise InputError.at(str(target), "would hold no request; it was not written")
    part = parts_of(target)[0]
    try:
        if end == ".parquet":
            parquet.write(trace, part)
        else:
            with _packed(part, end) as stream:
                lines = _jsonl(trace) if end.startswith(".jsonl") else _csv(trace)
                for line in lines:
                    stream.write(line.encode() + b"\n")
        part.replace(target)
    except OSError as error:
        raise InputError.at(str(target), f"cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def ending(target: Path) -> str:
    """Return which of ENDS *target* has; an InputError names them."""
    for end in sorted(ENDS, key=len, reverse=True):
        if target.name.endswith(end):
            return end
    raise InputError.at(str(target), "has no known ending", f"use one of {', '.join(ENDS)}")


def reachable(target: Path) -> None:
    """Refuse a file that lies in no folder, or where a folder lies."""
    if not target.parent.is_dir():
        raise InputError.at(
            str(target), f"cannot be written: {target.parent} is no folder", "make the folder first"
        )
    if target.is_dir():
        raise InputError.at(str(target), "is a folder", "name a file in it")


def parts_of(target: Path) -> tuple[Path, Path]:
    """Return where *target* is written before it is whole: at once, and as a stream."""
    return target.with_name(f".{target.name}.part"), target.with_name(f"{target.name}.part")


@contextmanager
def _packed(path: Path, end: str) -> Iterator[IO[bytes] | Any]:
    if end.endswith(".gz"):
        with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
            yield stream
    elif end.endswith(".zst"):
        import pyarrow as pa

        with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as stream:
            yield stream
    else:
        with path.open("wb") as plain:
            yield plain


def _jsonl(trace: Trace) -> Iterator[str]:
    """Yield Mooncake records: ms, lengths, blocks, and a session where there is one."""
    rows = zip(
        trace.arrival_s.tolist(),
        trace.prompt_tokens.tolist(),
        trace.output_tokens.tolist(),
        strict=True,
    )
    for row, (arrival, prompt, output) in enumerate(rows):
        ms = round(arrival * 1e3, 6)
        record: dict[str, Any] = {"timestamp": int(ms) if ms == int(ms) else ms}
        record |= {"input_length": prompt, "output_length": output}
        if trace.block_hashes is not None:
            record["hash_ids"] = list(trace.blocks(row))
        if trace.session is not None and trace.session[row] >= 0:
            record["session_id"] = str(trace.session[row])
        yield json.dumps(record)


def _csv(trace: Trace) -> Iterator[str]:
    """Yield a header and rows whose column names this reader knows again."""
    columns: dict[str, list[Any]] = {
        "arrival_s": [f"{x:.9f}" for x in trace.arrival_s.tolist()],
        "prompt_tokens": trace.prompt_tokens.tolist(),
        "output_tokens": trace.output_tokens.tolist(),
    }
    for name in ("model", "precision", "kernel_hint"):
        codes = getattr(trace, name)
        if codes is not None:
            columns[name] = [_quoted(trace.names[c]) if c >= 0 else "" for c in codes.tolist()]
    for name in ("session", "priority", "max_tokens"):
        values = getattr(trace, name)
        if values is not None:
            columns[name] = ["" if v < 0 else v for v in values.tolist()]
    if trace.status is not None:
        columns["status"] = [_STATUS[int(s)] for s in np.asarray(trace.status)]
    yield ",".join(columns)
    for row in zip(*columns.values(), strict=True):
        yield ",".join(map(str, row))


def _quoted(text: str) -> str:
    if any(mark in text for mark in ',"\r\n'):
        return '"' + text.replace('"', '""').replace("\n", " ").replace("\r", " ") + '"'
    return text
