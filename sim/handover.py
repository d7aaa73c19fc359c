"""Prefill on one replica, decode on another: the KV cache of a prompt moves between them.

The dispatcher places a request twice: for its prefill, and at its first token for its decode, with
that replica's room reserved while the bytes are under way. The prefill replica holds the prompt's
KV memory until the copy has ended; one that dies before takes the copy with it.
"""

from typing import TYPE_CHECKING, Final

from sim.call import IN_FLIGHT, Call
from sim.sequence import Sequence

if TYPE_CHECKING:
    from sim.engine import Engine
    from sim.world import World

PREFILL: Final = "prefill"
DECODE: Final = "decode"


class Handover:
    """Moves requests from prefill to decode replicas."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.kind = world.setup.transfer.link
        self.count = 0
        self.bytes = 0.0
        self._parked: dict[int, tuple[Engine, Sequence]] = {}
        """By request, what its prefill replica still holds for the copy."""

    def prefill(self, call: Call) -> Sequence:
        """Return what the prefill replica is to do: the prompt, and the first token."""
        request = call.request
        sequence = Sequence(
            call, request.prompt_tokens, 1, 1, request.priority, request.block_hashes,
            request.block_tokens,
        )  # fmt: skip
        sequence.keeps = call.output > 1
        return sequence

    def begin(self, call: Call) -> None:
        """The first token of *call* is out: find a replica to decode it."""
        call.handed = True
        if call.sequence is not None:
            call.preemptions += call.sequence.preemptions
            self._parked[call.row] = self.world.engines[call.device], call.sequence
            call.sequence = None
        call.request.group = DECODE
        self.world.submit(call)

    def send(self, call: Call, device: int) -> None:
        """Move the KV cache of *call* to *device*."""
        world = self.world
        source, target = world.replicas[call.device], world.replicas[device]
        size = call.request.prompt_tokens * source.kind.plan.kv_bytes_per_token
        self.count += 1
        self.bytes += size
        call.device = device
        path = world.links.path(self.kind, source, target)
        call.transfer = world.links.network.send(path, size, self._landed, call)

    def _landed(self, call: Call) -> None:
        call.transfer = None
        self._let_go(call)
        if call.outcome is not IN_FLIGHT:
            return
        request = call.request
        sequence = Sequence(
            call, request.prompt_tokens, call.output, request.max_tokens, request.priority
        )
        sequence.emitted = 1
        sequence.target = request.prompt_tokens + 1
        sequence.computed = sequence.cached = request.prompt_tokens
        self.world.enter(call, sequence)

    def stop(self, call: Call) -> None:
        """Give up what of *call* is under way."""
        if call.transfer is not None:
            self.world.links.network.stop(call.transfer)
            call.transfer = None
        self._let_go(call)

    def _let_go(self, call: Call) -> None:
        """Have the prefill replica free what it holds for *call*, if it still does."""
        held = self._parked.pop(call.row, None)
        if held is not None:
            engine, sequence = held
            engine.let_go(sequence)
