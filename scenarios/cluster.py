"""Cells on a dask.distributed cluster (extra ``cluster``): the trace once a worker, retries, TLS.

A cell whose worker dies is tried again elsewhere, five times in all (on a scheduler of your own as
often as its ``allowed-failures`` says); a cell that kills every worker costs one failure row.
Schedulers execute pickles: plain TCP goes to loopback only, unless
``ZEROLAYER_CLUSTER_INSECURE=1``.
"""

import contextlib
import io
import ipaddress
import os
import tarfile
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dispatch.errors import InputError, ZerolayerError
from scenarios.pool import Completed, Executor, Failure, failure_of

TRIES = 5
"""Of a cell whose worker dies; on a shared cluster workers die for reasons that are not its own."""
_LOSSES = 20
"""So often a cell is sent again that was lost because no worker held its trace any more."""
_QUIET = 50  # logging.CRITICAL: what matters is told by us

MakeExecutor = Callable[[Path], Executor]


@contextlib.contextmanager
def executor(address: str | None) -> Iterator[MakeExecutor | None]:
    """Yield a maker of cluster executors for *address*, or None where no cluster is asked for.

    ``local:N`` starts N single-thread workers here; ``tcp://`` and ``tls://`` join a scheduler.
    ``ZEROLAYER_TLS_CA``, ``_CERT`` and ``_KEY`` name the files of a TLS cluster.
    """
    if address is None:
        yield None
        return
    distributed = _distributed()
    with contextlib.ExitStack() as stack:
        if address.startswith("local:"):
            client = _local(address, distributed, stack)
        else:
            client = _remote(address, distributed, stack)
        scattered: dict[str, Any] = {}
        yield lambda folder: Cluster(client, folder, scattered)


def _local(address: str, distributed: Any, stack: contextlib.ExitStack) -> Any:
    count = address.removeprefix("local:")
    if not count.isdigit() or not int(count):
        raise InputError.at(f"--cluster {address}", "is no size", "expected local:2")
    import dask

    # One task a worker at a time: then a death is charged to the cell that ran, and to no other.
    stack.enter_context(
        dask.config.set(
            {
                "distributed.diagnostics.nvml": False,  # cells need no GPU
                "distributed.scheduler.allowed-failures": TRIES - 1,
                "distributed.scheduler.worker-saturation": 1.0,
                # The rest waits at the scheduler however many traces it hangs on: else all that
                # was handed to a worker is charged when it dies.
                "distributed.scheduler.rootish-taskgroup": 1_000_000,
                "distributed.scheduler.rootish-taskgroup-dependencies": 1_000_000,
                "distributed.worker.profile.enabled": False,  # it samples stacks all the while
            }
        )
    )
    cluster = stack.enter_context(
        distributed.LocalCluster(
            n_workers=int(count), threads_per_worker=1, dashboard_address="127.0.0.1:0",
            host="127.0.0.1", silence_logs=_QUIET, worker_class=distributed.Nanny,
            preload=["scenarios.sweep"],
        )
    )  # fmt: skip
    return stack.enter_context(distributed.Client(cluster, set_as_default=False))


def _remote(address: str, distributed: Any, stack: contextlib.ExitStack) -> Any:
    check_address(address)
    options: dict[str, Any] = {"set_as_default": False}
    if address.startswith("tls://"):
        options["security"] = _security(distributed)
    try:
        client = distributed.Client(address, timeout=10, **options)
    except (OSError, TimeoutError) as error:
        raise InputError.at(
            f"--cluster {address}", f"no scheduler answers ({error})", "start one first"
        ) from None
    return stack.enter_context(client)


def check_address(address: str) -> None:
    """Refuse what is no scheduler address, and plain TCP to another host."""
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "tls") or not parts.hostname:
        raise InputError.at(
            f"--cluster {address}",
            "is no address",
            "expected tcp://HOST:PORT, tls://... or local:N",
        )
    insecure = os.environ.get("ZEROLAYER_CLUSTER_INSECURE") == "1"
    if parts.scheme == "tcp" and not insecure and not _loopback(parts.hostname):
        raise InputError.at(
            f"--cluster {address}",
            "is plain TCP to another host, and a scheduler executes what it is sent",
            "use tls://, or set ZEROLAYER_CLUSTER_INSECURE=1 on a network you trust",
        )


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise InputError.at(
            "--cluster", "dask.distributed is not installed", "pip install 'zerolayer[cluster]'"
        ) from None
    return distributed


def _security(distributed: Any) -> Any:
    names = {"CA": "tls_ca_file", "CERT": "tls_client_cert", "KEY": "tls_client_key"}
    found = {key: os.environ.get(f"ZEROLAYER_TLS_{name}") for name, key in names.items()}
    if missing := [f"ZEROLAYER_TLS_{n}" for n, key in names.items() if not found[key]]:
        raise InputError.at("--cluster tls://", f"{', '.join(missing)} not set", "name the files")
    return distributed.Security(require_encryption=True, **found)


@dataclass(slots=True)
class Cluster:
    """Runs sweep orders on a client's workers; *folder* holds the traces of the sweep."""

    client: Any
    folder: Path
    scattered: dict[str, Any]
    """Traces that are on the workers already, by name; shared by all sweeps of a client."""

    def as_completed(
        self, cells: Sequence[Any], progress: Callable[[int], None] = lambda units: None
    ) -> Iterator[Completed]:
        """Yield the cells as they complete; leaving the loop cancels what is left."""
        distributed = _distributed()
        tries: list[int] = []
        places: dict[str, int] = {}
        futures: dict[int, Any] = {}
        run = uuid.uuid4().hex
        left = distributed.as_completed(loop=self.client.loop)

        def submit(index: int) -> None:
            tries[index] += 1
            futures[index] = self.client.submit(
                remote, cells[index], self._trace(cells[index].trace), pure=False,
                key=f"cell-{run}-{index}-{tries[index]}",
            )  # fmt: skip
            places[futures[index].key] = index
            left.add(futures[index])

        def submit_new() -> None:
            for index in range(len(tries), len(cells)):
                tries.append(0)
                submit(index)

        try:
            submit_new()
            for future in left:
                index = places[future.key]
                done = self._completed(index, future, distributed)
                if done is None:
                    if self.client.status != "running" or tries[index] >= _LOSSES:
                        raise ZerolayerError(
                            "the cluster is gone; run the same command again to go on"
                        )
                    submit(index)
                    continue
                futures.pop(index)
                yield done
                submit_new()
        finally:
            with contextlib.suppress(Exception):  # a scheduler that is gone has nothing to cancel
                self.client.cancel(list(futures.values()))

    def _trace(self, name: str) -> Any:
        """Return the trace on the workers, scattered to all of them at its first use.

        Once the last worker that held it has died, it goes into the graph instead: the scheduler
        keeps it and hands it to whatever worker comes next.
        """
        held = self.scattered.get(name)
        if held is not None and held.status not in ("cancelled", "lost"):
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

    def _completed(self, index: int, future: Any, distributed: Any) -> Completed | None:
        """Return what came of a cell; None where it was lost and can be sent again."""
        if future.status == "finished":
            try:
                result = future.result()
            except (
                distributed.CancelledError
            ):  # the worker that held the result died before it was fetched
                return None
            if isinstance(result, Failure):
                return Completed(index, None, result)
            return Completed(index, result)
        if future.status in ("cancelled", "lost"):
            return None
        error = future.exception()
        if isinstance(error, distributed.scheduler.KilledWorker):
            text = f"every worker died that ran this cell, {TRIES} or more in all"
            return Completed(index, None, Failure(text), TRIES)
        return Completed(index, None, failure_of(error))


def pack(folder: Path) -> bytes:
    """Return one trace folder as bytes, to travel once to every worker."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, arcname=path.name)
    return buffer.getvalue()


_unpacked: dict[str, tuple[tempfile.TemporaryDirectory[str], Any]] = {}


def remote(order: Any, packed: bytes) -> Any:
    """Run one order in a dask worker; exceptions come back as values, not as retries."""
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
