"""Time what runs on a device: CUDA graphs and events on a GPU; on a CPU only to try the script."""

import statistics
import time
from collections.abc import Callable

import torch

Work = Callable[[], object]


class Clock:
    """Times work on one device; the median of repeats, warmed up."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cuda = device.type == "cuda"
        self.begin_s = time.monotonic()

    @property
    def spent_s(self) -> float:
        """Seconds since the check began."""
        return time.monotonic() - self.begin_s

    def graph(self, work: Work) -> Work:
        """Return *work* as a CUDA graph to replay; on a CPU the work itself."""
        if not self.cuda:
            return work
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(2):
                work()
        torch.cuda.current_stream(self.device).wait_stream(side)
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        replay: Work = graph.replay
        return replay

    def seconds(self, work: Work, repeats: int = 20) -> float:
        """Return the median time of *work* on the device."""
        work()
        return statistics.median(self._once(work) for _ in range(repeats))

    def _once(self, work: Work) -> float:
        if not self.cuda:
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) * 1e-3

    def host_seconds(self, work: Work, count: int) -> float:
        """Return the host time of one of *count* calls that nothing waits for."""
        work()
        self.wait()
        start = time.perf_counter()
        for _ in range(count):
            work()
        spent = (time.perf_counter() - start) / count
        self.wait()
        return spent

    def wait(self) -> None:
        """Wait until the device is idle."""
        if self.cuda:
            torch.cuda.synchronize(self.device)
