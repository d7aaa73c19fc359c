"""A dask.distributed cluster (extra ``cluster``): started here or joined, over TLS or loopback.

Schedulers execute pickles: plain TCP goes to loopback only, unless
``ZEROLAYER_CLUSTER_INSECURE=1``.
"""

import contextlib
import ipaddress
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dispatch.errors import InputError
from scenarios.batches import Cluster
from scenarios.pool import Executor

_ENVIRON = {"OMP_NUM_THREADS": 1, "OPENBLAS_NUM_THREADS": 1, "MKL_NUM_THREADS": 1}
"""Of a worker here: without dask's threshold of malloc, which hands pages back all the time."""
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
        own = _size(address) if address.startswith("local:") else 0
        client = _local(own, distributed, stack) if own else _remote(address, distributed, stack)
        scattered: dict[str, Any] = {}
        yield lambda folder: Cluster(client, folder, scattered, own)


def _size(address: str) -> int:
    count = address.removeprefix("local:")
    if not count.isdecimal() or not int(count):
        raise InputError.at(f"--cluster {address}", "is no size", "expected local:2")
    return int(count)


def _local(workers: int, distributed: Any, stack: contextlib.ExitStack) -> Any:
    import dask

    stack.enter_context(
        dask.config.set(
            {
                "distributed.diagnostics.nvml": False,  # cells need no GPU
                "distributed.scheduler.allowed-failures": 0,  # deaths are ours to count
                # A worker's loop shares its core and its lock with the cell that runs: no sampling
                # of stacks, no clock that ticks fifty times a second, no guard of a memory limit.
                "distributed.worker.profile.enabled": False,
                "distributed.admin.tick.interval": "1s",
                "distributed.admin.system-monitor.interval": "5s",
                "distributed.scheduler.work-stealing": False,  # nobody holds what could be stolen
                "distributed.scheduler.active-memory-manager.start": False,  # one trace, everywhere
                "distributed.nanny.pre-spawn-environ": _ENVIRON,
            }
        )
    )
    cluster = stack.enter_context(
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0",
            host="127.0.0.1", silence_logs=_QUIET, worker_class=distributed.Nanny,
            preload=["scenarios.sweep"], memory_limit=0,
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
