"""Cells on a dask.distributed cluster (extra ``cluster``): the trace once a worker, retries, TLS.

A cell whose worker dies is tried again elsewhere, three times in all; a cell that kills every
worker costs one failure row. Schedulers execute pickles: plain TCP goes to loopback only, unless
``ZEROLAYER_CLUSTER_INSECURE=1``.
"""

import contextlib
import io
import ipaddress
import os
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dispatch.errors import InputError, ZerolayerError
from scenarios.pool import TRIES, Completed, Executor, Failure, failure_of

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
    import dask

    with contextlib.ExitStack() as stack:
        if address.startswith("local:"):
            count = address.removeprefix("local:")
            if not count.isdigit() or not int(count):
                raise InputError.at(f"--cluster {address}", "is no size", "expected local:2")
            dask.config.set({"distributed.scheduler.allowed-failures": TRIES - 1})
            local = distributed.LocalCluster(
                n_workers=int(count), threads_per_worker=1, dashboard_address=None,
                host="127.0.0.1", silence_logs=40,
            )  # fmt: skip
            cluster = stack.enter_context(local)
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        else:
            check_address(address)
            options: dict[str, Any] = {"set_as_default": False}
            if address.startswith("tls://"):
                options["security"] = _security(distributed)
            try:
                client = stack.enter_context(distributed.Client(address, timeout=10, **options))
            except (OSError, TimeoutError) as error:
                raise InputError.at(
                    f"--cluster {address}", f"no scheduler answers ({error})", "start one first"
                ) from None
        yield lambda folder: Cluster(client, folder)


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

    def as_completed(
        self, cells: Sequence[Any], progress: Callable[[int], None] = lambda units: None
    ) -> Iterator[Completed]:
        """Yield the cells as they complete; leaving the loop cancels what is left."""
        distributed = _distributed()
        packed = {
            name: self.client.scatter(pack(self.folder / name), broadcast=True, hash=True)
            for name in sorted({cell.trace for cell in cells})
        }
        futures = [
            self.client.submit(
                remote,
                cell,
                packed[cell.trace],
                pure=False,
                retries=0,
                key=f"cell-{index}-{id(self)}",
            )
            for index, cell in enumerate(cells)
        ]
        places = {future.key: index for index, future in enumerate(futures)}
        left = distributed.as_completed(futures)
        try:
            for future in left:
                yield self._completed(places[future.key], future, distributed)
        finally:
            self.client.cancel(futures)

    def _completed(self, index: int, future: Any, distributed: Any) -> Completed:
        if future.status == "finished":
            result = future.result()
            if isinstance(result, Failure):
                return Completed(index, None, result)
            return Completed(index, result)
        if future.status in ("cancelled", "lost"):
            raise ZerolayerError("the cluster is gone; run the same command again to go on")
        error = future.exception()
        if isinstance(error, distributed.scheduler.KilledWorker):
            text = f"the worker died {TRIES} times on this cell"
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
