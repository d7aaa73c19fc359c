"""Fewest requests in flight (join the shortest queue)."""

import numpy as np

from dispatch import keyed
from dispatch.fleet import Bools, Eligible, Floats, Ints
from dispatch.graph import TopologyGraph
from dispatch.journal import BEST
from dispatch.policies.scored import ScoredPolicy, best_of
from dispatch.policy import Choice
from dispatch.registry import register
from dispatch.request import Request

_INELIGIBLE = 1 << 60
SMALL = 32  # up to this many devices a plain loop beats numpy's call overhead


@register("least_requests")
class LeastRequests(ScoredPolicy):
    """Places where the dispatcher has the fewest requests in flight: argmin n, random ties.

    Signals: the dispatcher's own books, counted at dispatch. Ties: uniform, seeded.
    Source: least-request of Envoy, AIBrix and many others; JSQ in queueing theory.
    Known failure mode: two 10k-token prompts count less than five of 100 tokens; unlike GPUs get
    equal shares.
    """

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._tied: Bools = np.empty(0, dtype=bool)
        self._loads: Ints = np.empty(0, dtype=np.int64)

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the eligible device with the fewest requests in flight."""
        eligible = graph.eligible(request.model, request.group)
        if request.tried or not eligible.count:
            return super().choose(request, graph, now_s)
        if graph.count > SMALL:
            return self._by_arrays(request, graph, eligible)
        loads = graph.n.tolist()
        devices = eligible.devices
        order = sorted(devices, key=loads.__getitem__)
        device = order[0]
        least, ties = loads[device], 1
        while ties < len(order) and loads[order[ties]] == least:
            ties += 1
        if ties > 1:  # sorting keeps their order: the tied come first
            draw = keyed.uniform(self._key, request.id, request.attempt)
            device = order.pop(int(draw * ties))
            order.insert(0, device)
        del order[BEST:]
        choice = self._place(device, eligible.count)
        choice.best, choice.scores = order, [loads[i] for i in order]
        return choice

    def _by_arrays(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> Choice:
        """The same with numpy; whole numbers need no care for NaN."""
        loads, mask = graph.n, self._tied
        if len(mask) != graph.count:
            mask = self._tied = np.empty(graph.count, dtype=bool)
            self._loads = np.empty(graph.count, dtype=np.int64)
        if eligible.count != graph.count:
            loads = self._loads
            np.copyto(loads, graph.n)
            np.logical_not(eligible.mask, mask)
            np.putmask(loads, mask, _INELIGIBLE)
        least = loads[loads.argmin()]
        np.equal(loads, least, mask)
        among = mask.nonzero()[0]
        at = 0
        if len(among) > 1:
            at = int(keyed.uniform(self._key, request.id, request.attempt) * len(among))
        device = int(among[at])
        choice = self._place(device, eligible.count)
        if len(among) < BEST:
            choice.best, choice.scores = best_of(loads.astype(np.float64), device)
        else:
            others = [i for i in among[: BEST + 1].tolist() if i != device]
            choice.best = [device, *others[: BEST - 1]]
            choice.scores = [float(least)] * BEST
        return choice

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = n."""
        np.copyto(out, graph.n)
