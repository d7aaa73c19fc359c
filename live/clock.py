"""When a kernel really began: CUDA events on a GPU, the host clock on a CPU device."""

import time
from typing import Any

import torch


class KernelClock:
    """Marks points in a device's stream and reads them back in seconds of the monotonic clock.

    On CUDA an event is recorded in the current stream and measured against a base event that was
    synchronised with the host clock once; on CPU work runs at once, so the host clock is exact.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._base_s = 0.0
        self._base: Any = None
        if self._cuda:
            self._base = torch.cuda.Event(enable_timing=True)
            self._base.record()
            self._base.synchronize()
            self._base_s = time.monotonic()

    def mark(self) -> Any:
        """Mark this point of the stream."""
        if not self._cuda:
            return time.monotonic()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def time_s(self, mark: Any) -> float:
        """Return the monotonic time of a *mark*, waiting for it where it has not passed."""
        if not self._cuda:
            return float(mark)
        mark.synchronize()
        return self._base_s + float(self._base.elapsed_time(mark)) / 1e3
