"""The clairvoyant oracle: an upper bound that no real dispatcher can reach."""

from collections.abc import Callable

import numpy as np

from dispatch.errors import InputError
from dispatch.fleet import Eligible, Floats
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import ScoredPolicy
from dispatch.policy import Choice
from dispatch.registry import register
from dispatch.request import Request


@register("oracle")
class Oracle(ScoredPolicy):
    """Knows the true output length and places at the earliest true finish: an upper bound.

    Cost = ``finish_s(request, device, now_s)`` where the world gives it; else (true work in flight
    + prompt + true output) / tokens per second, over the devices whose room holds prompt + true
    output. Nothing fits: held. Signals: memory, kv, and the future. Ties: the first in order.
    Source: none; reports say how much of the possible gain a policy takes.
    Known failure mode: greedy, so it bounds placement one by one, not the best plan of all.
    """

    signals = frozenset({"memory", "kv", "health"})
    ties = "order"

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self.finish_s: Callable[[Request, int, float], float] | None = None
        self.output_tokens: Callable[[Request], int] | None = None
        self._work: Floats = np.zeros(0)
        self._charged: dict[int, tuple[int, float]] = {}
        self._now_s = 0.0

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device of the earliest finish."""
        if self.finish_s is None and self.output_tokens is None:
            raise InputError.at(
                "policy oracle", "nobody tells it the future", "use it in a simulation"
            )
        self._now_s = now_s
        if len(self._work) != graph.count:
            self._work = np.concatenate([self._work, np.zeros(graph.count - len(self._work))])
        choice = super().choose(request, graph, now_s)
        if choice.device < 0 and choice.reason == Reason.no_device and choice.candidates:
            eligible = graph.eligible(request.model, request.group)
            ever = self._need(request, graph, eligible) <= eligible.capacity_bytes
            return self._none(Reason.held if ever else Reason.too_large, choice.candidates)
        return choice

    def _need(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> float:
        if self.output_tokens is None:
            return 0.0
        tokens = request.prompt_tokens + self.output_tokens(request)
        return tokens * float(graph.kv_bytes_per_token[eligible.index].min())

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = the time of the finish, infinite where it does not fit."""
        if self.finish_s is not None:
            for device in eligible.devices:
                out[device] = self.finish_s(request, device, self._now_s)
            return
        assert self.output_tokens is not None
        tokens = request.prompt_tokens + self.output_tokens(request)
        np.add(self._work, tokens, out=out)
        np.divide(out, np.maximum(graph.speed, 1e-9), out=out)
        known = graph.room >= 0
        out[known & (graph.room < tokens * graph.kv_bytes_per_token)] = np.inf

    def on_start(self, request: Request, device: int, now_s: float) -> None:
        """Count the true work."""
        if self.output_tokens is not None:
            work = float(request.prompt_tokens + self.output_tokens(request))
            self._charged[request.id] = device, work
            self._work[device] += work

    def on_finish(self, request: Request, device: int, now_s: float) -> None:
        """Take the work off."""
        _, work = self._charged.pop(request.id, (device, 0.0))
        self._work[device] -= work

    def on_failure(self, request: Request, device: int, now_s: float, fault: bool) -> None:
        """Take the work off."""
        self.on_finish(request, device, now_s)

    def on_cancel(self, request: Request, device: int, now_s: float) -> None:
        """Take the work off."""
        self.on_finish(request, device, now_s)
