"""A local pool of worker processes that outlives the death of any of them.

Every worker has its own pipe and holds at most one cell, so a death is charged to that cell alone.
A cell is tried at most three times; then it is a failure, and the others go on.
"""

import contextlib
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from dispatch.errors import InputError, Problem, ZerolayerError

CellT = TypeVar("CellT", contravariant=True)
TRIES = 3
_STARTS = 5  # workers in a row that die before they are ready: then something else is wrong
_REPORT_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a cell has no result."""

    text: str
    problems: tuple[Problem, ...] = ()
    trace: str = ""
    system: tuple[int, str | None] | None = None
    """Number and file of what the operating system refused: a full disk is no fault of ours."""


@dataclass(frozen=True, slots=True)
class Completed:
    """One cell done: its place in the list, its result or its failure, and how often it ran."""

    index: int
    result: Any
    failure: Failure | None = None
    tries: int = 1


class Work(Protocol):
    """What a worker does: made once in each worker, then called cell by cell."""

    def __call__(self, cell: Any, progress: Callable[[int], None], /) -> Any:
        """Return the result of *cell*; *progress* takes units of work done since the last call."""


class Executor(Protocol):
    """Cells in, results as they complete.

    *cells* may grow while results are taken: what is appended before the last one is done runs too.
    """

    def as_completed(
        self, cells: Sequence[Any], progress: Callable[[int], None] = ...
    ) -> Iterator[Completed]:
        """Yield every cell once, in the order in which they complete."""


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _nothing(units: int) -> None:
    """Take progress and drop it."""


@dataclass(slots=True)
class Inline:
    """The same interface in this very process, for one cell or for a debugger."""

    make: Callable[..., Work]
    arguments: tuple[Any, ...] = ()
    _work: Work | None = None

    def as_completed(
        self, cells: Sequence[Any], progress: Callable[[int], None] = _nothing
    ) -> Iterator[Completed]:
        """Yield the cells in order."""
        self._work = self._work or self.make(*self.arguments)
        for index, cell in enumerate(cells):
            try:
                yield Completed(index, self._work(cell, progress))
            except Exception as error:
                yield Completed(index, None, failure_of(error))


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    ready: bool = False
    index: int = -1  # the cell it holds


@dataclass(slots=True)
class Pool(Generic[CellT]):
    """*jobs* processes, each with its own ``make(*arguments)``; both must be importable.

    With *keep* idle workers stay for the next cells, until :meth:`close`.
    """

    make: Callable[..., Work]
    arguments: tuple[Any, ...] = ()
    jobs: int = 0
    tries: int = TRIES
    keep: bool = False
    _workers: list[_Worker] = field(default_factory=list)
    _unready: int = 0

    def as_completed(
        self, cells: Sequence[CellT], progress: Callable[[int], None] = _nothing
    ) -> Iterator[Completed]:
        """Yield the cells as they complete; leaving the loop ends every worker."""
        pending: deque[int] = deque()
        tried: list[int] = []
        done = 0
        try:
            while done < len(cells):
                if new := range(len(tried), len(cells)):
                    pending.extend(new)
                    tried.extend(0 for _ in new)
                self._staff(min(self.jobs or cores(), len(cells) - done))
                self._hand_out(cells, pending, tried)
                for completed in self._listen(pending, tried, progress):
                    done += 1
                    yield completed
        finally:
            if not self.keep or done < len(cells):
                self.close()

    def warm(self) -> None:
        """Start the process that workers are forked from, and return at once.

        It loads what a worker needs, once for all of them, while the caller prepares the cells.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["__main__", self.make.__module__])
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)  # it is not told else
        try:
            multiprocessing.forkserver.ensure_running()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before

    def _staff(self, wanted: int) -> None:
        while len(self._workers) < wanted:
            self._workers.append(self._start())

    def _start(self) -> _Worker:
        self.warm()
        context = multiprocessing.get_context("forkserver")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, os.getpid(), self.make, self.arguments), daemon=True
        )
        process.start()
        theirs.close()
        return _Worker(process, ours)

    def _hand_out(self, cells: Sequence[CellT], pending: deque[int], tried: list[int]) -> None:
        for worker in self._workers:
            if worker.ready and worker.index < 0 and pending:
                worker.index = pending.popleft()
                tried[worker.index] += 1
                with contextlib.suppress(OSError):  # it is dead: the sentinel will say so
                    worker.pipe.send(cells[worker.index])

    def _listen(
        self, pending: deque[int], tried: list[int], progress: Callable[[int], None]
    ) -> Iterator[Completed]:
        by_pipe = {worker.pipe: worker for worker in self._workers}
        for pipe in wait(list(by_pipe)):
            worker = by_pipe[pipe]  # type: ignore[index]
            try:
                kind, value = worker.pipe.recv()
            except (EOFError, OSError):
                yield from self._bury(worker, pending, tried)
                continue
            if kind == "progress":
                progress(value)
            elif kind == "ready":
                worker.ready = True
                self._unready = 0
            else:
                index, worker.index = worker.index, -1
                failure = value if kind == "failure" else None
                result = value if kind == "result" else None
                yield Completed(index, result, failure, tried[index])

    def _bury(self, worker: _Worker, pending: deque[int], tried: list[int]) -> Iterator[Completed]:
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        index = worker.index
        if not worker.ready:
            self._unready += 1
            if self._unready >= _STARTS:
                raise ZerolayerError(f"{_STARTS} workers in a row died as they started")
        if index < 0:
            return
        if tried[index] < self.tries:
            pending.appendleft(index)
            return
        how = _exit(worker.process.exitcode)
        text = f"the worker died {self.tries} times on this cell, last {how}"
        yield Completed(index, None, Failure(text), tried[index])

    def close(self) -> None:
        """End every worker."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()
        self._workers.clear()


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by signal {signal.Signals(-code).name}"
    return f"with exit code {code}"


def failure_of(error: Exception) -> Failure:
    """Return what is left of *error* when it cannot travel itself."""
    problems = tuple(error.problems) if isinstance(error, InputError) else ()
    text = str(error) if isinstance(error, ZerolayerError) else f"{type(error).__name__}: {error}"
    system = None
    if isinstance(error, OSError) and error.errno is not None:
        system = (error.errno, None if error.filename is None else str(error.filename))
    return Failure(text, problems, traceback.format_exc(), system)


def _serve(pipe: Connection, parent: int, make: Callable[..., Work], arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C for all
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    progress = _Progress(pipe)
    try:
        work = make(*arguments)
    except Exception as error:
        pipe.send(("ready", None))
        pipe.recv()
        pipe.send(("failure", failure_of(error)))
        return
    pipe.send(("ready", None))
    while True:
        try:
            cell = pipe.recv()
        except EOFError:
            return
        try:
            message = ("result", work(cell, progress))
        except Exception as error:
            message = ("failure", failure_of(error))
        try:
            progress.flush()
            pipe.send(message)
        except BrokenPipeError:  # the parent was killed: nobody is left to tell
            return


class _Progress:
    """Gathers units of work and sends them at most ten times a second."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._units = 0
        self._sent_at = monotonic()

    def __call__(self, units: int) -> None:
        self._units += units
        if monotonic() - self._sent_at >= _REPORT_EVERY_S:
            self.flush()

    def flush(self) -> None:
        if self._units:
            self._pipe.send(("progress", self._units))
        self._units = 0
        self._sent_at = monotonic()


def _leave_with(parent: int) -> None:
    """End this worker when the process that started the pool is gone, however it went."""
    while True:
        try:
            os.kill(parent, 0)
        except OSError:
            os._exit(1)
        threading.Event().wait(1.0)
