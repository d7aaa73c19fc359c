"""The Parquet sink of the journal: three tables, deterministic bytes, bounded memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dispatch.journal import SCHEMAS

LABELS: Final = {"arm": "str", "replicate": "int32"}
GROUP_ROWS: Final = 1 << 16


class ParquetSink:
    """Takes chunks of journal columns and writes ``requests``, ``decisions`` and ``devices``.

    Every table appears, with its schema, even where no row came. A row group is written when
    GROUP_ROWS have gathered, so the bytes hang on the rows alone and not on how they were chunked.
    Use as a context manager, or call :meth:`close`; after an error the files are not complete.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._waiting: dict[str, list[Any]] = {name: [] for name in SCHEMAS}
        self._rows = dict.fromkeys(SCHEMAS, 0)
        self._writers: dict[str, Any] = {}
        self._schemas = {name: arrow_schema(name) for name in SCHEMAS}

    def __call__(self, table: str, columns: Mapping[str, Any]) -> None:
        """Append a chunk; a column that the schema does not know, or lacks, is a KeyError."""
        import pyarrow as pa

        schema = self._schemas[table]
        if unknown := set(columns) - set(schema.names):
            raise KeyError(f"{table} has no column {', '.join(sorted(unknown))}")
        arrays = [_column(columns[field.name], field.type) for field in schema]
        chunk = pa.Table.from_arrays(arrays, schema=schema)
        self._waiting[table].append(chunk)
        self._rows[table] += chunk.num_rows
        if self._rows[table] >= GROUP_ROWS:
            self._write(table, whole_groups_only=True)

    def _write(self, table: str, whole_groups_only: bool) -> None:
        import pyarrow as pa

        if not self._waiting[table]:
            return
        rows = pa.concat_tables(self._waiting[table])
        ready = rows.num_rows
        if whole_groups_only:
            ready -= ready % GROUP_ROWS
        if ready:
            self._writer(table).write_table(rows.slice(0, ready), row_group_size=GROUP_ROWS)
        rest = rows.slice(ready)
        self._waiting[table] = [rest] if rest.num_rows else []
        self._rows[table] = rest.num_rows

    def _writer(self, table: str) -> Any:
        import pyarrow.parquet as pq

        if table not in self._writers:
            self._writers[table] = pq.ParquetWriter(
                self._folder / f"{table}.parquet", self._schemas[table], compression="zstd"
            )
        return self._writers[table]

    def close(self) -> None:
        """Write what is left and finish every file."""
        for table in SCHEMAS:
            self._write(table, whole_groups_only=False)
            self._writer(table).close()

    def __enter__(self) -> "ParquetSink":
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            self.close()
        else:
            for writer in self._writers.values():
                writer.close()


def arrow_schema(table: str) -> Any:
    """Return the Arrow schema of a journal *table*; text is dictionary-encoded."""
    import pyarrow as pa

    kinds = {
        "int64": pa.int64(), "int32": pa.int32(), "int16": pa.int16(), "int8": pa.int8(),
        "float64": pa.float64(), "str": pa.string(),
    }  # fmt: skip
    columns = {**LABELS, **SCHEMAS[table]}
    return pa.schema([pa.field(name, kinds[kind]) for name, kind in columns.items()])


def _column(values: Any, kind: Any) -> Any:
    import pyarrow as pa

    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.cast(kind)
    return pa.array(values, type=kind)
