"""Searches side by side: each waits for its own cells, and none keeps a worker idle for another.

A search is a coroutine. It awaits :class:`Ask` for the outcomes of cells, or :class:`Together` for
parts of itself that need not wait for each other; :func:`conduct` runs them all over one sweep.
There are no threads and no clock: what a search finds hangs on its own cells alone.
"""

from collections.abc import Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from scenarios.sweep import Outcome, Sweep, SweepCell

T = TypeVar("T")
Step = Coroutine[Any, Any, T]


@dataclass(frozen=True, slots=True)
class Ask:
    """Awaited for the outcomes of *cells*, in their order."""

    cells: Sequence[SweepCell]

    def __await__(self) -> Generator[Any, Any, list[Outcome]]:
        """Wait until all cells are done."""
        found: list[Outcome] = yield self
        return found


@dataclass(slots=True)
class Together(Generic[T]):
    """Awaited for the results of *parts*, in their order; they run side by side."""

    parts: Sequence[Step[T]]

    def __await__(self) -> Generator[Any, Any, list[T]]:
        """Wait until all parts are done."""
        found: list[T] = yield self
        return found


@dataclass(slots=True)
class _Task:
    """A coroutine, what it waits for (results so far, how many are missing), and who waits."""

    step: Step[Any] | None
    waiter: "_Task | None" = None
    place: int = 0
    results: list[Any] = field(default_factory=list)
    missing: int = 0

    def wait_for(self, count: int) -> None:
        self.results, self.missing = [None] * count, count

    def take(self, place: int, result: Any) -> bool:
        """Keep one result; True where it was the last that was missing."""
        self.results[place] = result
        self.missing -= 1
        return not self.missing


@dataclass(slots=True)
class _Conductor:
    cells: list[SweepCell] = field(default_factory=list)
    owners: list[tuple[_Task, int]] = field(default_factory=list)

    def begin(self, task: _Task, parts: Sequence[Step[Any]]) -> None:
        """Start *parts*, for which *task* waits."""
        task.wait_for(len(parts))
        for place, part in enumerate(parts):
            self.go_on(_Task(part, task, place), None)

    def go_on(self, task: _Task, value: Any) -> None:
        """Run *task* until it waits, and whoever waited for it alone."""
        while task.step is not None:
            try:
                asked = task.step.send(value)
            except StopIteration as end:
                waiter = task.waiter
                if waiter is None or not waiter.take(task.place, end.value):
                    return
                task, value = waiter, waiter.results
                continue
            if isinstance(asked, Ask) and asked.cells:
                task.wait_for(len(asked.cells))
                self.owners += [(task, place) for place in range(len(asked.cells))]
                self.cells += asked.cells
                return
            if isinstance(asked, Together) and asked.parts:
                self.begin(task, asked.parts)
                return
            value = []  # nothing was asked for


def conduct(steps: Sequence[Step[T]], sweep: Sweep) -> list[T]:
    """Run all *steps* to their ends over *sweep*, and return their results in order."""
    root, conductor = _Task(None), _Conductor()
    try:
        conductor.begin(root, steps)
        for number, outcome in sweep.as_completed(conductor.cells):
            if sweep.shared is not None:
                sweep.shared.add(1)
            task, place = conductor.owners[number]
            if task.take(place, outcome):
                conductor.go_on(task, task.results)
    finally:
        for step in steps:
            step.close()
    return root.results
