"""What an engine says of its memory and queue; known without loading torch."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The engine's own view of its memory and queue at ``source_s`` of the monotonic clock."""

    source_s: float
    free_bytes: float
    used_bytes: float
    block_bytes: float
    fragmentation: float
    waiting: int
    running: int
    kv_usage_ratio: float
    free_blocks: float
    busy_s: float
    up: bool
