"""Cells on the workers of a dask cluster: several a task, the trace once a worker, deaths counted.

Short cells travel together, so that what a task costs (three event loops and their messages) is
paid once for all of them. A cell of a batch whose worker dies is sent again alone: so a cell that
kills every worker costs one failure row, and a death is charged to no cell but that.
"""

import contextlib
import io
import tarfile
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, perf_counter
from typing import Any

from dispatch.errors import ZerolayerError
from scenarios.pool import Completed, Failure, failure_of

TRIES = 5
"""Of a cell whose worker dies; on a shared cluster workers die for reasons that are not its own."""
_LOSSES = 20
"""So often a cell is sent again that was lost because no worker held its trace any more."""
_BATCH_S, _BATCH_CELLS = 1.0, 64
"""What a batch may take, judged by the cells before it: as much is run again where a worker dies.
More cells than that save nothing further."""
_LOOK_EVERY_S, _COUNT_EVERY_S = 0.25, 5.0  # workers come and go
_DEAD_S = 120.0  # so long none of ours is there: something else is wrong


@dataclass(slots=True)
class Cluster:
    """Runs sweep orders on a client's workers; *folder* holds the traces of the sweep."""

    client: Any
    folder: Path
    scattered: dict[str, Any]
    """Traces that are on the workers already, by name; shared by all sweeps of a client."""
    own: int = 0
    """How many workers we keep; 0 on a scheduler of others. Ours hands every death to us to be
    counted; one that is not counts them itself (``allowed-failures``)."""

    def as_completed(
        self, cells: Sequence[Any], progress: Callable[[int], None] = lambda units: None
    ) -> Iterator[Completed]:
        """Yield the cells as they complete; leaving the loop cancels what is left."""
        sent = _Sent(cells)
        landed: SimpleQueue[Any] = SimpleQueue()
        futures: dict[str, Any] = {}
        run = uuid.uuid4().hex
        try:
            while sent.open():
                self._count(sent)
                while sent.pending and len(futures) < self._room(sent):
                    batch = sent.take()
                    future = self.client.submit(
                        remote, [cells[index] for index in batch],
                        self._trace(cells[batch[0]].trace),
                        pure=False, key=f"cells-{run}-{sent.tasks}",
                    )  # fmt: skip
                    futures[future.key] = future
                    sent.batches[future.key] = batch
                    future.add_done_callback(landed.put)
                try:
                    future = landed.get(timeout=_LOOK_EVERY_S)
                except Empty:
                    continue
                del futures[future.key]
                yield from self._land(sent, sent.batches.pop(future.key), future)
        finally:
            with contextlib.suppress(Exception):  # a scheduler that is gone has nothing to cancel
                self.client.cancel(list(futures.values()))

    def _count(self, sent: "_Sent") -> None:
        """Count the threads there are, and replace workers of ours that did not come back.

        A worker that dies while it starts takes the nanny with it that would have started another.
        """
        now = monotonic()
        if not self.own:
            if now - sent.counted_at > _COUNT_EVERY_S:
                with contextlib.suppress(OSError):  # told where the results are missed
                    sent.threads = max(1, sum(self.client.nthreads().values()))
                sent.counted_at = now
            return
        sent.threads = self.client.cluster.scheduler.total_nthreads
        if sent.threads:
            sent.seen_at = now
        elif now - sent.seen_at > _DEAD_S:
            raise ZerolayerError("no worker starts any more; run the same command again to go on")
        if sent.threads >= self.own:
            sent.counted_at = now
        elif now - sent.counted_at > _COUNT_EVERY_S:
            sent.counted_at = now
            self.client.cluster.scale(self.own)

    def _room(self, sent: "_Sent") -> int:
        """Return how many tasks may be under way.

        One a thread on workers of ours: then a death is charged to the task that ran, and none
        waits for a worker that is about to start, to kill it before it has. On a scheduler of
        others tasks wait for workers that may join.
        """
        return sent.threads if self.own else 4 * sent.threads + 16

    def _land(self, sent: "_Sent", batch: tuple[int, ...], future: Any) -> Iterator[Completed]:
        """Yield what came of a batch; what is to run again is pending once more."""
        import distributed

        error: Exception | None = None
        if future.status == "finished":
            with contextlib.suppress(distributed.CancelledError):  # it died with its worker
                took_s, results = future.result()
                sent.cell_s = took_s / len(batch)
                for index, result in zip(batch, results, strict=True):
                    yield sent.done(index, result)
                return
        elif future.status not in ("cancelled", "lost"):
            error = future.exception()
            if isinstance(error, distributed.scheduler.KilledWorker) and error.task != future.key:
                error = None  # what died was the copy of the trace
        if error is None:
            if self.client.status != "running" or sent.lost(batch) >= _LOSSES:
                raise ZerolayerError("the cluster is gone; run the same command again to go on")
            return
        if len(batch) > 1:
            sent.apart(batch)
        elif not isinstance(error, distributed.scheduler.KilledWorker):
            yield sent.done(batch[0], failure_of(error))
        elif self.own and sent.deaths[batch[0]] + 1 < TRIES:
            sent.died(batch[0])
        else:
            text = f"every worker died that ran this cell, {TRIES} or more in all"
            yield sent.done(batch[0], Failure(text), TRIES)

    def _trace(self, name: str) -> Any:
        """Return the trace on the workers, scattered to all of them at its first use.

        Once the last worker that held it has died, it goes into the graph instead: the scheduler
        keeps it and hands it to whatever worker comes next.
        """
        held = self.scattered.get(name)
        if held is not None and held.status in ("pending", "finished"):
            return held
        packed = pack(self.folder / name)
        if held is not None:
            self.scattered[name] = self.client.submit(bytes, packed, pure=False)
            return self.scattered[name]
        try:
            self.scattered[name] = self.client.scatter(packed, broadcast=True, hash=False)
        except TimeoutError:
            raise ZerolayerError(
                "no worker joins the scheduler; start one, and run the same command again"
            ) from None
        return self.scattered[name]


@dataclass(slots=True)
class _Sent:
    """Which cells wait, which are under way in which batch, and what befell each."""

    cells: Sequence[Any]
    pending: deque[int] = field(default_factory=deque)
    batches: dict[str, tuple[int, ...]] = field(default_factory=dict)
    deaths: list[int] = field(default_factory=list)
    losses: list[int] = field(default_factory=list)
    alone: set[int] = field(default_factory=set)
    """Cells whose batch did not come back: one of them is to blame."""
    tasks: int = 0
    cell_s: float = _BATCH_S
    threads: int = 1
    counted_at: float = 0.0
    seen_at: float = field(default_factory=monotonic)
    """When there last was a worker of ours."""

    def open(self) -> bool:
        """Take in cells that are new, and return whether any is left to run."""
        new = range(len(self.deaths), len(self.cells))
        self.pending.extend(new)
        self.deaths.extend(0 for _ in new)
        self.losses.extend(0 for _ in new)
        return bool(self.pending or self.batches)

    def take(self) -> tuple[int, ...]:
        """Take the next batch: cells of one trace, short enough, and some left for the others."""
        share = len(self.pending) // (2 * max(1, self.threads))
        most = min(share, int(_BATCH_S / max(self.cell_s, 1e-3)), _BATCH_CELLS)
        self.tasks += 1
        batch = [self.pending.popleft()]
        while self.pending and len(batch) < most and self._fits(batch[0], self.pending[0]):
            batch.append(self.pending.popleft())
        return tuple(batch)

    def _fits(self, first: int, index: int) -> bool:
        apart = first in self.alone or index in self.alone
        return not apart and self.cells[first].trace == self.cells[index].trace

    def done(self, index: int, result: Any, tries: int = 0) -> Completed:
        """Return a cell that needs no further run."""
        tries = tries or 1 + self.deaths[index]
        if isinstance(result, Failure):
            return Completed(index, None, result, tries)
        return Completed(index, result, None, tries)

    def lost(self, batch: tuple[int, ...]) -> int:
        """Send a batch again that no cell of it is to blame for; return how often it was lost."""
        self.pending.extendleft(reversed(batch))
        for index in batch:
            self.losses[index] += 1
        return max(self.losses[index] for index in batch)

    def apart(self, batch: tuple[int, ...]) -> None:
        """Send each cell of a batch again, alone."""
        self.pending.extendleft(reversed(batch))
        self.alone.update(batch)

    def died(self, index: int) -> None:
        """Send a cell again whose worker died, after those that may be done with first."""
        self.deaths[index] += 1
        self.pending.append(index)


def pack(folder: Path) -> bytes:
    """Return one trace folder as bytes, to travel once to every worker."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, arcname=path.name)
    return buffer.getvalue()


_unpacked: dict[str, tuple[tempfile.TemporaryDirectory[str], Any]] = {}


def remote(orders: Sequence[Any], packed: bytes) -> tuple[float, list[Any]]:
    """Run orders of one trace in a dask worker; return the seconds it took, and what came of each.

    Exceptions come back as values, not as retries.
    """
    began = perf_counter()
    results = [_one(order, packed) for order in orders]
    return perf_counter() - began, results


def _one(order: Any, packed: bytes) -> Any:
    from scenarios.sweep import Summariser

    try:
        if order.trace not in _unpacked:
            home = tempfile.TemporaryDirectory(prefix="zerolayer-worker-")
            target = Path(home.name) / order.trace
            target.mkdir()
            with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
                tar.extractall(target, filter="data")
            _unpacked[order.trace] = (home, Summariser(Path(home.name)))
        return _unpacked[order.trace][1](order, lambda units: None)
    except Exception as error:
        return failure_of(error)
