"""What a policy answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dispatch.outcomes import Reason


@dataclass(slots=True)
class Choice:
    """What a policy chose: a device, or -1 with the reason why none.

    ``best`` and ``scores`` name up to five devices with the policy's own measure of them, the
    chosen first; ``candidates`` counts the devices that were compared; ``cached_tokens`` is how
    much of the prompt the policy takes to be cached there; ``need_bytes`` spares the dispatcher
    working it out again, below 0 it does. A policy may hand out one and the same object again and
    again: it is valid until the next ``choose``.
    """

    device: int = -1
    reason: Reason = Reason.placed
    candidates: int = 0
    cached_tokens: int = 0
    need_bytes: float = -1.0
    best: Sequence[int] = field(default=())
    scores: Sequence[float] = field(default=())
