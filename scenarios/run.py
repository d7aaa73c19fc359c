"""Run every arm of a scenario on every replicate; the run folder appears whole or not at all."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import traces
from dispatch.errors import InputError, ZerolayerError
from scenarios import arms, folder, history, manifest, progress, share
from scenarios.cell import TABLES, Cell, Replayer, part_name, read_part
from scenarios.pool import Executor, Failure, Inline, Pool, Work
from scenarios.schema import Scenario
from scenarios.stop import terminable
from traces.sink import ParquetSink
from traces.trace import Trace

Finish = Callable[[Path, Mapping[str, Any]], Any]
"""Adds files to a run folder from its tables and manifest; what it returns is the run's result."""

Live = Callable[[str, Path, Path], Work]
"""Makes what replays cells live, from the scenario as JSON, the trace's folder and the rows'."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """A finished run: where it is, what it says about itself, and what *finish* returned."""

    folder: Path | None
    manifest: Mapping[str, Any]
    outcome: Any


def run(
    scenario: Scenario,
    target: Path | None,
    *,
    jobs: int = 0,
    force: bool = False,
    quiet: bool = False,
    finish: Finish | None = None,
    extra: Mapping[str, Any] | None = None,
    command: str = "",
    live: Live | None = None,
    claimed: Path | None = None,
) -> RunResult:
    """Run all arms on all replicates.

    *jobs* processes (0: one per core) share the cells; results do not hang on it. Without a
    *target* the folder is a scratch one that is gone on return. A caller that holds
    ``folder.whole(target)`` already hands over what it yielded as *claimed*. *extra* and *command*
    (how to run it again) go into the manifest. *live* replays a cell in the live world instead, one
    after the other.
    """
    started_at = manifest.now()
    with terminable(), _place(target, force, claimed) as place:
        trace = history.load(scenario)
        with tempfile.TemporaryDirectory(prefix=".parts-", dir=place) as scratch:
            facts = _replay_all(scenario, trace, Path(scratch), jobs, quiet, live)
            _say(quiet, "writing the tables")
            _gather(scenario, Path(scratch), place)
        about = manifest.describe_run(scenario, describe(trace), started_at)
        about["arms"] = {
            arm.name: {"devices": arms.devices(arms.fleet(scenario, arm)), "facts": facts[number]}
            for number, arm in enumerate(scenario.arms)
        }
        about |= {"command": command, **(extra or {})}
        if live is not None:
            about["world"] = "live"
        outcome = None
        if finish is not None:
            _say(quiet, "writing the report")
            outcome = finish(place, about)
        whole = manifest.write(place, about)
    return RunResult(target, whole, outcome)


def describe(trace: Trace) -> dict[str, Any]:
    """Return what the manifest says of a trace: statistics, hash, quirks, what it cannot tell."""
    about = dict(traces.describe(trace))
    about.setdefault("name", trace.name)
    about["sha256"] = trace.sha256
    about["rows"] = len(trace)
    about["quirks"] = [{"code": q.code, "text": q.text, "rows": q.rows} for q in trace.quirks]
    about["cannot_tell"] = list(trace.cannot_tell)
    return about


@contextmanager
def _place(target: Path | None, force: bool, claimed: Path | None) -> Iterator[Path]:
    if claimed is not None:
        yield claimed
    elif target is not None:
        with folder.whole(target, force) as place:
            yield place
    else:
        way_out = "make room there, or set TMPDIR to another folder"
        with (
            tempfile.TemporaryDirectory(prefix="zerolayer-") as scratch,
            folder.room(scratch, way_out),
        ):
            yield Path(scratch)


def _replay_all(
    scenario: Scenario,
    trace: Trace,
    scratch: Path,
    jobs: int,
    quiet: bool,
    live: Live | None,
) -> list[list[dict[str, Any]]]:
    """Return facts by arm and replicate; rows lie in *scratch*."""
    share.save(trace, scratch / "trace")
    cells = [
        Cell(arm, replicate)
        for replicate in range(scenario.replicates)
        for arm in range(len(scenario.arms))
    ]
    arguments = (scenario.model_dump_json(), scratch / "trace", scratch)
    executor: Executor
    if live is not None:
        executor = Inline(live, arguments)
    elif jobs == 1 or len(cells) == 1:
        executor = Inline(Replayer, arguments)
    else:
        executor = Pool(Replayer, arguments, jobs=jobs)
    facts: list[list[dict[str, Any]]] = [
        [{} for _ in range(scenario.replicates)] for _ in scenario.arms
    ]
    total = len(trace) * len(cells)
    with progress.show(f"zerolayer {scenario.name}", total, "requests", quiet) as shown:
        for done in executor.as_completed(cells, shown.add):
            if done.failure is not None:
                raise _error(scenario, cells[done.index], done.failure)
            cell = cells[done.index]
            facts[cell.arm][cell.replicate] = done.result
    return facts


def _error(scenario: Scenario, cell: Cell, failure: Failure) -> Exception:
    if failure.problems:
        return InputError(failure.problems)
    if failure.system is not None:
        number, file = failure.system
        return OSError(number, os.strerror(number), file)
    where = f"arm {scenario.arms[cell.arm].name}, replicate {cell.replicate}"
    trace = f"\n{failure.trace}" if failure.trace else ""
    return ZerolayerError(f"{where}: {failure.text}{trace}")


def _gather(scenario: Scenario, scratch: Path, place: Path) -> None:
    """Write the parts of all cells as one table each, arms and replicates in order."""
    sink = ParquetSink(place)
    for table in TABLES:
        for arm in range(len(scenario.arms)):
            for replicate in range(scenario.replicates):
                for columns in read_part(scratch / part_name(Cell(arm, replicate)), table):
                    sink(table, columns)
    sink.close()


def _say(quiet: bool, text: str) -> None:
    if not quiet:
        import sys

        print(f"zerolayer: {text}", file=sys.stderr, flush=True)
