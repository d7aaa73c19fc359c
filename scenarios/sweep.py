"""Many small runs: cells in, figures as they complete; known ones come from the store."""

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import sim
from dispatch.journal import Journal
from scenarios import arms, history, manifest, progress, share
from scenarios.pool import Completed, Executor, Inline, Pool
from scenarios.schema import ArmConfig, Scenario
from scenarios.stop import terminable
from scenarios.store import Store, key
from scenarios.summary import Collector, Hopeful, HopelessError, cut_short, summarise
from traces.trace import Trace


@dataclass(frozen=True, slots=True)
class SweepCell:
    """One arm of one scenario on one replicate; *trace* names the history it replays."""

    scenario: Scenario
    arm: str
    replicate: int
    labels: Mapping[str, Any] = field(default_factory=dict)
    """Where the cell stands in its grid; no part of its content."""
    brief: bool = False
    """Only whether SLOs of p99 latency hold is asked: it may end once they certainly do not."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a cell, or the text of its failure."""

    cell: SweepCell
    figures: Mapping[str, float]
    failure: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class _Order:
    """What travels to a worker: small, and the trace by name only."""

    scenario: str
    arm: str
    replicate: int
    trace: str
    brief: bool


@dataclass(slots=True)
class _Work:
    """What has been ordered: every order's content key, and the cells that wait for each key."""

    orders: list[_Order] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    """The key that each order's cell has where it is not brief."""
    places: dict[str, list[int]] = field(default_factory=dict)
    seen: int = 0


_BRIEF_CHUNK = 256  # rows of a brief cell's journal between two looks at what failed


class Summariser:
    """Runs orders in a worker; keeps the last few traces that it has seen."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._traces: dict[tuple[str, int, str], Trace] = {}
        self._scenarios: dict[str, Scenario] = {}

    def __call__(self, order: _Order, progress: Callable[[int], None]) -> dict[str, float]:
        """Return the figures of one cell."""
        scenario = self._scenario(order.scenario)
        arm = next(arm for arm in scenario.arms if arm.name == order.arm)
        setup = arms.setup(scenario, arm)
        trace = self._trace(order, scenario)
        rows = Hopeful(len(trace)) if order.brief else Collector()
        chunk_rows = _BRIEF_CHUNK if order.brief else 8192
        journal = Journal(rows, order.arm, order.replicate, chunk_rows)
        seed = arms.seed(scenario, order.replicate)
        try:
            facts = sim.replay(trace, setup, seed, journal, progress=progress)
            journal.close()
        except HopelessError:
            return cut_short(len(trace))
        devices = sum(pool.count for pool in setup.fleet.pools)
        return summarise(rows, facts.as_dict(), scenario.slo, devices, scenario.warmup_s)

    def _scenario(self, text: str) -> Scenario:
        if text not in self._scenarios:
            self._scenarios = {text: Scenario.model_validate_json(text)}
        return self._scenarios[text]

    def _trace(self, order: _Order, scenario: Scenario) -> Trace:
        name = (order.trace, order.replicate, str(scenario.trace.block_s))
        if name not in self._traces:
            base = share.load(self._folder / order.trace)
            if len(self._traces) >= 4:
                self._traces.clear()
            self._traces[name] = history.replicate(base, scenario, order.replicate)
        return self._traces[name]


class Sweep:
    """Runs cells on an executor of its own, once each, whatever asks for them how often."""

    def __init__(
        self,
        jobs: int = 0,
        *,
        store: Store | None = None,
        make_executor: Callable[[Path], Executor] | None = None,
        quiet: bool = False,
    ) -> None:
        self._jobs = jobs
        self._store = store if store is not None else Store()
        self._make_executor = make_executor
        self._quiet = quiet
        self.shared: progress.Progress | None = None
        """A progress that all runs of this sweep count on, where the caller shows one."""
        self._stack = ExitStack()
        self._scratch = tempfile.TemporaryDirectory(prefix="zerolayer-sweep-")
        self._traces: dict[str, tuple[str, int]] = {}
        self._executor: Executor | None = None
        self._keeping = True
        self.ran = 0
        self.reused = 0
        self.failures: dict[str, int] = {}
        """What cells failed of, and how many did."""

    def __enter__(self) -> "Sweep":
        self._stack.enter_context(terminable())
        if self._make_executor is None and self._jobs != 1:
            Pool(Summariser).warm()  # it loads while the trace is read
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        self._scratch.cleanup()
        if kind is not None and not issubclass(kind, Exception):  # Ctrl-C or SIGTERM
            kept = f"{self.ran + self.reused:,} finished cells are kept in {self._store.folder}"
            text = f"{kept}; the same command goes on from there"
            print(text if self._keeping else "stopped", file=sys.stderr, flush=True)

    def run(
        self,
        cells: Sequence[SweepCell],
        title: str = "cells",
        note: Callable[[Outcome], str] | None = None,
    ) -> list[Outcome]:
        """Return the outcomes in the order of *cells*."""
        found: list[Outcome | None] = [None] * len(cells)
        own = progress.show(title, len(cells), "cells", self._quiet)
        with own if self.shared is None else nullcontext(self.shared) as shown:
            for index, outcome in self.as_completed(cells):
                found[index] = outcome
                shown.add(1)
                if note is not None:
                    shown.note(note(outcome))
        return [outcome for outcome in found if outcome is not None]

    def as_completed(self, cells: Sequence[SweepCell]) -> Iterator[tuple[int, Outcome]]:
        """Yield places in *cells* and outcomes as they complete; *cells* may grow meanwhile.

        Two cells of the same content are one run.
        """
        work = _Work()
        yield from self._known(cells, work)
        for done in self._execute(work.orders) if work.orders else ():
            name = work.names[done.index]
            self.ran += 1
            if done.failure is not None:
                text = done.failure.text
                self.failures[text] = self.failures.get(text, 0) + 1
            else:
                self._keep(name, done.result)
                if work.orders[done.index].brief and not done.result.get("cut"):
                    self._keep(work.whole[done.index], done.result)  # it went to the end
            for place in work.places.pop(name):
                text = "" if done.failure is None else done.failure.text
                yield place, Outcome(cells[place], done.result or {}, text)
            yield from self._known(cells, work)

    def _known(self, cells: Sequence[SweepCell], work: _Work) -> Iterator[tuple[int, Outcome]]:
        """Yield those of the new *cells* whose figures are known, and order the others."""
        while work.seen < len(cells):
            place, cell = work.seen, cells[work.seen]
            work.seen += 1
            trace, sha256 = self._trace(cell.scenario)
            whole = key(content(cell, sha256))
            name = f"{whole}-brief" if cell.brief else whole
            known = self._store.get(whole) or (self._store.get(name) if cell.brief else None)
            if name in work.places:
                work.places[name].append(place)
            elif known is not None:
                self.reused += 1
                yield place, Outcome(cell, known, cached=True)
            else:
                work.places[name] = [place]
                work.names.append(name)
                work.whole.append(whole)
                text = cell.scenario.model_dump_json()
                work.orders.append(_Order(text, cell.arm, cell.replicate, trace, cell.brief))

    def _keep(self, name: str, figures: Mapping[str, float]) -> None:
        """Keep a finished cell; a folder that takes nothing costs the cache, not the sweep."""
        if not self._keeping:
            return
        try:
            self._store.put(name, figures)
        except OSError as error:
            self._keeping = False
            text = f"finished cells are not kept from here on: {self._store.folder}"
            print(f"{text}: {error.strerror}", file=sys.stderr, flush=True)

    def _execute(self, orders: Sequence[_Order]) -> Iterator[Completed]:
        if self._executor is None:
            self._executor = self._make()
        yield from self._executor.as_completed(orders)

    def _make(self) -> Executor:
        folder = Path(self._scratch.name)
        if self._make_executor is not None:
            return self._make_executor(folder)
        if self._jobs == 1:
            return Inline(Summariser, (folder,))
        pool: Pool[_Order] = Pool(Summariser, (folder,), jobs=self._jobs, keep=True)
        self._stack.callback(pool.close)
        return pool

    def _trace(self, scenario: Scenario) -> tuple[str, str]:
        """Return folder name and content hash of the scenario's trace, written at first use."""
        asked = json.dumps(
            [scenario.trace.model_dump(), scenario.traffic.model_dump(), scenario.seed],
            sort_keys=True,
        )
        name = hashlib.sha256(asked.encode()).hexdigest()[:16]
        if name not in self._traces:
            trace = history.load(scenario)
            share.save(trace, Path(self._scratch.name) / name)
            self._traces[name] = (share.content_hash(trace), len(trace))
        return name, self._traces[name][0]

    def requests(self, scenario: Scenario) -> int:
        """Return how many requests the scenario's trace offers."""
        name, _ = self._trace(scenario)
        return self._traces[name][1]


def content(cell: SweepCell, trace_sha256: str) -> dict[str, Any]:
    """Return all that the figures of *cell* hang on, apart from the code."""
    scenario = cell.scenario
    arm = next(arm for arm in scenario.arms if arm.name == cell.arm)
    return {
        "setup": arms.setup(scenario, arm).model_dump(mode="json"),
        "slo": scenario.slo.model_dump(mode="json"),
        "warmup_s": scenario.warmup_s,
        "trace": trace_sha256,
        "resample": [scenario.trace.resample, scenario.trace.block_s, scenario.seed],
        "replicate": cell.replicate,
        "seed": arms.seed(scenario, cell.replicate),
        "files": _files(scenario, arm),
    }


def _files(scenario: Scenario, arm: ArmConfig) -> dict[str, str]:
    """Return the hash of each file that stands where a name might: calibration, GPU or model."""
    named = [arm.door.decision_calibration, scenario.model.name]
    for pool in arms.fleet(scenario, arm).pools:
        named += [pool.gpu, *([pool.model.name] if pool.model else [])]
    return {name: manifest.file_hash(Path(name)) for name in named if Path(name).is_file()}


def cells_of(scenario: Scenario, labels: Mapping[str, Any] | None = None) -> list[SweepCell]:
    """Return every arm on every replicate of *scenario*."""
    return [
        SweepCell(scenario, arm.name, replicate, dict(labels or {}))
        for replicate in range(scenario.replicates)
        for arm in scenario.arms
    ]
