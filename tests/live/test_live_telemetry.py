"""The NVML sampler, through the real pynvml, against a stand-in library built here from C."""

import ctypes
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_help import door, http, until

from dispatch.errors import NotMeasurable
from dispatch.fleet import DeviceInfo
from dispatch.graph import TopologyGraph
from live.config import LiveDevice
from live.telemetry.counters import CounterRate
from live.telemetry.feed import GpuFeed
from live.telemetry.nvml import Nvml
from live.telemetry.ring import rings
from live.telemetry.thread import SamplerThread

MEMORY, FIELDS, SAMPLES, HANDLE, MIG, LINK, INIT = range(7)
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, TIMEOUT, GPU_IS_LOST = 3, 4, 9, 10, 15
GIB = 1 << 30


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Build the stand-in under NVML's own soname: pynvml's dlopen then finds it already loaded."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no C compiler for the NVML stand-in")
        pytest.skip("no C compiler for the NVML stand-in")
    out = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).parent / "fake_nvml.c"
    flags = ["-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(out), str(source)], check=True)
    return ctypes.CDLL(str(out), mode=ctypes.RTLD_GLOBAL)


class Fake:
    """The library with its argument types told."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def reset(self, count: int = 1) -> None:
        self._library.fake_reset(count)

    def fail(self, gpu: int, call: int, error: int) -> None:
        self._library.fake_fail(gpu, call, error)

    def used(self, gpu: int, size: int) -> None:
        self._library.fake_used(gpu, ctypes.c_ulonglong(size))

    def counter(self, gpu: int, field: int, value: int, kind: int = 3, error: int = 0) -> None:
        self._library.fake_counter(gpu, field, ctypes.c_ulonglong(value), kind, error)

    def mig(self, gpu: int, on: bool) -> None:
        self._library.fake_mig(gpu, int(on))

    def sample(self, gpu: int, stamp_s: float, percent: int) -> None:
        self._library.fake_sample(gpu, ctypes.c_ulonglong(int(stamp_s * 1e6)), percent)

    def calls(self, call: int) -> int:
        return int(self._library.fake_calls(call))


@pytest.fixture
def fake(library: Any) -> Iterator[Fake]:
    found = Fake(library)
    found.reset()
    yield found
    found.reset()


def test_memory_is_read_by_version_2_with_its_source_time(fake: Fake) -> None:
    fake.used(0, 12 * GIB)
    with Nvml() as nvml:
        (seen,) = nvml.sample()
    assert seen.total_bytes == 80 * GIB
    assert seen.reserved_bytes == GIB
    assert seen.free_bytes == 67 * GIB
    assert time.monotonic() - seen.source_s["memory"] < 5


def test_pcie_use_is_the_difference_of_two_counters(fake: Fake) -> None:
    fake.counter(0, 0, 1000)
    with Nvml() as nvml:
        first = nvml.sample()[0]
        time.sleep(0.02)
        fake.counter(0, 0, 1000 + 100_000_000)
        second = nvml.sample()[0]
    assert first.pcie_ratio is None  # one reading is no rate
    assert second.pcie_ratio is not None
    assert 0 < second.pcie_ratio <= 100_000_000 / 0.02 / 63e9 * 1.01  # it slept 20 ms or more


def test_a_32_bit_counter_that_wraps_gives_the_true_rate(fake: Fake) -> None:
    fake.counter(0, 1, (1 << 32) - 1000, kind=1)
    with Nvml() as nvml:
        nvml.sample()
        time.sleep(0.005)
        fake.counter(0, 1, 500_000, kind=1)
        seen = nvml.sample()[0]
    assert seen.pcie_ratio is not None
    assert seen.pcie_ratio < 501_000 / 0.005 / 63e9 * 1.01


def test_only_the_value_that_failed_is_missing(fake: Fake) -> None:
    fake.counter(0, 2, 0, error=NOT_SUPPORTED)
    fake.counter(0, 3, 0, error=NOT_SUPPORTED)
    with Nvml() as nvml:
        nvml.sample()
        time.sleep(0.002)
        fake.counter(0, 0, 5000)
        seen = nvml.sample()[0]
    assert seen.pcie_ratio is not None
    assert seen.nvlink_bytes_per_s is None


def test_nvlink_counters_are_kib(fake: Fake) -> None:
    with Nvml() as nvml:
        before = nvml.sample()[0]
        time.sleep(0.01)
        fake.counter(0, 2, 1000)
        seen = nvml.sample()[0]
    assert "nvlink" not in before.source_s
    assert seen.nvlink_bytes_per_s is not None
    assert 0 < seen.nvlink_bytes_per_s <= 1000 * 1024 / 0.01 * 1.01


def test_utilisation_bears_the_window_of_the_drivers_own_samples(fake: Fake) -> None:
    now = time.time()
    for at, percent in enumerate((20, 40, 60)):
        fake.sample(0, now - 0.6 + 0.2 * at, percent)
    with Nvml() as nvml:
        seen = nvml.sample()[0]
        assert seen.busy_ratio == pytest.approx(0.4)
        assert seen.busy_window_s == pytest.approx(0.4, abs=1e-3)
        assert time.monotonic() - seen.source_s["utilisation"] >= 0.19
        again = nvml.sample()[0]
    assert again.source_s["utilisation"] == seen.source_s["utilisation"]  # no newer than it is


def test_a_lost_gpu_is_down_and_the_others_are_read(fake: Fake) -> None:
    fake.reset(3)
    with Nvml() as nvml:
        assert [s.up for s in nvml.sample()] == [True] * 3
        fake.fail(1, MEMORY, GPU_IS_LOST)
        samples = nvml.sample()
        assert [s.up for s in samples] == [True, False, True]
        assert samples[1].free_bytes is None
        assert nvml.errors == {"NVMLError_GpuIsLost": 1}
        fake.fail(1, MEMORY, 0)
        assert nvml.sample()[1].up


def test_a_gpu_lost_before_the_start_keeps_its_place(fake: Fake) -> None:
    fake.reset(2)
    fake.fail(0, HANDLE, GPU_IS_LOST)
    with Nvml() as nvml:
        assert [s.up for s in nvml.sample()] == [False, True]


@pytest.mark.parametrize("error", [NOT_SUPPORTED, NO_PERMISSION])
def test_what_is_not_supported_is_not_asked_for_again(fake: Fake, error: int) -> None:
    fake.fail(0, FIELDS, error)
    with Nvml() as nvml:
        for _ in range(5):
            seen = nvml.sample()[0]
        assert fake.calls(FIELDS) == 1
        assert nvml.unsupported(0) == {"fields"}
    assert seen.free_bytes is not None
    assert seen.up


def test_a_passing_error_costs_one_sample_only(fake: Fake) -> None:
    with Nvml() as nvml:
        fake.fail(0, MEMORY, TIMEOUT)
        assert nvml.sample()[0].free_bytes is None
        fake.fail(0, MEMORY, 0)
        assert nvml.sample()[0].free_bytes is not None


def test_mig_instances_stand_for_their_card(fake: Fake) -> None:
    fake.mig(0, True)
    with Nvml() as nvml:
        assert nvml.names == ["MIG-0-0", "MIG-0-1"]
        samples = nvml.sample()
        assert [s.total_bytes for s in samples] == [20 * GIB] * 2
        assert nvml.unsupported(0) == {"utilisation", "fields"}
    assert fake.calls(FIELDS) == 0


def test_a_sample_makes_two_calls_a_gpu_however_often_it_is_taken(fake: Fake) -> None:
    fake.reset(8)
    with Nvml() as nvml:
        described = fake.calls(LINK)
        begun = time.monotonic()
        for _ in range(50):
            nvml.sample()
        looks = 1 + (time.monotonic() - begun) // 0.5  # utilisation has a pace of its own
        assert fake.calls(MEMORY) == 50 * 8
        assert fake.calls(FIELDS) == 50 * 8
        assert 8 <= fake.calls(SAMPLES) <= 8 * looks
        assert fake.calls(LINK) == described


def test_a_driver_that_is_not_loaded_is_not_measurable(fake: Fake) -> None:
    fake.fail(0, INIT, DRIVER_NOT_LOADED)
    with pytest.raises(NotMeasurable, match="is an NVIDIA driver loaded"), Nvml():
        pass


def test_the_thread_keeps_the_latest_sample_and_knows_its_cost(fake: Fake) -> None:
    fake.reset(8)
    with Nvml() as nvml, SamplerThread(nvml.sample, 0.005) as thread:
        limit = time.monotonic() + 10
        while thread.samples < 5 and time.monotonic() < limit:
            time.sleep(0.005)
        assert len(thread.latest) == 8
    assert thread.cpu_ratio > 0


def test_a_read_that_raises_does_not_end_the_thread() -> None:
    calls: list[int] = []
    twice = threading.Event()

    def read() -> list[Any]:
        calls.append(1)
        if len(calls) > 1:
            twice.set()
        raise RuntimeError("driver in trouble")

    with SamplerThread(read, 0.001) as thread:
        assert twice.wait(10)
    assert thread.error == "RuntimeError: driver in trouble"


@given(
    start=st.integers(0, 2**32 - 1),
    steps=st.lists(st.integers(0, 2**31), min_size=1, max_size=20),
)
def test_a_wrapping_counter_adds_up_to_what_went_through(start: int, steps: list[int]) -> None:
    rate = CounterRate(max_bytes_per_s=2.0**31)
    rate.update(start, 32, 0.0)
    value, total = start, 0.0
    for at, step in enumerate(steps, 1):
        value = (value + step) % 2**32
        found = rate.update(value, 32, float(at))
        assert found is not None
        total += found
    assert total == sum(steps)


def test_a_gap_in_which_a_counter_may_wrap_twice_gives_no_rate() -> None:
    rate = CounterRate(max_bytes_per_s=25e9)
    rate.update(0, 32, 0.0)
    assert rate.update(5, 32, 0.1) == 50
    assert rate.update(5, 32, 0.4) is None
    assert rate.update(5, 64, 0.5) is None  # another width: another counter
    assert rate.update(6, 64, 0.4) is None  # time must go forward


def test_samples_reach_the_devices_of_their_gpus(fake: Fake) -> None:
    fake.reset(2)
    graph = TopologyGraph([DeviceInfo(name, "cuda", "h100") for name in "abc"])
    with Nvml() as nvml:
        feed = GpuFeed(nvml.names, {0: "GPU-1", 1: "GPU-0", 2: "GPU-9"})
        nvml.sample()
        time.sleep(0.01)
        fake.counter(1, 0, 1_000_000)
        fake.fail(0, MEMORY, GPU_IS_LOST)
        origin_s = time.monotonic() - 1
        feed.into(graph, nvml.sample(), origin_s, 1.0)
    assert graph.pcie[0] > 0
    assert graph.up.tolist() == [True, False, True]
    assert graph.pcie[2] != graph.pcie[2]  # nobody samples the third: unknown, not idle


def test_a_ring_is_of_two_devices_at_least() -> None:
    devices = [LiveDevice(name=n, ring=r) for n, r in zip("abcde", "xx y", strict=False)]
    assert rings([*devices, LiveDevice(name="e")]) == {"x": [0, 1]}


@pytest.mark.slow
def test_a_ring_is_measured_again_and_again_until_a_member_dies_and_the_door_goes_on() -> None:
    devices = [{"name": n, "ring": "r"} for n in "ab"]
    with door(devices=devices, ring_probe_s=0.02) as thread:
        sampler, graph = thread.running.sampler, thread.running.placer.graph
        ((probe, members),) = sampler._rings
        until(lambda: probe.cpu_s > 0, "the ring was not measured a second time")
        assert members == [0, 1]
        assert probe.first_s is not None
        assert 0 < probe.first_s < 1
        thread.call(sampler.sample)
        assert all(0 < ring_s < 1 for ring_s in thread.call(graph.ring.tolist))
        assert not thread.call(lambda: graph.ringless.any())
        page = http.get(f"{thread.url}/metrics").text
        assert 'zerolayer_ring_latency_seconds{device="r"}' in page
        probe._members[0].kill()
        until(lambda: bool(probe.error), "nobody noticed that a member died")
        assert probe.latest is not None
        body = {"model": "tiny", "prompt": "x", "max_tokens": 2}
        assert http.post(f"{thread.url}/v1/completions", json=body).status_code == 200
