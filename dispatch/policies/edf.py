"""Envoy's earliest-deadline-first scheduling: weighted round robin and weighted least request."""

import heapq
import math
from dataclasses import dataclass, field
from fractions import Fraction

from dispatch.fleet import Eligible
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import no_device
from dispatch.policy import BasePolicy, Choice
from dispatch.registry import register
from dispatch.request import Request

_LONGEST_BITS = 256
"""Of the denominator of the present: every join of a host can lengthen it for all who follow."""
_TICKS = 1 << 64


@dataclass(slots=True)
class _Schedule:
    """Entries (deadline, order of insertion, device) of one eligible set."""

    entries: list[tuple[Fraction, int, int]] = field(default_factory=list)
    now: Fraction = Fraction(0)
    inserted: int = 0

    def put(self, device: int, weight: Fraction) -> None:
        heapq.heappush(self.entries, (self.now + 1 / weight, self.inserted, device))
        self.inserted += 1


def _short(now: Fraction) -> Fraction:
    """Return *now*, rounded up to 2^-64 where its denominator has grown beyond all use.

    A host that joins there still comes after all that are due by then.
    """
    if now.denominator.bit_length() <= _LONGEST_BITS:
        return now
    return Fraction(math.ceil(now * _TICKS), _TICKS)


@register("edf_wrr")
class EdfWeights(BasePolicy):
    """Spreads by static weights with Envoy's EDF: pop the earliest deadline, put it back 1/W later.

    Ties: the earlier insertion; arithmetic is rational, since with doubles the order drifts. Where
    hundreds of hosts of odd weights come and go, the present is rounded up to 2^-64 as one joins.
    Signals: health and weights. Source: Envoy edf_scheduler.h. {5,1,1} gives ``aaaabca``.
    Known failure mode: a new host of tiny weight waits for 1/W: see :meth:`starvation_bound`.
    """

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._schedules: dict[tuple[str, str], tuple[Eligible, _Schedule]] = {}

    def weight(self, graph: TopologyGraph, device: int) -> Fraction:
        """Return the weight at which *device* is put back."""
        return Fraction(float(graph.weight[device])).limit_denominator(1_000_000)

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device of the earliest deadline."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        schedule = self._schedule(request, graph, eligible)
        skipped = []
        device = -1
        while schedule.entries:
            entry = heapq.heappop(schedule.entries)
            if entry[2] in request.tried:
                skipped.append(entry)
                continue
            schedule.now, device = entry[0], entry[2]
            break
        for entry in skipped:  # they keep their deadline
            heapq.heappush(schedule.entries, entry)
        if device < 0:
            return self._none(Reason.no_device, eligible.count)
        self._put_back(schedule, graph, device)
        return self._place(device, eligible.count)

    def _put_back(self, schedule: _Schedule, graph: TopologyGraph, device: int) -> None:
        schedule.put(device, self.weight(graph, device))

    def _schedule(self, request: Request, graph: TopologyGraph, eligible: Eligible) -> _Schedule:
        key = request.model, request.group
        found = self._schedules.get(key)
        if found is not None and found[0] is eligible:
            return found[1]
        schedule = _Schedule()
        if found is not None:  # hosts that stay keep their place, new ones join at the present
            schedule.now, schedule.inserted = _short(found[1].now), found[1].inserted
            schedule.entries = [e for e in found[1].entries if e[2] in eligible.devices]
            heapq.heapify(schedule.entries)
        here = {e[2] for e in schedule.entries}
        for device in eligible.devices:
            if device not in here:
                schedule.put(device, self.weight(graph, device))
        self._schedules[key] = eligible, schedule
        return schedule

    def starvation_bound(self, graph: TopologyGraph, device: int, group: str = "") -> int:
        """Return the number of picks by which *device*, newly added, gets its first at the latest.

        Within its first 1/W of virtual time every other host of weight V is picked at most
        floor(V/W) + 1 times.
        """
        own = self.weight(graph, device)
        others = [d for d in graph.eligible("", group).devices if d != device]
        return 1 + sum(int(self.weight(graph, d) / own) + 1 for d in others)


@dataclass(frozen=True, slots=True)
class EnvoyLeastRequestParams:
    """``bias``: exponent of the load in the effective weight; 0 is plain weighted round robin.

    A whole exponent is exact; any other goes through a double once, at the put-back.
    """

    bias: float = 1.0

    def __post_init__(self) -> None:
        if self.bias < 0:
            raise ValueError(f"bias is {self.bias}; give >= 0")


@register("envoy_least_request")
class EnvoyLeastRequest(EdfWeights):
    """EDF with the weight W / (n + 1)^bias, evaluated when a host is put back.

    Ties: the earlier insertion. Signals: own books and weights. Source: Envoy least request
    with unequal weights (active_request_bias 1.0). Known failure mode: the weight is as old as the
    host's last pick, and a loaded host never drains fully.
    """

    Params = EnvoyLeastRequestParams

    def weight(self, graph: TopologyGraph, device: int) -> Fraction:
        """Return W / (n + 1)^bias."""
        bias: float = self.params.bias
        busy = int(graph.n[device]) + 1
        divisor = Fraction(busy ** int(bias)) if bias == int(bias) else Fraction(busy**bias)
        return super().weight(graph, device) / divisor

    def _put_back(self, schedule: _Schedule, graph: TopologyGraph, device: int) -> None:
        # Envoy puts the host back before the request counts on it; so do we
        schedule.put(device, self.weight(graph, device))
