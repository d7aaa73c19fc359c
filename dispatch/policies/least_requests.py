"""Fewest requests in flight (join the shortest queue)."""

import numpy as np

from dispatch import keyed
from dispatch.fleet import Eligible, Floats
from dispatch.graph import TopologyGraph
from dispatch.journal import BEST
from dispatch.policies.scored import ScoredPolicy
from dispatch.policy import Choice
from dispatch.registry import register
from dispatch.request import Request


@register("least_requests")
class LeastRequests(ScoredPolicy):
    """Places where the dispatcher has the fewest requests in flight: argmin n, random ties.

    Signals: the dispatcher's own books, counted at dispatch. Ties: uniform, seeded.
    Source: least-request of Envoy, AIBrix and many others; JSQ in queueing theory.
    Known failure mode: two 10k-token prompts count less than five of 100 tokens; unlike GPUs get
    equal shares.
    """

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the eligible device with the fewest requests in flight."""
        eligible = graph.eligible(request.model, request.group)
        if request.tried or not eligible.count:
            return super().choose(request, graph, now_s)
        ranks = graph.ranks(eligible)
        tied = ranks.lines[ranks.least]
        device = tied[0]
        if len(tied) > 1:
            draw = keyed.uniform(self._key, request.id, request.attempt)
            device = tied[int(draw * len(tied))]
        choice = self._place(device, eligible.count)
        choice.best, choice.scores = ranks.best(device, BEST)
        return choice

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = n."""
        np.copyto(out, graph.n)
