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

from dispatch.errors import NotMeasurable

WORKER = Path(__file__).with_name("worker.py")
PAIRS = 11
ROUNDS = 8
CONTROL_PAIRS = 3


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
            env={**os.environ, "PYTHONHASHSEED": "random", "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def ask(self, what: str) -> dict[str, Any]:
        """Send one word and return the answer; a dead worker is not measurable."""
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
            raise NotMeasurable(f"the {self.label} could not be run: {words[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

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
        if self._process.poll() is None:
            self._process.kill()
        self.close()


@dataclass(slots=True)
class Profile:
    """One side of one pair: the least time of each decision, and CPU and counters of its passes."""

    least_ns: list[int]
    cpu_ns: list[int]
    counters: dict[str, float]
    stream: str

    def quantile(self, q: float) -> float:
        """Return a nearest-rank quantile of the profile in nanoseconds."""
        ordered = sorted(self.least_ns)
        return float(ordered[max(0, math.ceil(q * len(ordered)) - 1)])


@dataclass(slots=True)
class Pair:
    """Base and head of one pair of processes."""

    base: Profile
    head: Profile

    @property
    def cpu_ratio(self) -> float:
        """Median over rounds of the paired thread-CPU ratio."""
        return statistics.median(
            h / b for h, b in zip(self.head.cpu_ns, self.base.cpu_ns, strict=True)
        )


def run_pair(base: Side, head: Side, number: int, rounds: int = ROUNDS) -> Pair:
    """Run one pair: two warm passes each, then *rounds* in turn, order alternating by parity."""
    with Worker(base, "base") as first, Worker(head, "head") as second:
        workers = (first, second)
        ready = [w.ask("ready") for w in workers]
        if ready[0]["stream"] != ready[1]["stream"]:
            raise NotMeasurable("base and head were given different decision streams")
        for worker in workers:
            worker.ask("warm")
        least: list[list[int]] = [[], []]
        cpu: list[list[int]] = [[], []]
        for turn in range(rounds):
            order = (0, 1) if (number + turn) % 2 == 0 else (1, 0)
            for side in order:
                times = workers[side].ask("profile")["ns"]
                if not times:
                    raise NotMeasurable(f"the {workers[side].label} took no sample")
                best = least[side]
                least[side] = [min(p) for p in zip(best, times, strict=True)] if best else times
            for side in order:
                cpu[side].append(int(workers[side].ask("cpu")["ns"]))
        counters = [w.ask("counters") for w in workers]
    sides = [Profile(least[i], cpu[i], counters[i], str(ready[i]["stream"])) for i in (0, 1)]
    return Pair(*sides)


def run_pairs(
    base: Side,
    head: Side,
    count: int = PAIRS,
    *,
    start: int = 0,
    rounds: int = ROUNDS,
    progress: Callable[[int], None] | None = None,
) -> list[Pair]:
    """Run *count* pairs one after another, numbered from *start*."""
    pairs = []
    for number in range(start, start + count):
        pairs.append(run_pair(base, head, number, rounds))
        if progress:
            progress(number + 1 - start)
    return pairs


def ratios(pairs: Sequence[Pair], metric: Callable[[Profile], float]) -> list[float]:
    """Return head over base of one metric, a ratio a pair."""
    return [metric(p.head) / metric(p.base) for p in pairs]
