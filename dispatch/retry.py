"""Further attempts of a request: which failures earn one, where it may go, what it costs."""

from collections.abc import Callable
from dataclasses import replace

from dispatch.config import WaitConfig
from dispatch.dispatcher import Decision, Dispatcher
from dispatch.request import Request

Abort = Callable[[Request, int], None]


class Retries:
    """Ends failed attempts and submits the next one, within the limits of *wait*.

    Only what ``retry_on`` names is tried again, never once its first token is out (the caller has
    seen part of the answer) and never on a device that was tried. ``on_abort`` is told to stop the
    engine before the next attempt is placed, so that no two attempts run at a time.
    ``amplification`` = prompt tokens of all attempts / of all requests <= 1 + retries.
    """

    def __init__(
        self, dispatcher: Dispatcher, wait: WaitConfig, on_abort: Abort | None = None
    ) -> None:
        self._dispatcher, self._wait, self._on_abort = dispatcher, wait, on_abort
        self.first_tokens = 0
        self.again_tokens = 0

    def submit(self, request: Request) -> Decision:
        """Submit a first attempt."""
        self.first_tokens += request.prompt_tokens
        return self._dispatcher.submit(request)

    def failed(self, request_id: int, cause: str) -> Decision | None:
        """End an attempt by *cause* (oom, fault, timeout, client); return the next one's decision.

        None: the request has failed for good, or is not in flight.
        """
        flight = self._dispatcher.flights.get(request_id)
        if flight is None:
            return None
        if self._on_abort is not None:
            self._on_abort(flight.request, flight.device)
        self._dispatcher.failed(request_id, fault=cause in ("fault", "timeout"))
        request = flight.request
        spent = request.attempt >= self._wait.retries or cause not in self._wait.retry_on
        if spent or flight.streamed:
            return None
        again = replace(request, attempt=request.attempt + 1, tried=(*request.tried, flight.device))
        self.again_tokens += request.prompt_tokens
        return self._dispatcher.submit(again)

    @property
    def amplification(self) -> float:
        """How many times its prompt the average request was prefilled for."""
        return 1.0 + self.again_tokens / self.first_tokens if self.first_tokens else 1.0
