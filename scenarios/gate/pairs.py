"""Paired wall clock: fresh processes of base and head, taking turns, order alternating.

Interference only ever adds time, so each decision keeps the least it took over the rounds of its
process; what a process adds by its own layout and hash seed is averaged over the pairs.
"""

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from dispatch.errors import InputError, NotMeasurable

WORKER = Path(__file__).with_name("worker.py")
PAIRS = 11
ROUNDS = 8
CONTROL_PAIRS = 3
# A thread pool of numpy's takes a third of a worker's start. Compiled modules are kept, or a base
# in its new worktree would compile at every start what the head has compiled long ago.
ENVIRONMENT = {
    "PYTHONHASHSEED": "random",
    "PYTHONDONTWRITEBYTECODE": "",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Side:
    """What one side of a pair runs: a tree, a policy, and for self-tests an injected slowness."""

    folder: Path
    policy: str
    params: dict[str, Any] = field(default_factory=dict)
    inject: str = "none"
    path: str = "decisions"


class Worker:
    """A fresh process that replays the recorded decisions, one pass a request on its stdin."""

    def __init__(self, side: Side, label: str) -> None:
        self.label = label
        job = {
            "tree": str(side.folder),
            "policy": side.policy,
            "params": side.params,
            "inject": side.inject,
            "path": side.path,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **ENVIRONMENT},
        )

    def ask(self, what: str) -> dict[str, Any]:
        """Send one word and return the answer; where a base dies, nothing can be measured."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            words = self.close().strip().splitlines() or ["it said nothing"]
            if self.label == "head":
                raise InputError.at("head", f"could not be run: {words[-1]}", "mend it first")
            raise NotMeasurable(f"the {self.label} could not be run: {words[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def pin(self, number: int) -> None:
        """Run on one core, the same for all of pair *number*: two cores seldom are equally fast.

        Where a host's cores are shared, one may be half as fast as another for seconds.
        """
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(self._process.pid, {cores[number % len(cores)]})

    def close(self) -> str:
        """End the process and return what it wrote to stderr."""
        _, errors = self._process.communicate()
        return errors or ""

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the process without asking."""
        if self._process.poll() is None:
            self._process.kill()
        self.close()


@dataclass(slots=True)
class Profile:
    """One side of one pair: the least time of each decision, and the CPU of its passes."""

    least_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)

    def quantile(self, q: float) -> float:
        """Return a nearest-rank quantile of the profile in nanoseconds."""
        ordered = sorted(self.least_ns)
        return float(ordered[max(0, math.ceil(q * len(ordered)) - 1)])

    def add(self, times: list[int]) -> None:
        """Keep the lesser time of each decision: interference only ever adds."""
        if self.least_ns:
            times = [min(two) for two in zip(self.least_ns, times, strict=True)]
        self.least_ns = times


@dataclass(slots=True)
class Pair:
    """Base and head of one pair of processes, and for some a second base as the control."""

    base: Profile
    head: Profile
    again: Profile | None = None

    @property
    def cpu_ratio(self) -> float:
        """Median over rounds of the paired CPU ratio."""
        return statistics.median(
            h / b for h, b in zip(self.head.cpu_ns, self.base.cpu_ns, strict=True)
        )


class Started:
    """The fresh processes of one pair; they import at the same time and are measured in turn."""

    def __init__(self, base: Side, head: Side, *, control: bool = False) -> None:
        self.workers = [Worker(base, "base"), Worker(head, "head")]
        if control:
            self.workers.append(Worker(base, "base"))

    def measure(self, number: int, rounds: int) -> Pair:
        """Run two warm passes each, then *rounds* in turn, the order alternating by parity."""
        ready = [w.ask("ready")["stream"] for w in self.workers]
        if len(set(ready)) > 1:
            raise NotMeasurable("base and head were given different decision streams")
        for worker in self.workers:
            worker.pin(number)
        for worker in self.workers:
            worker.ask("warm")
        profiles = [Profile() for _ in self.workers]
        for turn in range(rounds):
            order = list(range(len(self.workers)))[:: 1 if (number + turn) % 2 == 0 else -1]
            for side in order:
                times = self.workers[side].ask("profile")["ns"]
                if not times:
                    raise NotMeasurable(f"the {self.workers[side].label} took no sample")
                profiles[side].add(times)
            if turn % 2 == 0:  # a median of ratios settles sooner than a minimum
                for side in order:
                    profiles[side].cpu_ns.append(int(self.workers[side].ask("cpu")["ns"]))
        return Pair(*profiles)

    def stop(self) -> None:
        """End the processes, whatever they are at."""
        for worker in self.workers:
            worker.stop()


def run_pairs(
    base: Side,
    head: Side,
    count: int = PAIRS,
    *,
    start: int = 0,
    controls: int = 0,
    rounds: int = ROUNDS,
    progress: Callable[[int], None] | None = None,
) -> list[Pair]:
    """Run *count* pairs, numbered from *start*; the first *controls* carry a second base."""
    pairs: list[Pair] = []
    for at in range(count):
        begun = Started(base, head, control=at < controls)
        try:
            pairs.append(begun.measure(start + at, rounds))
        finally:
            begun.stop()
        if progress:
            progress(at + 1)
    return pairs


def control_ratios(pairs: Sequence[Pair], metric: Callable[[Profile], float]) -> list[float]:
    """Return second base over base of one metric, a ratio for each pair that carries a control."""
    return [metric(p.again) / metric(p.base) for p in pairs if p.again]
