"""Times the simulator on this machine: fixed shapes of trace and fleet, the journal written."""

import gc
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

import traces
from dispatch.config import PolicyConfig
from dispatch.errors import InputError
from dispatch.journal import Journal
from sim import replay
from sim.config import EngineConfig, FleetConfig, ModelConfig, PoolConfig, Setup
from traces import synth
from traces.synthetic import model as trace_model
from traces.trace import Trace

HOUR: Final = "azure-2023-conv"
WEEK_REQUESTS: Final = 27_303_999  # rows of the Azure 2024 conversation week
_LOOP: Final = 2_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A trace on a fleet under a policy, and the bar that it is held against."""

    name: str
    replicas: int
    policy: str
    bar_per_s: float | None = None
    bar_s: float | None = None
    bar_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Timed:
    """What a shape took: processor and wall seconds, events, and the peak memory since start."""

    shape: Shape
    trace: str
    requests: int
    cpu_s: float
    wall_s: float
    events: int
    iterations: int
    peak_bytes: int
    loop_ns: float
    """A bare Python loop, per turn, beside the run: how fast this core was just then."""

    @property
    def per_s(self) -> float:
        """Simulated requests per second of processor time."""
        return self.requests / self.cpu_s

    @property
    def holds(self) -> bool | None:
        """Whether every bar of the shape is met; None where it has none."""
        s = self.shape
        checks = []
        if s.bar_per_s is not None:
            checks.append(self.per_s >= s.bar_per_s)
        if s.bar_s is not None:
            checks.append(self.wall_s <= s.bar_s)
        if s.bar_bytes is not None:
            checks.append(self.peak_bytes <= s.bar_bytes)
        return all(checks) if checks else None


HOUR_ON_8: Final = Shape("the hour on 8 replicas", 8, "topology", 40_000)
HOUR_ON_8_LEAST: Final = Shape("the hour on 8 replicas", 8, "least_requests", 20_000)
FLEET_OF_1000: Final = Shape("1,000 replicas", 1000, "least_requests", 25_000)
FLEET_OF_4000: Final = Shape(
    "30,000 requests/s for 60 s, 4,000 GPUs", 4000, "least_requests", None, 150.0, 4 * 2.0**30
)
WEEK: Final = Shape("a week, 27.3 million requests, in parts", 96, "least_requests", None, None,
                    4 * 2.0**30)  # fmt: skip


def setup(replicas: int, policy: str, gpu: str = "A100-80G", model: str = "llama-3.1-8b") -> Setup:
    """Return *replicas* of one GPU under *policy*, paged KV and fused kernels, a direct door."""
    return Setup(
        model=ModelConfig(name=model),
        fleet=FleetConfig(pools=(PoolConfig(name="all", gpu=gpu, count=replicas),)),
        policy=PolicyConfig(name=policy),
        engine=EngineConfig(),
        device_window_s=1.0 if replicas <= 100 else 10.0,
    )


def hour() -> Trace:
    """Return the public hour, or the generated one of the same statistics where it is absent."""
    try:
        return traces.read(HOUR)
    except InputError:
        return replace(synth.generate(HOUR, seed=1), name=f"generated:{HOUR}")


def at_rate(
    rate_per_s: float, duration_s: float, seed: int = 1, daily: float = 0.0
) -> Iterator[Trace]:
    """Yield a Poisson stream with the lengths of the Azure 2023 conversation model, in parts.

    *daily* is the swing of a daily sine as a share of the mean rate.
    """
    arrivals = {
        "process": "poisson", "cv": 1.0, "rate_per_s": rate_per_s, "profile": [],
        "diurnal_amplitude": daily,
    }  # fmt: skip
    chosen = trace_model(HOUR, {
        "arrivals": arrivals, "requests": round(rate_per_s * duration_s), "duration_s": duration_s,
    })  # fmt: skip
    yield from synth.chunks(chosen, seed)


def loop_ns() -> float:
    """Return the processor nanoseconds of one turn of a bare Python loop."""
    total = 0
    began = time.process_time()
    for i in range(_LOOP):
        total += i
    return (time.process_time() - began) / _LOOP * 1e9


def timed(
    shape: Shape,
    trace: Callable[[], Any],
    name: str,
    *,
    rounds: int = 1,
    progress: Callable[[int], None] | None = None,
    set_up: Setup | None = None,
) -> Timed:
    """Return the best of *rounds* runs of *shape* on what *trace* gives."""
    best: Timed | None = None
    for seed in range(rounds):
        rows = [0]

        def sink(table: str, columns: Any, rows: list[int] = rows) -> None:
            if table == "requests":
                rows[0] += len(columns["request"])

        journal = Journal(sink)
        offered = trace()
        gc.collect()
        loop = loop_ns()
        cpu, wall = time.process_time(), time.perf_counter()
        facts = replay(
            offered, set_up or setup(shape.replicas, shape.policy), seed, journal, progress=progress
        )
        journal.close()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        assert rows[0] == facts.offered
        run = Timed(
            shape, name, facts.offered, cpu, wall, facts.events, facts.iterations, peak_bytes(),
            (loop + loop_ns()) / 2,
        )  # fmt: skip
        if best is None or run.cpu_s < best.cpu_s:
            best = run
    assert best is not None
    return best


def peak_bytes() -> int:
    """Return the most memory that this process has held."""
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def by_output(lengths: tuple[int, ...] = (8, 32, 128, 512, 2048)) -> list[tuple[int, float]]:
    """Return (output tokens, microseconds a request) at a load that keeps batches alike."""
    found = []
    for output in lengths:
        arrival = np.arange(4000, dtype=np.float64) * (0.005 + 0.0004 * output)
        trace = Trace(arrival, np.full(4000, 500, np.int32), np.full(4000, output, np.int32))
        shape = Shape(f"{output} tokens", 8, "round_robin")
        set_up = setup(8, "round_robin").model_copy(update={"max_tokens_default": 4096})
        run = timed(shape, lambda t=trace: t, "even", rounds=3, set_up=set_up)  # type: ignore[misc]
        found.append((output, run.cpu_s / run.requests * 1e6))
    return found


def by_fleet(counts: tuple[int, ...] = (8, 64, 512, 4096)) -> list[tuple[int, float, float]]:
    """Return (replicas, microseconds a request, of which the decision) at equal load a replica."""
    from zerolayer import decisions

    found = []
    for count in counts:
        requests = max(8000, 5 * count)
        rate = 0.7 * count
        offered = list(at_rate(rate, requests / rate))
        shape = Shape(f"{count} replicas", count, "least_requests")
        run = timed(shape, lambda o=offered: iter(o), "Poisson", rounds=2)  # type: ignore[misc]
        decision_us = decisions.measure("least_requests", count, 0.2).p50_us
        found.append((count, run.cpu_s / run.requests * 1e6, decision_us))
    return found
