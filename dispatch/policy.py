"""What a placement policy is: it sees the request and the graph, and names a device."""

import inspect
from typing import Any, ClassVar, Final, Protocol, runtime_checkable

from dispatch.choice import Choice
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.request import Request

__all__ = ["BasePolicy", "Choice", "Policy"]


@runtime_checkable
class Policy(Protocol):
    """A placement policy. Optional callbacks are looked up by name, once, by the dispatcher:

    ``on_start(request, device, now_s)``: the placement was booked;
    ``on_first_token(request, device, now_s)``;
    ``on_finish(request, device, now_s)``: it ended well;
    ``on_failure(request, device, now_s, fault)``: it ended badly; *fault* blames the device;
    ``on_cancel(request, device, now_s)``: the client left.
    """

    name: str
    signals: frozenset[str]
    """Names of the signals that it reads, of :data:`dispatch.signals.SIGNALS`."""

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the device for *request*; leaves the books alone."""
        ...


_PLACED: Final = Reason.placed  # a member costs more than a global to look up


class BasePolicy:
    """Common ground of the policies here: name, parameters, seed, one reusable answer."""

    name: ClassVar[str] = ""
    signals: ClassVar[frozenset[str]] = frozenset({"health"})
    Params: ClassVar[type[Any] | None] = None

    def __init__(self, params: Any = None, *, seed: int = 0) -> None:
        self.params = params if params is not None or self.Params is None else self.Params()
        self.seed = seed
        self._choice = Choice()

    @classmethod
    def summary(cls) -> str:
        """Return the first sentence of the docstring, for lists."""
        return (inspect.getdoc(cls) or "").partition("\n")[0]

    def _place(self, device: int, candidates: int) -> Choice:
        choice = self._choice
        choice.device = device
        choice.reason = _PLACED
        choice.candidates = candidates
        choice.cached_tokens = 0
        choice.need_bytes = -1.0
        choice.best = (device,)
        choice.scores = ()
        return choice

    def _none(self, reason: Reason, candidates: int = 0) -> Choice:
        choice = self._choice
        choice.device = -1
        choice.reason = reason
        choice.candidates = candidates
        choice.cached_tokens = 0
        choice.best = choice.scores = ()
        return choice
