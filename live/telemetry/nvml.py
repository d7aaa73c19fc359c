"""NVML through the module ``pynvml``: one reading of each signal of each GPU, errors mapped.

Only cheap calls: memory v2 and field values (PCIe and NVLink counters) each time, utilisation
samples at their own pace. Never process queries (they hold the driver's lock) nor
``nvmlDeviceGetPcieThroughput`` (blocks 20 ms).
Sources: nvml.h and the measurements quoted in NVML's issue trackers; see docs/live.md.
"""

import ctypes
import time
from dataclasses import dataclass, field
from typing import Any, Final

from dispatch.errors import NotMeasurable
from live.telemetry.calls import Calls
from live.telemetry.counters import CounterRate

PCIE_TX: Final = 197  # NVML_FI_DEV_PCIE_COUNT_TX_BYTES
PCIE_RX: Final = 198
NVLINK_TX: Final = 138  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, KiB
NVLINK_RX: Final = 139
_ALL_LINKS: Final = 0xFFFFFFFF
_FIELDS: Final = ((PCIE_TX, 0), (PCIE_RX, 0), (NVLINK_TX, _ALL_LINKS), (NVLINK_RX, _ALL_LINKS))
_PCIE: Final = (PCIE_TX, PCIE_RX)
# Bytes per second and lane, one direction, of PCIe generations 1 to 6 (PCI-SIG base specification).
_LANE: Final = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
_NVLINK_MAX: Final = 1.0e12  # above any GPU of this decade; bounds how fast a counter can wrap
# The driver refreshes utilisation every 1/6 to 1 s (nvml.h) and keeps its samples until asked.
_UTILISATION_EVERY_S: Final = 0.5


@dataclass(slots=True)
class GpuSample:
    """What NVML says of one GPU (or MIG instance); None where it does not say.

    ``source_s`` holds the monotonic source time of each signal that is there.
    """

    name: str
    up: bool = True
    total_bytes: float | None = None
    free_bytes: float | None = None
    reserved_bytes: float | None = None
    pcie_ratio: float | None = None
    nvlink_bytes_per_s: float | None = None
    busy_ratio: float | None = None
    busy_window_s: float | None = None
    source_s: dict[str, float] = field(default_factory=dict)
    error: str = ""


@dataclass(slots=True)
class _Gpu:
    handle: Any
    name: str
    calls: Calls | None = None
    mig: bool = False
    link_bytes_per_s: float = 0.0
    unsupported: set[str] = field(default_factory=set)
    rates: dict[int, CounterRate] = field(default_factory=dict)
    lost: bool = False
    utilisation_seen_us: int = 0
    utilisation: tuple[float, float, float] | None = None  # ratio, window, source time
    utilisation_due_s: float = 0.0


class Nvml:
    """The GPUs of this machine; a context manager around NVML's init and shutdown."""

    def __init__(self) -> None:
        self.errors: dict[str, int] = {}
        self._epoch_s = 0.0
        self._gpus: list[_Gpu] = []
        self._reads = (
            ("memory", self._memory),
            ("fields", self._fields),
            ("utilisation", self._utilisation),
        )

    def __enter__(self) -> "Nvml":
        try:
            import pynvml
        except ImportError:
            raise NotMeasurable("pynvml is not installed; pip install nvidia-ml-py") from None
        self._api: Any = pynvml
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise NotMeasurable(f"NVML: {error}; is an NVIDIA driver loaded?") from None
        self._bits = {
            pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: 32,
            pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: 8 * ctypes.sizeof(ctypes.c_ulong),
        }
        for index in range(pynvml.nvmlDeviceGetCount()):
            self._gpus += self._open(index)
        return self

    def __exit__(self, *error: object) -> None:
        self._api.nvmlShutdown()

    @property
    def names(self) -> list[str]:
        """Return the UUIDs of what is sampled, in order."""
        return [gpu.name for gpu in self._gpus]

    def unsupported(self, index: int) -> frozenset[str]:
        """Return the signals that this GPU does not support."""
        return frozenset(self._gpus[index].unsupported)

    def _open(self, index: int) -> list[_Gpu]:
        """Return one GPU, or its MIG instances: with MIG on the whole card's figures mislead."""
        api = self._api
        try:
            handle = api.nvmlDeviceGetHandleByIndex(index)
        except api.NVMLError as error:
            self._count(error)
            return [_Gpu(None, f"gpu{index}", lost=True)]
        try:
            mig_on = api.nvmlDeviceGetMigMode(handle)[0] == 1
        except api.NVMLError:
            mig_on = False
        if not mig_on:
            return [self._describe(handle, mig=False)]
        found = []
        for slot in range(api.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                found.append(api.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot))
            except api.NVMLError:
                continue  # an empty slot
        return [self._describe(one, mig=True) for one in found]

    def _describe(self, handle: Any, *, mig: bool) -> _Gpu:
        api = self._api
        uuid = api.nvmlDeviceGetUUID(handle)
        name = uuid if isinstance(uuid, str) else uuid.decode()
        gpu = _Gpu(handle, name, Calls(api, handle, _FIELDS), mig)
        if mig:
            gpu.unsupported |= {"utilisation", "fields"}  # the counters are the whole card's
            return gpu
        try:
            generation = api.nvmlDeviceGetCurrPcieLinkGeneration(handle)
            gpu.link_bytes_per_s = _LANE.get(generation, 0.0) * api.nvmlDeviceGetCurrPcieLinkWidth(
                handle
            )
        except api.NVMLError as error:
            self._count(error)
        pcie_max = 2 * gpu.link_bytes_per_s or 256e9
        for field_id, _ in _FIELDS:
            gpu.rates[field_id] = CounterRate(pcie_max if field_id in _PCIE else _NVLINK_MAX)
        return gpu

    def sample(self) -> list[GpuSample]:
        """Read everything once; a GPU that fails is marked, the others are read all the same."""
        self._epoch_s = time.time() - time.monotonic()  # each time: the wall clock may be set
        return [self._sample(gpu) for gpu in self._gpus]

    def _sample(self, gpu: _Gpu) -> GpuSample:
        sample = GpuSample(gpu.name, up=not gpu.lost)
        if gpu.handle is None:
            return sample
        for signal, read in self._reads:
            if signal in gpu.unsupported:
                continue
            try:
                read(gpu, sample)
                gpu.lost = False if signal == "memory" else gpu.lost
            except self._api.NVMLError as error:
                self._failed(gpu, sample, signal, error)
        sample.up = not gpu.lost
        return sample

    def _failed(self, gpu: _Gpu, sample: GpuSample, signal: str, error: Any) -> None:
        api = self._api
        self._count(error)
        sample.error = str(error)
        if error.value in (
            api.NVML_ERROR_GPU_IS_LOST,
            api.NVML_ERROR_RESET_REQUIRED,
            api.NVML_ERROR_UNINITIALIZED,
        ):
            gpu.lost = True
            for rate in gpu.rates.values():
                rate.forget()
        elif error.value in (
            api.NVML_ERROR_NOT_SUPPORTED,
            api.NVML_ERROR_FUNCTION_NOT_FOUND,
            api.NVML_ERROR_NO_PERMISSION,
        ):
            gpu.unsupported.add(signal)  # it will not become supported; do not ask again
        # what is left (TIMEOUT, IRQ_ISSUE, UNKNOWN) may pass: this sample lacks the signal

    def _memory(self, gpu: _Gpu, sample: GpuSample) -> None:
        assert gpu.calls is not None
        total, reserved, free, _ = gpu.calls.memory()
        sample.total_bytes, sample.free_bytes = float(total), float(free)
        sample.reserved_bytes = float(reserved)
        sample.source_s["memory"] = time.monotonic()

    def _fields(self, gpu: _Gpu, sample: GpuSample) -> None:
        assert gpu.calls is not None
        pcie, nvlink = 0.0, 0.0
        source_s, rates, epoch_s = sample.source_s, gpu.rates, self._epoch_s
        for field_id, _, stamp_us, _, kind, error, raw in gpu.calls.fields():
            if error:  # each value has a return code of its own
                continue
            bits = self._bits.get(kind, 64)
            stamp_s = stamp_us / 1e6 - epoch_s if stamp_us else time.monotonic()
            rate = rates[field_id].update(raw, bits, stamp_s)
            if rate is None:
                continue
            if field_id in _PCIE:
                pcie = max(pcie, rate)
                source_s["pcie"] = stamp_s
            else:
                nvlink += rate * 1024
                source_s["nvlink"] = stamp_s
        if gpu.link_bytes_per_s and "pcie" in source_s:
            sample.pcie_ratio = min(1.0, pcie / gpu.link_bytes_per_s)
        if "nvlink" in sample.source_s:
            sample.nvlink_bytes_per_s = nvlink

    def _utilisation(self, gpu: _Gpu, sample: GpuSample) -> None:
        now = time.monotonic()
        if now >= gpu.utilisation_due_s:
            gpu.utilisation_due_s = now + _UTILISATION_EVERY_S
            self._read_utilisation(gpu)
        if gpu.utilisation is not None:
            sample.busy_ratio, sample.busy_window_s, source_s = gpu.utilisation
            sample.source_s["utilisation"] = source_s

    def _read_utilisation(self, gpu: _Gpu) -> None:
        """Mean of the driver's own samples since the last look; the window is what they span."""
        api = self._api
        try:
            _, found = api.nvmlDeviceGetSamples(
                gpu.handle, api.NVML_GPU_UTILIZATION_SAMPLES, gpu.utilisation_seen_us
            )
        except api.NVMLError as error:
            if error.value == api.NVML_ERROR_NOT_FOUND:
                return  # none since the last look
            raise
        fresh = [s for s in found if s.timeStamp > gpu.utilisation_seen_us]
        if not fresh:
            return
        first, last = fresh[0].timeStamp, fresh[-1].timeStamp
        begun = gpu.utilisation_seen_us or first
        gpu.utilisation_seen_us = last
        mean = sum(s.sampleValue.uiVal for s in fresh) / len(fresh) / 100
        gpu.utilisation = (mean, (last - begun) / 1e6, last / 1e6 - self._epoch_s)

    def _count(self, error: Any) -> None:
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1
