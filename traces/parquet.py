"""Our own Parquet file of a trace, whole or streamed, and foreign Parquet tables as records."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from dispatch.errors import InputError
from traces.trace import Quirk, Trace

MARK: Final = b"zerolayer"
VERSION: Final = 1
GROUP_ROWS: Final = 1 << 17
_NUMBERS: Final = {
    "arrival_s": "float64", "prompt_tokens": "int32", "output_tokens": "int32",
    "session": "int64", "priority": "int32", "max_tokens": "int32", "status": "int8",
    "estimated": "int8", "duration_s": "float64", "ttft_s": "float64", "source_row": "int64",
}  # fmt: skip
_NAMES: Final = ("model", "precision", "kernel_hint")


@dataclass(slots=True)
class TraceWriter:
    """Writes pieces of one trace; the first piece settles which columns there are.

    Bytes hang on the rows alone. Text columns are written as their names, so that pieces need not
    share a table of names.
    """

    path: Path
    about: Trace | None = None
    _writer: Any = None
    _schema: Any = None
    _waiting: list[Any] = field(default_factory=list)
    _rows: int = 0

    def write(self, piece: Trace) -> None:
        """Append the rows of *piece*."""
        import pyarrow as pa

        if self._schema is None:
            self._schema = _schema(piece)
        table = pa.Table.from_arrays(_arrays(piece, self._schema), schema=self._schema)
        self._waiting.append(table)
        self._rows += table.num_rows
        if self._rows >= GROUP_ROWS:
            self._flush(whole_only=True)

    def _flush(self, whole_only: bool) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pa.concat_tables(self._waiting)
        ready = rows.num_rows - (rows.num_rows % GROUP_ROWS if whole_only else 0)
        if self._writer is None:
            self._writer = pq.ParquetWriter(
                self.path, self._schema, compression="zstd", write_statistics=True
            )
        if ready:
            self._writer.write_table(rows.slice(0, ready), row_group_size=GROUP_ROWS)
        rest = rows.slice(ready)
        # A copy lets go of the written part, which a slice would keep in memory.
        self._waiting = [pa.concat_tables([rest]).combine_chunks()] if rest.num_rows else []
        self._rows = rest.num_rows

    def close(self, last: Trace) -> None:
        """Finish the file; *last* says what the whole is: name, quirks, what it cannot tell."""
        if self._schema is None:
            self.write(last.take(np.empty(0, np.int64)))
        self._flush(whole_only=False) if self._waiting else None
        self._writer.add_key_value_metadata({MARK.decode(): json.dumps(_about(last))})
        self._writer.close()


def write(trace: Trace, path: Path) -> None:
    """Write a whole *trace* to *path*."""
    writer = TraceWriter(path)
    writer.write(trace)
    writer.close(trace)


def _about(trace: Trace) -> dict[str, Any]:
    source = {k: v for k, v in trace.source.items() if k not in ("path",)}
    return {
        "version": VERSION,
        "name": trace.name,
        "format": trace.format,
        "sha256": trace.sha256,
        "block_tokens": trace.block_tokens,
        "quirks": [asdict(quirk) for quirk in trace.quirks],
        "cannot_tell": list(trace.cannot_tell),
        "source": source,
    }


def _schema(piece: Trace) -> Any:
    import pyarrow as pa

    fields = [
        pa.field(name, pa.type_for_alias(kind))
        for name, kind in _NUMBERS.items()
        if getattr(piece, name) is not None
    ]
    fields += [
        pa.field(name, pa.dictionary(pa.int32(), pa.string()))
        for name in _NAMES
        if getattr(piece, name) is not None
    ]
    if piece.block_hashes is not None:
        fields.append(pa.field("blocks", pa.list_(pa.int64())))
    return pa.schema(fields)


def _arrays(piece: Trace, schema: Any) -> list[Any]:
    import pyarrow as pa

    arrays = []
    for one in schema:
        if one.name == "blocks":
            assert piece.block_offsets is not None, "a piece without blocks after one with"
            arrays.append(
                pa.ListArray.from_arrays(piece.block_offsets.astype(np.int32), piece.block_hashes)
            )
            continue
        column = getattr(piece, one.name)
        if one.name not in _NAMES:
            arrays.append(pa.array(_given(column, one.name, len(piece)), type=one.type))
            continue
        column = np.full(len(piece), -1, np.int32) if column is None else column
        codes = pa.array(column, pa.int32(), mask=column < 0)
        arrays.append(pa.DictionaryArray.from_arrays(codes, pa.array(piece.names, pa.string())))
    return arrays


def _given(column: Any, name: str, rows: int) -> Any:
    if column is not None:
        return column
    from traces.trace import _filled

    return _filled(None, name, rows)


def is_ours(path: Path) -> bool:
    """Return whether *path* is a Parquet file that this module wrote."""
    return MARK in _metadata(path)


def _metadata(path: Path) -> Mapping[bytes, bytes]:
    return _opened(path).metadata.metadata or {}


def _opened(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError, ValueError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError.at(
            str(path), f"is a damaged or cut Parquet file ({text})", "write it again"
        ) from None


def read(path: Path) -> Trace:
    """Return the trace that :func:`write` or a :class:`TraceWriter` wrote, checked as any other."""
    import pyarrow as pa

    file = _opened(path)
    try:
        about = json.loads(_metadata(path)[MARK])
        table = file.read()
        trace = _from(table, about)
    except (
        pa.ArrowException, OSError, ValueError, LookupError, TypeError, AttributeError,
        OverflowError, RecursionError,
    ) as error:  # fmt: skip
        raise InputError.at(str(path), f"is no sound zerolayer trace ({error})") from None
    _check(path, trace)
    return trace


def _from(table: Any, about: dict[str, Any]) -> Trace:
    if about["version"] != VERSION:
        raise ValueError(f"version {about['version']}, not {VERSION}")
    columns: dict[str, Any] = {}
    names: list[str] = []
    for name in table.schema.names:
        column = table.column(name)
        if name in _NUMBERS:
            columns[name] = column.to_numpy().astype(_NUMBERS[name], copy=False)
            if name in ("session", "duration_s", "ttft_s") and _empty(columns[name]):
                del columns[name]  # a stream settles its columns before it knows what they hold
        elif name in _NAMES:
            words = column.unify_dictionaries().combine_chunks()
            codes = words.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            listed = words.dictionary.to_pylist()
            names += [word for word in listed if word not in names]
            where = np.array([*(names.index(word) for word in listed), -1], np.int32)
            columns[name] = where[codes]
        elif name == "blocks":
            blocks = column.combine_chunks()
            columns["block_hashes"] = blocks.flatten().to_numpy(zero_copy_only=False)
            sizes = blocks.value_lengths().to_numpy(zero_copy_only=False)
            columns["block_offsets"] = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Trace(
        **columns,
        name=str(about["name"]),
        format=str(about["format"]),
        sha256=str(about["sha256"]),
        block_tokens=int(about["block_tokens"]),
        names=tuple(names),
        quirks=tuple(Quirk(q["code"], q["text"], q["rows"]) for q in about["quirks"]),
        cannot_tell=tuple(about["cannot_tell"]),
        source=dict(about["source"]),
    )


def _empty(column: Any) -> bool:
    return bool(np.all(np.isnan(column) if column.dtype.kind == "f" else column < 0))


def _check(path: Path, trace: Trace) -> None:
    """Hold a file that somebody may have edited to what a Trace promises."""
    place = str(path)
    if not len(trace):
        raise InputError.at(place, "holds no request", "a trace needs at least one request")
    arrival = trace.arrival_s
    if not np.isfinite(arrival).all() or arrival[0] < 0 or (np.diff(arrival) < 0).any():
        raise InputError.at(place, "has arrival times that fall, are negative or not finite")
    if trace.prompt_tokens.min() < 1 or trace.output_tokens.min() < 1:
        raise InputError.at(place, "has a request without tokens")


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a foreign Parquet table as objects; times become ISO text."""
    import pyarrow as pa

    file = _opened(path)
    try:
        for batch in file.iter_batches(batch_size=1 << 14):
            table = pa.Table.from_batches([batch])
            for place, one in enumerate(table.schema):
                if pa.types.is_timestamp(one.type):
                    text = table.column(place).cast(pa.timestamp("ns")).cast(pa.string())
                    table = table.set_column(place, one.name, text)
            yield from table.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputError.at(str(path), f"is a damaged Parquet file ({error})") from None


def names(path: Path) -> list[str]:
    """Return the column names of a Parquet table."""
    return list(_opened(path).schema_arrow.names)
