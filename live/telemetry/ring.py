"""Ring latency: a small all-reduce over the members of a ring, NCCL on GPUs, gloo on CPU.

Each member is a process of its own (``python -m live.telemetry.ring``): a collective that hangs on
a lost card then takes down neither the door nor its devices.
"""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from live.config import LiveDevice

FLOATS: Final = 2  # 8 bytes: latency, no bandwidth
_WARM_UP: Final = 20
_FIRST_ROUNDS: Final = 200
_ROUNDS: Final = 2  # of a repeated probe; it must cost little
_ANSWER_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class RingSample:
    """Seconds of one small all-reduce of ring *name*, and when it was measured (monotonic)."""

    name: str
    latency_s: float
    source_s: float


def rings(devices: Sequence[LiveDevice]) -> dict[str, list[int]]:
    """Return the devices of each named ring; a ring of one is none."""
    found: dict[str, list[int]] = {}
    for at, device in enumerate(devices):
        if device.ring:
            found.setdefault(device.ring, []).append(at)
    return {name: members for name, members in found.items() if len(members) > 1}


class RingProbe:
    """Measures ring *name* at the start and then every *interval_s*; a context manager.

    ``latest`` is None until the first answer; after a member has died it stays as it was, and the
    graph sees it grow old. ``cpu_s`` is the processor time that the repeated probes took, of all
    members together.
    """

    def __init__(self, name: str, devices: Sequence[LiveDevice], interval_s: float) -> None:
        self.name = name
        self.latest: RingSample | None = None
        self.first_s: float | None = None
        self.cpu_s = 0.0
        self.error = ""
        self._devices = devices
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"ring {name}", daemon=True)
        self._members: list[subprocess.Popen[str]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="zerolayer-ring-")

    def __enter__(self) -> "RingProbe":
        cuda = all(device.kind == "cuda" for device in self._devices)
        for rank, device in enumerate(self._devices):
            setup = {
                "rank": rank,
                "world": len(self._devices),
                "store": f"file://{Path(self._folder.name) / 'store'}",
                "backend": "nccl" if cuda else "gloo",
                "card": device.index,
            }
            self._members.append(_start(setup))
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for member in self._members:
            assert member.stdin is not None
            with contextlib.suppress(OSError):  # a dead one cannot be told what is still buffered
                member.stdin.close()
        for member in self._members:
            try:
                member.wait(_ANSWER_S)
            except subprocess.TimeoutExpired:
                member.kill()
                member.wait()
        self._thread.join(_ANSWER_S)
        for member in self._members:
            assert member.stdout is not None
            member.stdout.close()
        self._folder.cleanup()

    def _run(self) -> None:
        rounds = _FIRST_ROUNDS
        while not self._stop.is_set():
            answers = self._ask(rounds)
            if answers is None:
                self.error = self.error or f"a member of ring {self.name} ended"
                return
            slowest = max(float(answer["latency_s"]) for answer in answers)
            if self.first_s is None:
                self.first_s = slowest
            else:
                self.cpu_s += sum(float(answer["cpu_s"]) for answer in answers)
            self.latest = RingSample(self.name, slowest, time.monotonic())
            rounds = _ROUNDS
            self._stop.wait(self._interval_s)

    def _ask(self, rounds: int) -> list[dict[str, Any]] | None:
        """Have every member measure at once; None where one of them is gone."""
        try:
            for member in self._members:
                assert member.stdin is not None
                member.stdin.write(f"{rounds}\n")
                member.stdin.flush()
            lines = []
            for member in self._members:
                assert member.stdout is not None
                lines.append(member.stdout.readline())
        except (OSError, ValueError):
            return None
        if not all(lines):
            return None
        return [json.loads(line) for line in lines]


def _start(setup: dict[str, Any]) -> "subprocess.Popen[str]":
    root = str(Path(__file__).parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    member = subprocess.Popen(
        [sys.executable, "-m", "live.telemetry.ring"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    assert member.stdin is not None
    member.stdin.write(json.dumps(setup) + "\n")
    member.stdin.flush()
    return member


# -- a member ------------------------------------------------------------------------------------


def serve(setup: dict[str, Any]) -> None:
    """Join the ring, then answer each line of stdin (a number of rounds) until it closes."""
    import torch
    import torch.distributed as dist

    cuda = setup["backend"] == "nccl"
    if cuda:
        torch.cuda.set_device(setup["card"])
    dist.init_process_group(
        setup["backend"],
        init_method=setup["store"],
        rank=setup["rank"],
        world_size=setup["world"],
        timeout=timedelta(seconds=60),
    )
    tensor = torch.ones(FLOATS, device=f"cuda:{setup['card']}" if cuda else "cpu")
    for _ in range(_WARM_UP):
        dist.all_reduce(tensor)
    for line in sys.stdin:
        begun = time.process_time()
        dist.all_reduce(tensor)  # untimed: the members were told one after the other
        latency_s = median_s(dist, tensor, int(line), cuda)
        answer = {"latency_s": latency_s, "cpu_s": time.process_time() - begun}
        print(json.dumps(answer), flush=True)
    dist.destroy_process_group()


def median_s(dist: Any, tensor: Any, rounds: int, cuda: bool) -> float:
    """Return the median seconds of *rounds* all-reduces; CUDA events time those of NCCL."""
    import torch

    times: list[float] = []
    for _ in range(rounds):
        if cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            dist.all_reduce(tensor)
            end.record()
            end.synchronize()
            times.append(float(begin.elapsed_time(end)) / 1e3)
        else:
            begun = time.perf_counter()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - begun)
    return float(statistics.median(times))


if __name__ == "__main__":
    serve(json.loads(sys.stdin.readline()))
