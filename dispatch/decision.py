"""What came of a request, and the counts of a dispatcher."""

from dataclasses import dataclass

from dispatch.outcomes import Reason
from dispatch.request import Request


@dataclass(slots=True)
class Decision:
    """What came of a request: a device, or -1 and why; ``generation`` names the device's life."""

    device: int
    reason: Reason
    generation: int
    request: Request
    duration_s: float


@dataclass(slots=True)
class Counts:
    """What passed through one dispatcher since its start."""

    submitted: int = 0
    placed: int = 0
    rejected: int = 0
    expired: int = 0  # while held
    left: int = 0  # cancelled while held
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    stray: int = 0  # ends and starts of nothing that is in flight: late, duplicate, never begun
