"""Policies that place where a cost is least: cost columns, exact ties, unknown after known."""

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np

from dispatch import keyed
from dispatch.fleet import Bools, Eligible, Floats, Ints
from dispatch.graph import TopologyGraph
from dispatch.journal import BEST
from dispatch.outcomes import Reason
from dispatch.policy import BasePolicy, Choice
from dispatch.request import Request

UNKNOWN_COST = 1e300  # after every known cost, before every ineligible device
Ties = Literal["order", "random"]


def no_device(eligible: Eligible) -> Reason:
    """Return why a class of requests has nowhere to go."""
    return Reason.no_weight if eligible.unweighted else Reason.no_device


def untried(request: Request, eligible: Eligible) -> Ints:
    """Return the eligible devices that no attempt of *request* was sent to yet, in order."""
    index = eligible.index
    return index[~np.isin(index, request.tried)] if request.tried else index


def in_flight(graph: TopologyGraph, eligible: Eligible) -> int:
    """Return the requests in flight on all eligible devices."""
    whole = eligible.count == graph.count
    return int(graph.n.sum() if whole else graph.n[eligible.index].sum())


class ScoredPolicy(BasePolicy):
    """Places at the least cost among the eligible; subclasses fill in the cost.

    A cost of NaN says that the signal is unknown: such a device comes after all that are known.
    Ties: ``order`` takes the first in configuration order, ``random`` draws uniformly, keyed by
    seed, request and attempt.
    """

    ties: ClassVar[Ties] = "random"

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._key = keyed.stream(seed, f"policy.{self.name}")
        self._cost: Floats = np.empty(0)
        self._mask: Bools = np.empty(0, dtype=bool)

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Write the cost of every device into *out*; what is not eligible may hold anything."""
        raise NotImplementedError

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the eligible device of least cost."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        cost = self._scratch(graph.count)
        self.cost(request, graph, eligible, cost)
        return self._least(request, cost, eligible)

    def _scratch(self, count: int) -> Floats:
        if len(self._cost) != count:
            self._cost = np.empty(count)
            self._mask = np.empty(count, dtype=bool)
        return self._cost

    def _least(self, request: Request, cost: Floats, eligible: Eligible) -> Choice:
        mask = self._mask
        np.isnan(cost, out=mask)
        np.putmask(cost, mask, UNKNOWN_COST)
        if eligible.count != len(cost):
            np.logical_not(eligible.mask, out=mask)
            np.putmask(cost, mask, np.inf)
        for device in request.tried:
            cost[device] = np.inf
        first = int(cost.argmin())
        least = cost[first]
        if least == np.inf:
            return self._none(Reason.no_device, eligible.count)
        device = first
        if self.ties != "order":
            np.equal(cost, least, out=mask)
            device = self._broken(request, mask, first)
        choice = self._place(device, eligible.count)
        choice.best, choice.scores = best_of(cost, device)
        return choice

    def _broken(self, request: Request, tied: Bools, first: int) -> int:
        count = int(np.count_nonzero(tied))
        if count == 1:
            return first
        among = tied.nonzero()[0]
        return int(among[int(keyed.uniform(self._key, request.id, request.attempt) * count)])


def best_of(cost: Floats, chosen: int) -> tuple[Sequence[int], Sequence[float]]:
    """Return up to five devices and their costs, the chosen first; spoils *cost*."""
    scores = [float(cost[chosen])]
    devices = [chosen]
    cost[chosen] = np.inf
    for _ in range(min(BEST, len(cost)) - 1):
        device = int(cost.argmin())
        score = float(cost[device])
        if score == np.inf:
            break
        devices.append(device)
        scores.append(score)
        cost[device] = np.inf
    return devices, scores
