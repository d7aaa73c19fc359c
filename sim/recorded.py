"""Placement as a router's own log says it: what another router did, replayed on this fleet."""

from collections.abc import Callable
from typing import cast

from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import no_device, untried
from dispatch.policy import BasePolicy, Choice, Policy
from dispatch.request import Request
from traces import router_log

NAME = "recorded"


class Recorded(BasePolicy):
    """Places the first attempt of a request where the log says.

    What is not on record, cannot go there (the device is down, or of another group or model), or is
    tried again goes to the eligible device with the fewest requests in flight, the first of them.
    """

    name = NAME

    def __init__(self, placements: str, line_of: Callable[[Request], int]) -> None:
        super().__init__()
        self._chosen = router_log.unpack(placements).tolist()
        self._line_of = line_of

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device on record, else the least loaded."""
        eligible = graph.eligible(request.model, request.group)
        index = untried(request, eligible)
        if not len(index):
            return self._none(no_device(eligible) if not eligible.count else Reason.no_device)
        line = self._line_of(request)
        device = self._chosen[line] if line < len(self._chosen) else router_log.NONE
        if request.attempt or device < 0 or device not in index:
            device = int(index[graph.n[index].argmin()])
        return self._place(device, len(index))


def policy(placements: str, line_of: Callable[[Request], int]) -> Policy:
    """Return the policy of packed *placements*; *line_of* gives a request's line of the trace."""
    return cast(Policy, Recorded(placements, line_of))
