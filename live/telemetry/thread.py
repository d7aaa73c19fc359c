"""NVML on a thread of its own, so that a slow driver call never holds up the door."""

import threading
import time
from collections.abc import Callable, Sequence

from live.telemetry.nvml import GpuSample


class SamplerThread:
    """Calls *read* every *interval_s*; ``latest`` is the newest answer, ``cpu_ratio`` its cost."""

    def __init__(self, read: Callable[[], Sequence[GpuSample]], interval_s: float) -> None:
        self._read = read
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self.begun_s = time.monotonic()
        self._cpu_s = 0.0
        self.latest: Sequence[GpuSample] = ()
        self.samples = 0
        self.late = 0
        self.error = ""

    def __enter__(self) -> "SamplerThread":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(5)

    @property
    def cpu_ratio(self) -> float:
        """Share of one core that sampling has taken so far."""
        return self._cpu_s / max(1e-9, time.monotonic() - self.begun_s)

    def _run(self) -> None:
        due = self.begun_s = time.monotonic()
        while not self._stop.is_set():
            begun = time.thread_time()
            try:
                self.latest = self._read()
            except Exception as error:  # a driver in trouble must not take the door down
                self.error = f"{type(error).__name__}: {error}"
            self.samples += 1
            self._cpu_s += time.thread_time() - begun
            due += self._interval_s
            now = time.monotonic()
            if due < now:
                self.late += 1
                due = now
            self._stop.wait(due - now)
