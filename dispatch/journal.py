"""The columnar record of a run: every decision, every outcome, and the device series.

Three tables. A run appends rows; full chunks of columns go to a sink that is handed in, so that
this module needs neither pandas nor Parquet. ``arm`` and ``replicate`` are columns of every table.
Times are seconds of the run's own clock; NaN says "did not happen"; device -1 says "none".
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BEST: Final = 5  # a decision row keeps the scores of this many best devices

REQUESTS: Final[Mapping[str, str]] = {
    "request": "int64",  # id, equal across arms of a replicate
    "source_row": "int64",  # line of the trace file (a header is line 1), or its row, from 1
    "arrival_s": "float64",  # planned arrival (a)
    "lag_s": "float64",  # actual send - planned arrival; 0 in simulation
    "prompt_tokens": "int32",
    "output_tokens": "int32",  # tokens produced by the attempt that counts
    "max_tokens": "int32",
    "model": "str",
    "session": "int64",
    "kernel_hint": "str",
    "outcome": "int8",  # Outcome
    "root_cause": "int8",  # RootCause
    "attempts": "int16",
    "oom_events": "int16",
    "preemptions": "int16",
    "device": "int32",  # of the last attempt
    "fitting_device": "int32",  # a device that would have held it when it failed, else -1
    "decision_start_s": "float64",  # d, of the first attempt
    "decision_end_s": "float64",  # e, of the last attempt
    "started_s": "float64",  # s: first kernel of the last attempt
    "first_token_s": "float64",  # f
    "end_s": "float64",  # l: last token, or the moment of failure
    "door_wait_s": "float64",  # waiting for a door worker
    "door_service_s": "float64",  # handled by the door, decision included
    "wasted_s": "float64",  # spent in attempts that were thrown away
    "cached_tokens": "int32",  # prompt tokens found in the replica's prefix cache
}

DECISIONS: Final[Mapping[str, str]] = {
    "request": "int64",
    "attempt": "int16",
    "time_s": "float64",
    "duration_s": "float64",
    "device": "int32",  # -1: none
    "reason": "int8",  # Reason
    "need_bytes": "float64",
    "seen_block_bytes": "float64",  # largest contiguous room of the chosen device, reservations off
    "seen_free_bytes": "float64",
    "seen_ring_s": "float64",
    "seen_pcie_ratio": "float64",
    "seen_age_s": "float64",  # age of the oldest signal used
    "candidates": "int32",
    **{f"best{i}_device": "int32" for i in range(BEST)},
    **{f"best{i}_score": "float64" for i in range(BEST)},
}

DEVICES: Final[Mapping[str, str]] = {
    "device": "int32",
    "time_s": "float64",  # start of the window
    "window_s": "float64",
    "busy_ratio": "float64",
    "running": "float64",  # time-mean over the window
    "waiting": "float64",
    "kv_used_bytes": "float64",
    "free_bytes": "float64",
    "largest_block_bytes": "float64",
    "fragmentation": "float64",
}

SCHEMAS: Final[Mapping[str, Mapping[str, str]]] = {
    "requests": REQUESTS,
    "decisions": DECISIONS,
    "devices": DEVICES,
}

Sink = Callable[[str, Mapping[str, Any]], None]
"""Takes a table name and a chunk of equal-length columns (lists or arrays), once per chunk."""

_PACK: Final = {"int64": "q", "int32": "i", "int16": "h", "int8": "b", "float64": "d", "str": "i"}


class Table:
    """Rows of one table, packed one after another into a buffer that is never reallocated."""

    def __init__(self, schema: Mapping[str, str], rows: int) -> None:
        self.schema = schema
        row = struct.Struct("<" + "".join(_PACK[t] for t in schema.values()))
        self.pack = row.pack_into
        self.width = row.size
        self.size = row.size * rows
        self.buffer = bytearray(self.size)
        self.at = 0
        self.texts = [name for name, kind in schema.items() if kind == "str"]
        self.words: list[str] = []
        self.codes: dict[str, int] = {}
        kinds = [
            (n, "<i4" if t == "str" else np.dtype(t).newbyteorder("<")) for n, t in schema.items()
        ]
        self.row = np.dtype(kinds)

    def code(self, word: str) -> int:
        """Return the number that stands for *word* in this table."""
        found = self.codes.get(word)
        if found is None:
            found = self.codes[word] = len(self.words)
            self.words.append(word)
        return found

    def take(self) -> tuple[int, dict[str, Any]]:
        """Return the rows so far as columns, and start again."""
        rows = self.at // self.width
        self.at = 0
        records = np.frombuffer(self.buffer, dtype=self.row, count=rows)
        words = np.array(self.words, dtype=object)
        columns: dict[str, Any] = {}
        for name, kind in self.schema.items():
            column = np.array(records[name])
            columns[name] = words[column] if kind == "str" else column
        return rows, columns


class Journal:
    """Takes rows, and hands full chunks of columns to *sink*; keeps them itself without one.

    A row is packed in place, so that an append allocates nothing. Rows are positional, in the order
    of the schema. Chunks carry ``arm`` and ``replicate`` as their first columns.
    """

    def __init__(
        self, sink: Sink | None = None, arm: str = "", replicate: int = 0, chunk_rows: int = 8192
    ) -> None:
        self.arm, self.replicate = arm, replicate
        self._sink = sink or self._keep
        self._kept: dict[str, list[Mapping[str, Any]]] = {name: [] for name in SCHEMAS}
        self._tables = {name: Table(schema, chunk_rows) for name, schema in SCHEMAS.items()}
        self._requests, self.decisions, self._devices = self._tables.values()

    def decision(self, *row: float) -> None:
        """Append a decision; values in the order of DECISIONS."""
        self.decisions.pack(self.decisions.buffer, self.decisions.at, *row)
        self.decided()

    def decided(self) -> None:
        """Take the row that was packed at the end of :attr:`decisions`."""
        table = self.decisions
        table.at += table.width
        if table.at == table.size:
            self._flush("decisions")

    def request(
        self, request: int, source_row: int, arrival_s: float, lag_s: float, prompt_tokens: int,
        output_tokens: int, max_tokens: int, model: str, session: int, kernel_hint: str,
        outcome: int, root_cause: int, attempts: int, oom_events: int, preemptions: int,
        device: int, fitting_device: int, decision_start_s: float, decision_end_s: float,
        started_s: float, first_token_s: float, end_s: float, door_wait_s: float,
        door_service_s: float, wasted_s: float, cached_tokens: int,
    ) -> None:  # fmt: skip
        """Append the end of a request; values in the order of REQUESTS."""
        table = self._requests
        table.pack(
            table.buffer, table.at, request, source_row, arrival_s, lag_s, prompt_tokens,
            output_tokens, max_tokens, table.code(model), session, table.code(kernel_hint),
            outcome, root_cause, attempts, oom_events, preemptions, device, fitting_device,
            decision_start_s, decision_end_s, started_s, first_token_s, end_s, door_wait_s,
            door_service_s, wasted_s, cached_tokens,
        )  # fmt: skip
        table.at += table.width
        if table.at == table.size:
            self._flush("requests")

    def device(
        self, device: int, time_s: float, window_s: float, busy_ratio: float, running: float,
        waiting: float, kv_used_bytes: float, free_bytes: float, largest_block_bytes: float,
        fragmentation: float,
    ) -> None:  # fmt: skip
        """Append one window of a device; values in the order of DEVICES."""
        table = self._devices
        table.pack(
            table.buffer, table.at, device, time_s, window_s, busy_ratio, running, waiting,
            kv_used_bytes, free_bytes, largest_block_bytes, fragmentation,
        )  # fmt: skip
        table.at += table.width
        if table.at == table.size:
            self._flush("devices")

    def columns(self, table: str, columns: Mapping[str, Sequence[Any] | NDArray[Any]]) -> None:
        """Hand a whole chunk of *table* on at once, after the rows so far."""
        self._flush(table)
        rows = len(next(iter(columns.values())))
        self._emit(table, rows, {name: columns[name] for name in SCHEMAS[table]})

    def close(self) -> None:
        """Hand on what is left of every table."""
        for name in SCHEMAS:
            self._flush(name)

    def to_pandas(self, table: str) -> Any:
        """Return *table* as a pandas frame; only where the journal keeps its rows itself."""
        import pandas as pd

        self._flush(table)
        if not self._kept[table]:
            return pd.DataFrame({c: [] for c in ("arm", "replicate", *SCHEMAS[table])})
        frames = [pd.DataFrame(dict(chunk)) for chunk in self._kept[table]]
        return pd.concat(frames, ignore_index=True)

    def _flush(self, name: str) -> None:
        if self._tables[name].at:
            self._emit(name, *self._tables[name].take())

    def _emit(self, name: str, rows: int, columns: Mapping[str, Any]) -> None:
        labels = {
            "arm": np.full(rows, self.arm, dtype=object),
            "replicate": np.full(rows, self.replicate, dtype=np.int32),
        }
        self._sink(name, {**labels, **columns})

    def _keep(self, name: str, columns: Mapping[str, Any]) -> None:
        self._kept[name].append(columns)
