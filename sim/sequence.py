"""One attempt of a request inside an engine."""

from typing import Any, Final

WAITING: Final = 0
PREFILL: Final = 1
DECODE: Final = 2
GONE: Final = 3  # finished, killed, cancelled


class Sequence:
    """What an engine knows of one attempt.

    ``target`` tokens are to be computed before the next token comes out: the prompt, and after a
    preemption the tokens emitted so far too. While it decodes, its stored context is ``rel`` plus
    the engine's count of decode iterations, and it ends when that count reaches ``finish_at``.
    """

    __slots__ = (
        "address", "block_tokens", "cached", "computed", "emitted", "finish_at", "hashes", "keeps",
        "max_tokens", "order", "output", "owner", "preemptions", "priority", "prompt", "rel",
        "started_ns", "state", "target",
    )  # fmt: skip

    def __init__(
        self, owner: Any, prompt: int, output: int, max_tokens: int, priority: int = 0,
        hashes: tuple[int, ...] = (), block_tokens: int = 512,
    ) -> None:  # fmt: skip
        self.owner = owner
        self.prompt = prompt
        self.output = output
        self.max_tokens = max_tokens
        self.priority = priority
        self.hashes = hashes
        self.block_tokens = block_tokens
        self.order = 0
        self.state = WAITING
        self.target = prompt
        self.computed = 0
        self.emitted = 0
        self.cached = 0
        self.rel = 0
        self.finish_at = 0
        self.address = -1
        self.keeps = False  # its memory stays taken after its last token, until it is let go
        self.preemptions = 0
        self.started_ns = -1
