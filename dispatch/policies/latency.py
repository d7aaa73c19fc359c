"""Latency-driven placement: moving averages of what came back."""

import math
from dataclasses import dataclass
from typing import Literal

from dispatch.fleet import Eligible
from dispatch.graph import TopologyGraph
from dispatch.policies.random_picks import Drawing
from dispatch.policy import Choice
from dispatch.registry import register
from dispatch.request import Request


@dataclass(frozen=True, slots=True)
class LatencyParams:
    """``decay_s``: time constant; ``peak``: a slower answer counts at once (Finagle).

    ``failure_penalty_s`` is the latency a failure counts as; 0 counts the time it took, as
    ingress-nginx does. ``among``: the lower of two random devices, or the lowest of all.
    """

    decay_s: float = 10.0
    peak: bool = False
    failure_penalty_s: float = 0.0
    among: Literal["two", "all"] = "two"

    def __post_init__(self) -> None:
        if self.decay_s <= 0 or self.failure_penalty_s < 0:
            raise ValueError("give decay_s > 0 and failure_penalty_s >= 0")


@register("latency_ewma")
class LatencyEwma(Drawing):
    """Takes the lower moving average of latency, of two random devices or of all (EWMA).

    ewma = ewma * w + latency * (1 - w), w = exp(-dt / decay_s), decaying while silent; ``peak``:
    a latency above the average replaces it, and the average is multiplied by n + 1. A device never
    heard of counts 0. Signals: own observations. Ties: the first drawn; fewest in flight of all.
    Source: ingress-nginx ewma.lua (decay 10 s); Finagle peak EWMA.
    Known failure mode: a device that fails fast looks fastest and takes all (black hole); set
    ``failure_penalty_s``.
    """

    Params = LatencyParams

    def __init__(self, params: LatencyParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._p: LatencyParams = self.params
        self._ewma: dict[tuple[int, int], tuple[float, float]] = {}
        self._begun: dict[int, tuple[float, int]] = {}
        self._now_s = 0.0
        self._graph: TopologyGraph | None = None

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device of the lower average."""
        self._now_s, self._graph = now_s, graph
        return super().choose(request, graph, now_s)

    def score(self, graph: TopologyGraph, device: int) -> float:
        """Return the decayed average, times n + 1 for the peak form."""
        value, at_s = self._ewma.get((device, int(graph.generation[device])), (0.0, self._now_s))
        value *= math.exp(-max(0.0, self._now_s - at_s) / self._p.decay_s)
        return value * (int(graph.n[device]) + 1) if self._p.peak else value

    def drawn(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, devices: tuple[int, ...]
    ) -> Choice:
        """Return the lower of two, or the lowest of all."""
        if self._p.among == "all":
            scores = {d: (self.score(graph, d), int(graph.n[d]), d) for d in devices}
            return self._place(min(devices, key=scores.__getitem__), len(devices))
        first, second = self.two(request, devices)
        better = self.score(graph, second) < self.score(graph, first)
        return self._place(second if better else first, min(2, len(devices)))

    def on_start(self, request: Request, device: int, now_s: float) -> None:
        """Remember when it was sent, and to which life of the device."""
        assert self._graph is not None
        self._begun[request.id] = now_s, int(self._graph.generation[device])

    def on_finish(self, request: Request, device: int, now_s: float) -> None:
        """Take the latency in."""
        self._take(request, device, now_s, 0.0)

    def on_failure(self, request: Request, device: int, now_s: float, fault: bool) -> None:
        """Take a failure in: by the time it took, or by the penalty where it blames the device."""
        self._take(request, device, now_s, self._p.failure_penalty_s if fault else 0.0)

    def on_cancel(self, request: Request, device: int, now_s: float) -> None:
        """A cancelled request says nothing of latency."""
        self._begun.pop(request.id, None)

    def _take(self, request: Request, device: int, now_s: float, penalty_s: float) -> None:
        begun = self._begun.pop(request.id, None)
        if begun is None:
            return
        latency = max(now_s - begun[0], penalty_s)
        key = device, begun[1]
        value, at_s = self._ewma.get(key, (latency, now_s))
        keep = math.exp(-max(0.0, now_s - at_s) / self._p.decay_s)
        if self._p.peak and latency > value:
            keep = 0.0
        self._ewma[key] = value * keep + latency * (1.0 - keep), now_s
