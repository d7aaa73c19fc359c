"""What the worker times on ``--path gpu``: a recorded launch stream, by CUDA events.

The stream is the tree's own engine serving the same jobs each pass: prefill, mixed and decode
iterations of a small Llama with random weights. One sample is one iteration between two events on
the device's clock, so that what the host does meanwhile does not count.
"""

import importlib
import random
import time
from collections.abc import Callable
from typing import Any

JOBS = 24
SEED = 7
KV_BYTES = 256 << 20


class GpuPath:
    """An engine on *device* and the jobs that every pass submits to it."""

    def __init__(self, device: str = "cuda", model: str = "tiny") -> None:
        self.torch = importlib.import_module("torch")
        self.sequence = importlib.import_module("live.sequence")
        self.device = device
        self.model = importlib.import_module("live.model").load_model(model, SEED, device)
        self.limits = importlib.import_module("live.config").LiveEngine()
        self.engine = importlib.import_module("live.engine").Engine
        draw = random.Random(SEED)
        vocab = self.model.shape.vocab
        self.prompts = [
            [draw.randrange(vocab) for _ in range(draw.randint(8, 256))] for _ in range(JOBS)
        ]
        self.outputs = [draw.randint(4, 32) for _ in range(JOBS)]

    def run(self) -> tuple[list[int], int]:
        """Serve the jobs; return each iteration's nanoseconds and the host's CPU nanoseconds."""
        events: list[Any] = []
        engine = self.engine(self.model, self.limits, KV_BYTES, lambda told: events.extend(told))
        for number, prompt in enumerate(self.prompts):
            engine.submit(self.sequence.Job(number, prompt, self.outputs[number]))
        marks = []
        began = time.thread_time_ns()
        while engine.busy:
            marks.append(self._timed(engine.step))
        cpu = time.thread_time_ns() - began
        bad = [e for e in events if e.is_end and e.kind != self.sequence.Kind.finished]
        if bad:
            raise RuntimeError(f"job {bad[0].id} ended as {bad[0].kind.name}: {bad[0].reason}")
        return [self._nanoseconds(mark) for mark in marks], cpu

    def _timed(self, step: Callable[[], None]) -> tuple[Any, Any]:
        if self.device == "cpu":
            began = time.perf_counter_ns()
            step()
            return began, time.perf_counter_ns()
        first, last = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        step()
        last.record()
        return first, last

    def _nanoseconds(self, mark: tuple[Any, Any]) -> int:
        first, last = mark
        if self.device == "cpu":
            return int(last - first)
        last.synchronize()
        return int(first.elapsed_time(last) * 1e6)
