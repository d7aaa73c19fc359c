"""From NVML into the graph: which sample belongs to which device, and what of it counts.

Free blocks come from the engine's own arena (NVML cannot see them); NVML adds PCIe use and health.
"""

from collections.abc import Sequence

from dispatch.graph import TopologyGraph
from live.config import LiveDevice
from live.telemetry.nvml import GpuSample


class GpuFeed:
    """Hands samples of *names* (UUIDs, NVML's order) to the devices on those GPUs."""

    def __init__(self, names: Sequence[str], uuids: dict[int, str]) -> None:
        self._at = {device: names.index(uuid) for device, uuid in uuids.items() if uuid in names}
        self._last: Sequence[GpuSample] = ()

    def into(
        self, graph: TopologyGraph, samples: Sequence[GpuSample], origin_s: float, now_s: float
    ) -> None:
        """Write what *samples* say of each device into *graph*; times become the run's own."""
        if samples is self._last:
            return  # the thread has read nothing since
        self._last = samples
        for device, at in self._at.items():
            if at >= len(samples):
                continue
            seen = samples[at]
            if seen.pcie_ratio is not None:
                source_s = seen.source_s["pcie"] - origin_s
                graph.observe_pcie(device, seen.pcie_ratio, source_s)
            if bool(graph.up[device]) != seen.up:
                graph.set_health(device, seen.up, now_s)


def cuda_uuids(devices: Sequence[LiveDevice]) -> dict[int, str]:
    """Return the UUID, as NVML writes it, of each device that is a CUDA device."""
    import torch

    found = {}
    for at, device in enumerate(devices):
        if device.kind == "cuda":
            found[at] = f"GPU-{torch.cuda.get_device_properties(device.index).uuid}"
    return found
