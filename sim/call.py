"""The life of one request, over all its attempts."""

import math
from typing import Final

from dispatch.legacy import Translated
from dispatch.outcomes import Outcome, RootCause
from dispatch.request import Request
from sim.network import Transfer
from sim.sequence import Sequence

NAN = math.nan
IN_FLIGHT: Final = Outcome.in_flight  # a member looked up by name costs a call each time
FINISHED: Final = Outcome.finished
NO_CAUSE: Final = RootCause.none


class Call:
    """What the simulation knows of one request; times in nanoseconds, -1 for "not yet"."""

    __slots__ = (
        "arrival_ns", "arrival_s", "attempt_ns", "attempts", "cached", "cause", "device",
        "end_ns", "first_ns", "fitting", "handed", "handled_ns", "held", "oom_events", "outcome",
        "output", "preemptions", "request", "row", "rule", "sequence", "service_ns", "slow_client",
        "source_row", "started_ns", "taken_ns", "transfer", "wait_ns", "wasted_ns",
    )  # fmt: skip

    def __init__(self, row: int, arrival_ns: int, arrival_s: float, output: int, request: Request):
        self.row = row
        self.source_row = row + 1
        self.arrival_ns = arrival_ns
        self.arrival_s = arrival_s
        self.output = output
        self.request = request
        self.attempt_ns = arrival_ns  # when the attempt under way began
        self.attempts = 0
        self.taken_ns = -1  # the door began to handle the first attempt
        self.handled_ns = -1  # the door was done with the last attempt
        self.started_ns = -1
        self.first_ns = -1
        self.end_ns = -1
        self.wait_ns = 0  # waiting for the door
        self.service_ns = 0  # in the door's hands
        self.wasted_ns = 0
        self.device = -1
        self.fitting = -1
        self.oom_events = 0
        self.preemptions = 0
        self.cached = 0
        self.held = False
        self.slow_client = 1.0  # how many times slower than its tokens come the client reads
        self.handed = False  # its prefill is done, on another replica
        self.transfer: Transfer | None = None
        self.sequence: Sequence | None = None
        self.rule: Translated | None = None
        self.outcome = IN_FLIGHT
        self.cause = NO_CAUSE  # of the first failed attempt
