"""What a dispatcher may know of a request: never its true output length."""

from dataclasses import dataclass, field
from typing import Final

HINTS: Final = ("latency_optimized", "throughput_optimized", "memory_efficient")


@dataclass(slots=True)
class Request:
    """One request as it reaches the dispatcher.

    ``arrival_s`` is the planned arrival of the trace; ``block_hashes`` are prefix-block ids, head
    first, of ``block_tokens`` tokens each. ``session`` is -1 where the trace has none. A non-empty
    ``group`` restricts placement to the devices of that group (the legacy header rules set it).
    """

    id: int
    arrival_s: float
    prompt_tokens: int
    max_tokens: int
    model: str = ""
    session: int = -1
    block_hashes: tuple[int, ...] = ()
    block_tokens: int = 512
    precision: str = ""
    kernel_hint: str = ""
    priority: int = 0
    group: str = ""
    deadline_s: float = float("inf")
    attempt: int = 0
    tried: tuple[int, ...] = field(default=())
