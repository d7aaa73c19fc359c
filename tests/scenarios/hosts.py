"""A dask scheduler and workers as other hosts: in network namespaces, else as mere processes."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
_NET = f"10.{77 + os.getpid() % 100}.0"
_TAG = f"zl{os.getpid() % 100_000}"


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


def _answers(host: str, port: int) -> None:
    """Wait until somebody listens there."""
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
            return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens at {host}:{port}")


class Hosts:
    """One scheduler here and *names* as workers elsewhere, each behind a link of its own."""

    def __init__(self, names: tuple[str, ...], stack: contextlib.ExitStack) -> None:
        self._stack = stack
        self.names = names
        self.apart = self._namespaces()
        home = f"{_NET}.1" if self.apart else "127.0.0.1"
        with socket.socket() as probe:
            probe.bind((home, 0))
            port = probe.getsockname()[1]
        self.address = f"tcp://{home}:{port}"
        self._start("dask_scheduler", "--host", home, "--port", str(port), "--no-dashboard")
        _answers(home, port)
        self._workers = {name: self._worker(name, at) for at, name in enumerate(names)}

    def cut(self, name: str) -> None:
        """Cut a host off: its link goes down, and nobody says good-bye."""
        if self.apart:
            assert _ip("link", "set", f"{_TAG}{name}", "down")
        else:
            self._workers[name].send_signal(signal.SIGSTOP)

    def _namespaces(self) -> bool:
        if not shutil.which("ip") or not _ip("netns", "add", f"{_TAG}-{self.names[0]}"):
            return False
        self._stack.callback(_ip, "netns", "del", f"{_TAG}-{self.names[0]}")
        for name in self.names[1:]:
            assert _ip("netns", "add", f"{_TAG}-{name}")
            self._stack.callback(_ip, "netns", "del", f"{_TAG}-{name}")
        bridge = f"{_TAG}br"
        if not _ip("link", "add", bridge, "type", "bridge"):
            return False
        self._stack.callback(_ip, "link", "del", bridge)
        fine = _ip("addr", "add", f"{_NET}.1/24", "dev", bridge) and _ip(
            "link", "set", bridge, "up"
        )
        for at, name in enumerate(self.names):
            fine = fine and self._link(name, at, bridge)
        return fine

    def _link(self, name: str, at: int, bridge: str) -> bool:
        space, here, there = f"{_TAG}-{name}", f"{_TAG}{name}", f"{_TAG}{name}p"
        inside = ("netns", "exec", space, "ip")
        return (
            _ip("link", "add", here, "type", "veth", "peer", "name", there)
            and _ip("link", "set", here, "master", bridge, "up")
            and _ip("link", "set", there, "netns", space)
            and _ip(*inside, "addr", "add", f"{_NET}.{at + 2}/24", "dev", there)
            and _ip(*inside, "link", "set", there, "up")
            and _ip(*inside, "link", "set", "lo", "up")
        )

    def _worker(self, name: str, at: int) -> "subprocess.Popen[bytes]":
        host = f"{_NET}.{at + 2}" if self.apart else "127.0.0.1"
        before = ("ip", "netns", "exec", f"{_TAG}-{name}") if self.apart else ()
        words = (self.address, "--nthreads", "1", "--no-nanny", "--host", host, "--no-dashboard")
        return self._start("dask_worker", *words, "--name", name, before=before)

    def _start(
        self, program: str, *words: str, before: tuple[str, ...] = ()
    ) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen(
            [*before, sys.executable, "-m", f"distributed.cli.{program}", *words],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
            env={**os.environ, "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "12s",
                 "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


@contextlib.contextmanager
def hosts(*names: str) -> Iterator[Hosts]:
    """Yield a scheduler with one worker a name; all of it is gone afterwards."""
    with contextlib.ExitStack() as stack:
        yield Hosts(names, stack)
