"""What may make one GPU slower than another: recorded beside times that were taken on it."""

from collections.abc import Callable
from typing import Any

from dispatch.errors import InputError


def gpus() -> list[dict[str, Any]]:
    """Return what may make one GPU slower than another; without a GPU, refuse to time one."""
    way_out = "run it where nvidia-smi lists one, with the extra `live`, or leave --path gpu out"
    try:
        import pynvml
        import torch
    except ImportError as missing:
        raise InputError.at("--path gpu", f"{missing.name} is not installed", way_out) from None
    if not torch.cuda.is_available():
        raise InputError.at("--path gpu", "torch sees no CUDA device on this machine", way_out)
    pynvml.nvmlInit()
    try:
        return [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    asked: dict[str, Callable[[], Any]] = {
        "name": lambda: nvml.nvmlDeviceGetName(handle),
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "ecc": lambda: nvml.nvmlDeviceGetEccMode(handle)[0],
        "mig": lambda: nvml.nvmlDeviceGetMigMode(handle)[0],
    }
    found: dict[str, Any] = {}
    for name, ask in asked.items():
        try:
            found[name] = ask()
        except nvml.NVMLError as refusal:
            found[name] = f"not told ({refusal})"
    return found
