"""Round robin: a policy that looks at nothing but who is eligible."""

from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import no_device
from dispatch.policy import BasePolicy, Choice
from dispatch.registry import register
from dispatch.request import Request

_LIMIT = 4096  # counters kept, for fleets whose eligible set keeps changing


@register("round_robin")
class RoundRobin(BasePolicy):
    """Takes the eligible devices in turn: i = (i + 1) mod N, one counter per (model, set).

    Signals: health only. Ties: none. Source: every balancer; one counter per eligible set as in
    vLLM production-stack #915, where a single one skewed traffic as soon as two models shared it.
    Known failure mode: blind to request size, speed and memory; unequal requests pile up.
    """

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._next: dict[tuple[str, int], int] = {}

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the next device of the request's eligible set."""
        eligible = graph.eligible(request.model, request.group)
        count = eligible.count
        if not count:
            return self._none(no_device(eligible))
        key = (request.model, eligible.set_id)
        turn = self._next.get(key, 0)
        if len(self._next) > _LIMIT:
            self._next.clear()
        for step in range(count):
            device = eligible.devices[(turn + step) % count]
            if device not in request.tried:
                self._next[key] = (turn + step + 1) % count
                return self._place(device, count)
        return self._none(Reason.no_device, count)
