"""A run folder as arrays: one :class:`Requests` per arm and replicate, rows in order of request id.

Only the columns that a report uses are read, text as dictionary codes: one million requests take
about 150 MB.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from dispatch.errors import InputError, short
from dispatch.outcomes import Outcome

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_TIMES: Final = (
    "arrival_s", "lag_s", "decision_start_s", "decision_end_s", "started_s", "first_token_s",
    "end_s", "door_wait_s", "door_service_s", "wasted_s",
)  # fmt: skip
_COUNTS: Final = (
    "request", "prompt_tokens", "output_tokens", "max_tokens", "session", "outcome", "root_cause",
    "attempts", "oom_events", "preemptions", "device", "fitting_device",
)  # fmt: skip
_TEXT: Final = ("model", "kernel_hint")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Name the table at *path* where what reads it finds it missing or damaged."""
    if not path.is_file():
        raise InputError.at(str(path), "is not there", "give a run folder")
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split()).rstrip(".")
        raise InputError.at(
            str(path), f"is damaged ({short(why, 120)})",
            "run it again: the command is in manifest.json; `zerolayer verify` says what else is",
        ) from error  # fmt: skip


def read_columns(path: Path, columns: Sequence[str]) -> dict[str, Any]:
    """Return *columns* of a Parquet file as numpy arrays; text as (codes, names) pairs.

    Raises InputError naming the file and the columns that it lacks.
    """
    with readable(path):
        text = [c for c in ("arm", *_TEXT) if c in pq.read_schema(path).names]
        with pq.ParquetFile(path, read_dictionary=text) as file:
            missing = sorted(set(columns) - set(file.schema_arrow.names))
            if missing:
                found = f"lacks the columns {', '.join(missing)}"
                raise InputError.at(str(path), found, "write it with this version of zerolayer")
            table = file.read(columns=list(columns)).combine_chunks()
    return {name: _array(table.column(name)) for name in columns}


def _array(column: pa.ChunkedArray) -> Any:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = column.dictionary_encode()
    if not pa.types.is_dictionary(column.type):
        return column.to_numpy()
    whole = column.unify_dictionaries().combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        if not whole.num_chunks:
            return np.empty(0, np.int32), ()
        whole = whole.chunk(0)
    names = tuple("" if v is None else str(v) for v in whole.dictionary.to_pylist())
    codes = whole.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return codes, names


@dataclass(slots=True)
class Requests:
    """The requests of one arm and replicate; every column is an array over the same rows."""

    arm: str
    replicate: int
    columns: Mapping[str, Any]
    names: Mapping[str, tuple[str, ...]]
    servable: Bools = field(default_factory=lambda: np.empty(0, np.bool_))
    """False where the request ended as rejected_context or cancelled in every arm."""
    cache: dict[str, Any] = field(default_factory=dict)
    early: "Requests | None" = None
    """Requests of the warm-up: of no latency or share, but of the rates where they end after it."""

    def __getitem__(self, column: str) -> Any:
        return self.columns[column]

    def __len__(self) -> int:
        return len(self.columns["request"])

    @property
    def finished(self) -> Bools:
        """True where the request was answered in full."""
        answered: Bools = self.columns["outcome"] == Outcome.finished
        return answered


@dataclass(slots=True)
class Run:
    """A run folder read for reporting: its manifest and the requests by (arm, replicate)."""

    folder: Path
    manifest: Mapping[str, Any]
    arms: tuple[str, ...]
    replicates: tuple[int, ...]
    cells: Mapping[tuple[str, int], Requests]
    notes: list[str] = field(default_factory=list)

    def of(self, arm: str) -> list[Requests]:
        """Return the replicates of one *arm*, in order."""
        return [self.cells[arm, r] for r in self.replicates]

    def pairs(self) -> Iterator[tuple[Requests, Requests]]:
        """Yield (baseline, candidate) of every replicate; rows match by request."""
        for r in self.replicates:
            yield self.cells[self.baseline, r], self.cells[self.candidate, r]

    @property
    def scenario(self) -> Mapping[str, Any]:
        """The resolved scenario."""
        found: Mapping[str, Any] = self.manifest.get("scenario") or {}
        return found

    @property
    def baseline(self) -> str:
        """The arm that the others are compared with."""
        return str(self.scenario.get("baseline") or self.arms[0])

    @property
    def candidate(self) -> str:
        """The arm that the verdict is about."""
        named = str(self.scenario.get("candidate") or "")
        others = [a for a in self.arms if a != self.baseline]
        return named or (others[0] if others else self.arms[0])

    @property
    def world(self) -> str:
        """``sim`` or ``live``."""
        return str(self.manifest.get("world") or "sim")

    @property
    def confidence(self) -> float:
        """Two-sided level of every interval."""
        return float(self.scenario.get("confidence") or 0.95)

    def title(self, arm: str) -> str:
        """Return what the scenario calls *arm* for people."""
        for config in self.scenario.get("arms") or ():
            if config["name"] == arm and config.get("title"):
                return str(config["title"])
        return arm

    @property
    def warmup_s(self) -> float:
        """What is left out at the start."""
        return float(self.scenario.get("warmup_s") or 0.0)

    def facts(self, arm: str) -> list[Mapping[str, Any]]:
        """Return the run facts of one *arm*, one mapping a replicate."""
        found: list[Mapping[str, Any]] = (self._arm(arm).get("facts")) or []
        return found

    def devices(self, arm: str) -> list[Mapping[str, Any]]:
        """Return the device table of one *arm*."""
        found: list[Mapping[str, Any]] = (self._arm(arm).get("devices")) or []
        return found

    def _arm(self, arm: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = (self.manifest.get("arms") or {}).get(arm) or {}
        return found


@dataclass(frozen=True)
class DeviceSeries:
    """Busy share of every GPU and window of one arm and replicate: arrays of equal length."""

    device: NDArray[np.int32]
    time_s: Floats
    window_s: Floats
    busy_ratio: Floats

    @cached_property
    def devices(self) -> NDArray[np.int32]:
        """The device ids that occur, ascending."""
        return np.unique(self.device)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a run folder; raises InputError where it is none."""
    path = folder / "manifest.json"
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise InputError.at(str(folder), "holds no manifest.json", "give a run folder") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError.at(str(path), f"cannot be read ({error})", "run again") from error
    if not isinstance(found, dict) or "scenario" not in found:
        raise InputError.at(str(path), "is no run's manifest", "give a run folder")
    return found


def read_run(folder: Path, manifest: Mapping[str, Any]) -> Run:
    """Read the requests of a run folder; arms in the order of the manifest.

    Raises InputError where a table is missing, empty, or its arms were not offered the same
    requests in the same replicate (then no pair exists to compare).
    """
    path = folder / "requests.parquet"
    raw = read_columns(path, ["arm", "replicate", *_COUNTS, *_TIMES, *_TEXT])
    arm_codes, arm_names = raw.pop("arm")
    replicate = raw.pop("replicate")
    names = {c: raw[c][1] for c in _TEXT}
    warmup_s = float((manifest.get("scenario") or {}).get("warmup_s") or 0.0)
    raw |= {c: raw[c][0] for c in _TEXT}
    if not len(arm_codes):
        raise InputError.at(str(path), "holds no request", "replay a trace that is not empty")
    order = np.lexsort((raw["request"], replicate, arm_codes))
    if (np.diff(order) != 1).any():
        raw = {c: v[order] for c, v in raw.items()}
        arm_codes, replicate = arm_codes[order], replicate[order]
    edges = np.flatnonzero((np.diff(arm_codes) != 0) | (np.diff(replicate) != 0)) + 1
    cells = {}
    for start, stop in zip([0, *edges], [*edges, len(arm_codes)], strict=True):
        arm, rep = arm_names[arm_codes[start]], int(replicate[start])
        columns = {c: v[start:stop] for c, v in raw.items()}
        cells[arm, rep] = warmed_up(Requests(arm, rep, columns, names), warmup_s)
        if not len(cells[arm, rep]):
            found_none = f"replicate {rep} has no request after {warmup_s:g} s"
            raise InputError.at("warmup_s", found_none, "set a shorter warm-up")
    stated = [str(a) for a in (manifest.get("arms") or {})]
    found = {arm for arm, _ in cells}
    arms = tuple(a for a in stated if a in found) or tuple(sorted(found))
    run = Run(folder, manifest, arms, tuple(sorted({r for _, r in cells})), cells)
    _check_and_mark(run, path)
    return run


def warmed_up(cell: Requests, warmup_s: float) -> Requests:
    """Return *cell* without the requests that arrive in the warm-up, and those beside it."""
    if not warmup_s:
        return cell
    late = cell["arrival_s"] >= warmup_s
    kept, gone = (
        Requests(
            cell.arm, cell.replicate, {k: v[rows] for k, v in cell.columns.items()}, cell.names
        )
        for rows in (late, ~late)
    )
    gone.servable = np.ones(len(gone), np.bool_)
    kept.early = gone
    return kept


def _check_and_mark(run: Run, path: Path) -> None:
    excused = (Outcome.rejected_context, Outcome.cancelled)
    for rep in run.replicates:
        absent = [a for a in run.arms if (a, rep) not in run.cells]
        if absent:
            found = f"replicate {rep} lacks the arms {', '.join(absent)}"
            raise InputError.at(str(path), found, "run every arm on every replicate")
        cells = [run.cells[a, rep] for a in run.arms]
        for cell in cells[1:]:
            if not np.array_equal(cell["request"], cells[0]["request"]):
                found = f"replicate {rep}: arms {cells[0].arm} and {cell.arm} differ in requests"
                raise InputError.at(str(path), found, "offer every arm the same trace")
        away = np.logical_and.reduce([np.isin(c["outcome"], excused) for c in cells])
        for cell in cells:
            cell.servable = ~away


def read_devices(run: Run) -> dict[tuple[str, int], DeviceSeries]:
    """Return the busy series by (arm, replicate); empty where the run folder holds none."""
    path = run.folder / "devices.parquet"
    if not path.is_file():
        return {}
    wanted = ["arm", "replicate", "device", "time_s", "window_s", "busy_ratio"]
    raw = read_columns(path, wanted)
    codes, names = raw["arm"]
    result = {}
    for arm in run.arms:
        code = names.index(arm) if arm in names else -2
        for rep in run.replicates:
            rows = np.flatnonzero((codes == code) & (raw["replicate"] == rep))
            if len(rows):
                result[arm, rep] = DeviceSeries(*(raw[c][rows] for c in wanted[2:]))
    return result
