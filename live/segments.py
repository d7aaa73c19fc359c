"""What PyTorch's caching allocator could still give on one GPU: free bytes, the largest block.

A paged KV pool is one allocation and never fragments; what does are the segments beside it, which
activations, workspaces and loads come from. Rules: ``c10/cuda/CUDACachingAllocator.cpp``.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from dispatch.arena import fragmentation

_EVERY_S: Final = 0.05  # a snapshot takes the allocator's lock for some 0.2 ms
_SEGMENT: Final = 2 << 20  # the driver gives whole multiples of 2 MiB


@dataclass(frozen=True, slots=True)
class SegmentView:
    """Bytes that could be given: in all, and as one block."""

    free_bytes: float
    block_bytes: float

    @property
    def fragmentation(self) -> float:
        """1 - largest block / free bytes."""
        return fragmentation(self.free_bytes, self.block_bytes)


def view(segments: Iterable[Mapping[str, Any]], device: int, driver_free: int) -> SegmentView:
    """Return the view of GPU *device* from ``torch.cuda.memory_snapshot()`` and the driver's bytes.

    Free: the driver's and every inactive block. Largest: the driver's in whole segments, or the
    largest inactive block. Blocks wait for no stream but their own: one stream an engine.
    """
    inactive = [
        int(block["size"])
        for segment in segments
        if segment["device"] == device
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
    whole = driver_free // _SEGMENT * _SEGMENT
    return SegmentView(float(driver_free + sum(inactive)), float(max([whole, *inactive])))


class Segments:
    """The view of one GPU, looked at again where it is older than 50 ms."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = int(device.index or 0)
        self._due_s = 0.0
        self._view = SegmentView(0.0, 0.0)

    def view(self) -> SegmentView:
        """Return the latest view."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + _EVERY_S
            free, _ = torch.cuda.mem_get_info(self._device)
            self._view = view(torch.cuda.memory_snapshot(), self._index, free)
        return self._view
