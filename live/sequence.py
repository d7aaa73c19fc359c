"""One request inside an engine: its tokens, its KV memory, and what is told of it."""

from dataclasses import dataclass, field
from enum import IntEnum

from live.held import Held


class Kind(IntEnum):
    """What an event says."""

    started = 0  # its first kernel was issued
    tokens = 1  # new output tokens
    finished = 2
    oom = 3
    failed = 4  # the device, not the request
    cancelled = 5


@dataclass(slots=True)
class Event:
    """Something that happened to request *id* at *time_s* of the monotonic clock."""

    id: int
    kind: Kind
    time_s: float
    tokens: tuple[int, ...] = ()
    reason: str = ""  # finish reason, or what went wrong
    fragmentation: float | None = None
    preemptions: int = 0

    @property
    def is_end(self) -> bool:
        """Whether nothing follows."""
        return self.kind >= Kind.finished


@dataclass(slots=True)
class Job:
    """What an engine is asked to do; ``output_tokens`` ends it earlier than ``max_tokens``."""

    id: int
    prompt: list[int]
    max_tokens: int
    output_tokens: int | None = None
    temperature: float = 0.0
    seed: int = 0
    stop_token: int | None = None
    kernel_hint: str = ""


@dataclass(slots=True)
class Sequence:
    """A job in an engine. After a preemption its output so far counts as prompt."""

    job: Job
    tokens: list[int] = field(default_factory=list)  # prompt and output
    held: Held = field(default_factory=Held)
    preemptions: int = 0
    started: bool = False
    cancelled: bool = False

    @property
    def produced(self) -> int:
        """Output tokens so far."""
        return len(self.tokens) - len(self.job.prompt)

    @property
    def pending(self) -> int:
        """Tokens whose keys and values are not stored yet."""
        return len(self.tokens) - self.held.stored_tokens

    @property
    def limit(self) -> int:
        """Output tokens at which it ends."""
        wanted = self.job.output_tokens
        return self.job.max_tokens if wanted is None else min(wanted, self.job.max_tokens)


@dataclass(slots=True)
class Run:
    """New tokens of one sequence in a pass: rows ``start``.. of the flat batch."""

    sequence: Sequence
    start: int
    count: int

    @property
    def held(self) -> Held:
        """KV memory of the sequence."""
        return self.sequence.held

    @property
    def past(self) -> int:
        """Tokens stored before this run."""
        return self.sequence.held.stored_tokens

    @property
    def yields(self) -> bool:
        """Whether the pass reaches the last token, so that a new one comes out."""
        return self.count == self.sequence.pending
