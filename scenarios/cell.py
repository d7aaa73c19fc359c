"""One arm on one replicate, in a worker: replay it and leave its rows behind for the parent."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import sim
from dispatch.journal import SCHEMAS, Journal
from scenarios import arms, history, share
from scenarios.schema import Scenario
from traces.trace import Trace

Columns = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """Arm and replicate of one run."""

    arm: int
    replicate: int


class Replayer:
    """Runs cells of one scenario; arms of the same replicate share its resampled trace."""

    def __init__(self, scenario: str, trace_folder: Path, parts: Path) -> None:
        self._scenario = Scenario.model_validate_json(scenario)
        self._base = share.load(trace_folder)
        self._parts = parts
        self._resampled: tuple[int, Trace] = (0, self._base)

    def __call__(self, cell: Cell, progress: Callable[[int], None]) -> dict[str, Any]:
        """Replay *cell*, write its rows to its part file, and return its facts."""
        scenario = self._scenario
        arm = scenario.arms[cell.arm]
        with PartSink(self._parts / part_name(cell)) as sink:
            journal = Journal(sink, arm.name, cell.replicate)
            facts = sim.replay(
                self._trace(cell.replicate),
                arms.setup(scenario, arm),
                arms.seed(scenario, cell.replicate),
                journal,
                progress=progress,
            )
            journal.close()
        return facts.as_dict()

    def _trace(self, replicate: int) -> Trace:
        if self._resampled[0] != replicate:
            trace = history.replicate(self._base, self._scenario, replicate)
            self._resampled = (replicate, trace)
        return self._resampled[1]


def part_name(cell: Cell) -> str:
    """Return the folder name of a cell's rows; names sort as cells do."""
    return f"{cell.arm:04d}-{cell.replicate:04d}"


class PartSink:
    """A journal sink that appends chunks to Arrow files, one per table: quick to write and map."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, Any] = {}

    def __enter__(self) -> "PartSink":
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._writers.values():
            writer.close()

    def __call__(self, table: str, columns: Columns) -> None:
        """Append one chunk of *table*."""
        batch = pa.RecordBatch.from_pydict(
            {name: _array(values) for name, values in columns.items()}
        )
        if table not in self._writers:
            path = self._folder / f"{table}.arrow"
            self._writers[table] = pa.ipc.new_file(str(path), batch.schema)
        self._writers[table].write_batch(batch)


def _array(values: Any) -> Any:
    return pa.array(values if not isinstance(values, np.ndarray) else np.ascontiguousarray(values))


def read_part(folder: Path, table: str) -> Iterator[Columns]:
    """Yield the chunks of one table of one cell as numpy columns."""
    path = folder / f"{table}.arrow"
    if not path.is_file():
        return
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            yield {
                name: column.to_numpy(zero_copy_only=False)
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            }


TABLES = tuple(SCHEMAS)
