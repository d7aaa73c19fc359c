"""The harness that a fresh process runs on either side of a pair; always head's own copy.

Reads words from stdin, answers one JSON line each: ``ready`` (hash of the decision stream),
``warm``, ``profile`` (nanoseconds of every decision, collector off), ``cpu`` (thread CPU of a
pass, collector on), ``counters`` (candidates and allocations per decision).
"""

import gc
import hashlib
import importlib
import importlib.util
import json
import random
import statistics
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DEVICES = 64
DECISIONS = {
    "decisions": 500,
    "door": 64,
    "gpu": 64,
}  # a request takes about a hundred times as long
SEED = 7
LIVE = 24  # requests in flight before the oldest finishes
SAMPLE_EVERY = (
    250  # decisions between two samples: rarer than one in a hundred, so p99 is a decision
)

Event = tuple[str, float, Any]


def use_tree(tree: Path) -> None:
    """Make *tree* the place that imports come from; a foreign tree borrows this core."""
    ours = (tree / "dispatch" / "dispatcher.py").exists()
    home = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(tree)] if ours else [str(tree), str(tree / "src"), str(home)]
    core = importlib.import_module("dispatch.dispatcher")
    found = Path(core.__file__ or "").resolve()
    wanted = (tree if ours else home).resolve()
    if not found.is_relative_to(wanted):
        raise ImportError(f"dispatch was imported from {found}, not from {wanted}")


def policy_maker(tree: Path, name: str, params: Mapping[str, Any]) -> Callable[[], Any]:
    """Return what makes policy *name*: an entry point declared in the tree, else a registered one.

    The tree's own declaration wins over what is installed: the base commit's class is timed as the
    base commit has it.
    """
    registry = importlib.import_module("dispatch.registry")
    project = tree / "pyproject.toml"
    declared: dict[str, str] = {}
    if project.exists():
        table = tomllib.loads(project.read_text()).get("project", {}).get("entry-points", {})
        declared = table.get("zerolayer.policies", {})
    if name in declared:
        module, _, attribute = declared[name].partition(":")
        kind = getattr(importlib.import_module(module), attribute)
        return lambda: registry.build(kind, name, dict(params), seed=SEED)
    return lambda: registry.policy(name, dict(params), seed=SEED)


def record_stream(decisions: int) -> list[Event]:
    """Return the stream of *decisions*: samples, submissions, starts and finishes, in order."""
    draw = random.Random(SEED)
    events: list[Event] = []
    now = 0.0
    for i in range(decisions):
        now += draw.expovariate(2000.0)
        if i % SAMPLE_EVERY == 0:
            free = [draw.uniform(4e9, 40e9) for _ in range(DEVICES)]
            events.append(("memory", now, (free, [f * draw.uniform(0.3, 1) for f in free])))
            events.append(("ring", now, ([draw.uniform(8e-6, 3e-5) for _ in range(DEVICES)],)))
            events.append(("pcie", now, ([draw.random() for _ in range(DEVICES)],)))
        prompt, output = int(draw.lognormvariate(6.6, 1)) + 1, draw.randint(16, 1024)
        events.append(("submit", now, (i, min(prompt, 3000), output)))
        if i >= 1:
            events.append(("started", now, (i - 1,)))
        if i >= LIVE:
            events.append(("finished", now, (i - LIVE,)))
    return events


def beside(name: str) -> Any:
    """Return the module *name* that lies beside this file: the harness is head's on both sides."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Harness:
    """Replays the stream through a new dispatcher each pass."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        self.tree = Path(job["tree"])
        self.job = job
        use_tree(self.tree)
        self.decisions = DECISIONS[job["path"]]
        self.events = record_stream(self.decisions)
        self.hash = hashlib.sha256(repr(self.events).encode()).hexdigest()
        self.request = importlib.import_module("dispatch.request").Request
        self.policy = policy_maker(self.tree, job["policy"], job["params"])
        self.door = beside("worker_door").DoorPath() if job["path"] == "door" else None
        self.gpu = beside("worker_gpu").GpuPath() if job["path"] == "gpu" else None
        self.passes = 0
        self.candidates = 0.0

    def dispatcher(self) -> tuple[Any, Any, Any, list[float]]:
        """Return (dispatcher, graph, journal, clock cell), all new."""
        graph_module = importlib.import_module("dispatch.graph")
        journal_module = importlib.import_module("dispatch.journal")
        devices = [
            graph_module.DeviceInfo(
                name=f"gpu{i}",
                pool=f"pool{i % 4}",
                gpu="H100-80G",
                gpus=1 + i % 2,
                weight=1 + i % 3,
                total_bytes=80e9,
                kv_bytes_per_token=131072.0,
                reserve_output=True,
                capacity_tokens=300_000,
            )
            for i in range(DEVICES)
        ]
        graph = graph_module.TopologyGraph(devices)
        clock = [0.0]
        journal = journal_module.Journal(self.count, arm="gate", replicate=0)
        core = importlib.import_module("dispatch.dispatcher")
        made = core.Dispatcher(
            self.policy(),
            graph,
            lambda: clock[0],
            journal=journal,
            hold_limit=self.decisions,
            seed=SEED,
        )
        return made, graph, journal, clock

    def count(self, table: str, columns: Mapping[str, Any]) -> None:
        """Journal sink: keeps the mean number of candidates of the decisions."""
        if table == "decisions":
            self.candidates = statistics.fmean(float(c) for c in columns["candidates"])

    def run(self, step: Callable[[int, Callable[[Any], Any], Any], None]) -> int:
        """Run one pass and return its CPU in ns; *step* is handed every submission.

        The CPU is this thread's, or the process's where the door serves in another thread. What
        is not the dispatcher's work (building it, making requests) lies outside the clock.
        """
        made, graph, journal, clock = self.dispatcher()
        request = self.request
        asked = [
            request(int(a[0]), now, int(a[1]), int(a[2]))
            for kind, now, a in self.events
            if kind == "submit"
        ]
        everyone = importlib.import_module("numpy").arange(DEVICES)
        submit = self.door.wrap(made.submit) if self.door else made.submit
        cpu_ns = time.process_time_ns if self.door else time.thread_time_ns
        began = cpu_ns()
        for kind, now, args in self.events:
            clock[0] = now
            if kind == "submit":
                step(args[0], submit, asked[args[0]])
            elif kind in ("started", "finished"):
                getattr(made, kind)(args[0])
            else:
                graph.observe_many(kind, everyone, args, now)
        took = cpu_ns() - began
        journal.close()
        return took

    def timed(self, times: list[int]) -> Callable[[int, Callable[[Any], Any], Any], None]:
        """Return a step that appends each submission's nanoseconds, injected slowness included."""
        slow = self.slowness()
        clock = time.perf_counter_ns

        def step(number: int, submit: Callable[[Any], Any], asked: Any) -> None:
            start = clock()
            submit(asked)
            took = clock() - start
            if extra := slow(number):
                until = start + int(took * (1 + extra))
                while clock() < until:
                    pass
                took = clock() - start
            times.append(took)

        return step

    def profile(self) -> list[int]:
        """Return the nanoseconds of every decision of one pass, the collector off."""
        times: list[int] = []
        gc.collect()
        gc.disable()
        try:
            if self.gpu:
                return list(self.gpu.run()[0])
            self.run(self.timed(times))
        finally:
            gc.enable()
        return times

    def cpu(self) -> int:
        """Return the CPU nanoseconds of one pass, the collector on."""
        gc.collect()
        if self.gpu:
            return int(self.gpu.run()[1])
        return self.run(self.timed([]))

    def slowness(self) -> Callable[[int], float]:
        """Return the injected extra share of each decision's time, for the gate's own tests."""
        self.passes += 1
        kind = self.job.get("inject", "none")
        if kind == "none":
            return lambda i: 0.0
        if kind == "ten":
            return lambda i: 0.10
        if kind == "tail":
            return lambda i: 0.60 if i % 50 == 7 else 0.0
        if kind == "spike":
            hit = set(
                random.Random(self.passes).sample(
                    range(self.decisions), max(1, self.decisions // 100)
                )
            )
            return lambda i: 10.0 if i in hit else 0.0
        raise ValueError(f"unknown injection {kind!r}: none, ten, tail, spike")

    def counters(self) -> dict[str, float]:
        """Return candidates scored and memory blocks allocated per decision."""
        blocks = 0

        def counted(number: int, submit: Callable[[Any], Any], asked: Any) -> None:
            nonlocal blocks
            before = sys.getallocatedblocks()
            submit(asked)
            blocks += sys.getallocatedblocks() - before

        gc.collect()
        gc.disable()
        self.run(counted)
        gc.enable()
        return {"candidates": self.candidates, "blocks": blocks / self.decisions}


def main() -> None:
    harness = Harness(json.loads(sys.argv[1]))
    for line in sys.stdin:
        word = line.strip()
        answer: dict[str, Any] = {}
        if word == "ready":
            harness.dispatcher()  # what is imported late is imported now
            gc.collect()
            gc.freeze()  # the libraries' own objects are no part of a pass's collections
            answer = {"stream": harness.hash}
        elif word == "warm":
            harness.profile()
            harness.profile()
        elif word == "profile":
            answer = {"ns": harness.profile()}
        elif word == "cpu":
            answer = {"ns": harness.cpu()}
        elif word == "counters":
            answer = harness.counters()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
