"""Times decisions of the dispatcher core on this machine, without any world around it."""

import gc
import os
import platform
import statistics
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dispatch import registry
from dispatch.dispatcher import Dispatcher
from dispatch.fleet import Ints
from dispatch.graph import DeviceInfo, TopologyGraph
from dispatch.journal import Journal
from dispatch.legacy import LegacyRouter
from dispatch.legacy.policy import legacy_devices, legacy_policy
from dispatch.policy import Policy
from dispatch.request import Request

ROUNDS = 5
FEW_ROUNDS = 3  # where many policies are measured, the building of rounds would take most time
INTERVAL_S = 0.05  # between two telemetry samples
RATE = 2000.0  # decisions per simulated second
GPUS = ("H100-80G", "H100-80G", "H100-80G", "A100-80G")


@dataclass(frozen=True, slots=True)
class Row:
    """One policy at one fleet size; times in microseconds."""

    policy: str
    devices: int
    p50_us: float
    p99_us: float
    raw_p50_us: float
    raw_p99_us: float
    floor_us: float
    decisions: int
    peak_bytes: int
    kept_blocks: float
    rounds: int


@cache
def fleet(count: int, mixed: bool = False) -> list[DeviceInfo]:
    """Return *count* replicas of one and two GPUs in four pools; *mixed*: of two KV precisions."""
    return [
        DeviceInfo(
            name=f"r{i}",
            pool=f"pool{i % 4}",
            gpu=GPUS[i % 4],
            gpus=1 + i % 2,
            weight=1 + i % 3,
            total_bytes=80e9,
            kv_bytes_per_token=65536.0 if mixed and i % 2 else 131072.0,
            reserve_output=True,
            capacity_tokens=300_000,
            speed_tokens_per_s=2000.0 + 500.0 * (i % 4),
        )
        for i in range(count)
    ]


@cache
def _stream_of(count: int) -> list[Request]:
    """Return *count* requests of log-normal prompts, every third of a shared head."""
    lengths = np.random.default_rng(7).lognormal(6.6, 1.0, count)
    prompts = np.minimum(lengths.astype(int) + 1, 3000)
    outputs = np.random.default_rng(8).integers(16, 1024, count)
    made = []
    for i in range(count):
        head = i % 3 if i % 3 else 1000 + i
        blocks = (head, *range(10_000 + 8 * i, 10_000 + 8 * i + int(prompts[i]) // 512))
        made.append(
            Request(
                i,
                i / RATE,
                int(prompts[i]),
                int(outputs[i]),
                session=i % 997,
                block_hashes=blocks,
            )
        )
    return made


def requests(count: int) -> list[Request]:
    """Return the first *count* requests of one and the same stream."""
    return _stream_of(1 << (max(1024, count) - 1).bit_length())[:count]


class Stream:
    """One pass over a stream of requests: a dispatcher with a steady number in flight."""

    def __init__(self, name: str, count: int, mixed: bool = False) -> None:
        infos = fleet(count, mixed)
        self.router: LegacyRouter | None = None
        if name == "legacy":
            self.router = LegacyRouter()
            infos = legacy_devices(self.router, infos)
        self.graph = TopologyGraph(infos)
        policy: Policy
        if self.router is not None:
            policy = legacy_policy(self.router, infos)
        else:
            policy = registry.policy(name, seed=7)
        if hasattr(policy, "output_tokens"):  # the oracle is told the future
            policy.output_tokens = lambda request: request.max_tokens // 2
        self.now = 0.0
        self.dispatcher = Dispatcher(
            policy, self.graph, lambda: self.now, journal=Journal(lambda *_: None), hold_limit=64
        )
        self.devices: Ints = np.arange(count)
        self.draw = np.random.default_rng(11)
        self.live: deque[int] = deque()
        self.limit = min(3 * count, 512)
        self.sampled_s = -1.0

    def sample(self) -> None:
        """Deliver a telemetry sample of every signal for every device."""
        graph, count, now = self.graph, len(self.devices), self.now
        free = self.draw.uniform(4e9, 4e10, count)
        block = free * self.draw.uniform(0.3, 1, count)
        graph.observe_many("memory", self.devices, (free, block), now)
        graph.observe_many("ring", self.devices, (self.draw.uniform(8e-6, 3e-5, count),), now)
        graph.observe_many("pcie", self.devices, (self.draw.random(count),), now)
        queue = (self.draw.integers(0, 9, count), self.draw.integers(1, 64, count))
        graph.observe_many("queue", self.devices, queue, now)
        kv = (self.draw.random(count), self.draw.integers(500, 9000, count))
        graph.observe_many("kv", self.devices, kv, now)
        self.sampled_s = now

    def decide(self, request: Request) -> int:
        """Place *request* and end the oldest one; return the nanoseconds of both."""
        self.now = request.arrival_s
        if self.now - self.sampled_s >= INTERVAL_S:
            self.sample()
        dispatcher, router, live = self.dispatcher, self.router, self.live
        oldest = live.popleft() if len(live) >= self.limit else -1
        clock = time.perf_counter_ns
        begin = clock()
        if router is not None:
            router.translate(request)
        dispatcher.submit(request)
        dispatcher.started(request.id)
        if oldest >= 0:
            dispatcher.finished(oldest)
        took = clock() - begin
        if request.id in dispatcher.flights:
            live.append(request.id)
        return took


def _filled(name: str, count: int, mixed: bool = False) -> tuple[Stream, int]:
    """Return a stream with its steady number in flight, and the id of the next request."""
    stream = Stream(name, count, mixed)
    warm = requests(stream.limit + 50)
    for request in warm:
        stream.decide(request)
    return stream, len(warm)


def measure(
    name: str, count: int, seconds: float, mixed: bool = False, rounds: int = ROUNDS
) -> Row:
    """Return the row of policy *name* over *count* devices, in about *seconds* of decisions."""
    stream, first = _filled(name, count, mixed)
    probe = requests(first + 50)[first:]
    each = statistics.median(stream.decide(r) for r in probe) / 1e9
    decisions = int(min(max(seconds / rounds / max(each, 1e-9), 200), 5000))
    taken = []
    floors = []
    for _ in range(rounds):
        taken.append(_round(name, count, decisions, mixed))
        floors.append(floor_us(count))
    peak, kept = _allocated(stream, first + len(probe))
    best = np.min(taken, axis=0) / 1e3
    raw = np.concatenate(taken) / 1e3
    return Row(
        policy=name,
        devices=count,
        p50_us=round(float(np.percentile(best, 50)), 3),
        p99_us=round(float(np.percentile(best, 99)), 3),
        raw_p50_us=round(float(np.percentile(raw, 50)), 3),
        raw_p99_us=round(float(np.percentile(raw, 99)), 3),
        floor_us=round(min(floors), 3),
        decisions=decisions,
        peak_bytes=peak,
        kept_blocks=kept,
        rounds=rounds,
    )


def _round(name: str, count: int, decisions: int, mixed: bool) -> list[int]:
    stream, first = _filled(name, count, mixed)
    todo = requests(first + decisions)[first:]
    gc.collect()
    return [stream.decide(r) for r in todo]


def floor_us(count: int) -> float:
    """Return the microseconds of one numpy argmax over *count* devices."""
    column = np.random.default_rng(3).random(count)
    argmax: Callable[[], Any] = column.argmax
    clock = time.perf_counter_ns
    times = []
    for _ in range(200):
        begin = clock()
        argmax()
        times.append(clock() - begin)
    return statistics.median(times) / 1e3


def allocations(name: str, count: int, mixed: bool = False) -> tuple[int, float]:
    """Return the most bytes allocated within one decision, and the blocks kept per decision."""
    return _allocated(*_filled(name, count, mixed))


def _allocated(stream: Stream, first: int, decisions: int = 100) -> tuple[int, float]:
    """Do :func:`allocations` on a filled stream; *first* is the id of its next request."""
    todo = requests(first + 2 * decisions)[first:]
    peaks = []
    tracemalloc.start()
    for request in todo[:decisions]:
        stream.now = request.arrival_s
        if stream.now - stream.sampled_s >= INTERVAL_S:
            stream.sample()  # outside: a sample is not a decision
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        stream.decide(request)
        peaks.append(tracemalloc.get_traced_memory()[1] - before)
    tracemalloc.stop()
    before = sys.getallocatedblocks()
    for request in todo[decisions:]:
        stream.decide(request)
    return int(statistics.median(peaks)), (sys.getallocatedblocks() - before) / decisions


def sampling_ratio(count: int, samples: int = 40) -> dict[str, float]:
    """Return the share of one core that sampling *count* devices every 50 ms takes here.

    All five signals each time; values are drawn beforehand, so that only the graph is timed.
    """
    graph = TopologyGraph(fleet(count))
    draw = np.random.default_rng(5)
    devices = np.arange(count)
    free = draw.uniform(4e9, 4e10, (samples, count))
    ratio = draw.random((samples, count))
    whole = draw.integers(1, 64, (samples, count)).astype(float)
    times = []
    for i in range(samples):
        now = INTERVAL_S * (i + 1)
        begin = time.thread_time_ns()
        graph.observe_many("memory", devices, (free[i], free[i] * 0.5), now)
        graph.observe_many("ring", devices, (ratio[i] * 1e-5,), now)
        graph.observe_many("pcie", devices, (ratio[i],), now)
        graph.observe_many("queue", devices, (whole[i], whole[i]), now)
        graph.observe_many("kv", devices, (ratio[i], whole[i]), now)
        times.append(time.thread_time_ns() - begin)
    each_s = statistics.median(times) / 1e9
    return {
        "devices": count,
        "interval_ms": INTERVAL_S * 1e3,
        "cpu_ms": round(each_s * 1e3, 4),
        "core_ratio": round(each_s / INTERVAL_S, 5),
    }


def machine() -> dict[str, Any]:
    """Return what the figures were measured on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "load_1min": load,
    }
