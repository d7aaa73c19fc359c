"""The batch of one engine: who waits, who runs, who must go; time is the engine's business.

Scheduling follows vLLM: with chunked prefill, what decodes goes first and prompts fill the rest of
``max_num_batched_tokens``; without it, prompts go first, whole, in iterations of their own.
"""

from heapq import heappop, heappush
from typing import Any, Protocol

from dispatch.errors import InvariantError
from sim.clock import Clock
from sim.config import EngineConfig
from sim.memory import ContiguousKv, PagedKv
from sim.prefixes import Prefixes
from sim.sequence import DECODE, GONE, PREFILL, WAITING, Sequence
from sim.workspace import Segments, Workspace


class Host(Protocol):
    """Whom an engine tells what becomes of its sequences."""

    def started(self, sequence: Sequence) -> None:
        """Its memory is allocated, its first kernel starts now."""

    def first_token(self, sequence: Sequence) -> None:
        """Its first token is out."""

    def finished(self, sequence: Sequence) -> None:
        """Its last token is out and its memory is free again."""

    def out_of_memory(self, engine: Any, sequence: Sequence) -> None:
        """It was killed for lack of memory; the engine has let it go."""


class Batch:
    """The queue, the running sequences and the KV memory of one replica.

    ``running`` is in the order of admission; at most one prompt is under way in chunks
    (``partial``), and it is the last that was admitted. ``iteration`` counts decode iterations:
    what decodes has a fixed distance to it, so that an iteration costs nothing per sequence.
    """

    # Slots: beyond 30 attributes Python looks methods and values up the slow way.
    __slots__ = (
        "aborts", "by_priority", "chunked", "chunks", "decoding", "ends", "env", "growth",
        "host", "iteration", "kv", "max_seqs", "max_tokens", "optimistic", "orders",
        "pages", "parked", "partial", "preemptions", "prefix", "recompute", "rel_sum",
        "running", "segments", "waiting", "waiting_count", "workspace",
    )  # fmt: skip

    def __init__(
        self, env: Clock, host: Host, kv: ContiguousKv | PagedKv, config: EngineConfig
    ) -> None:
        self.env = env
        self.host = host
        self.kv = kv
        self.pages = kv if isinstance(kv, PagedKv) else None
        self.max_seqs = config.max_num_seqs
        self.max_tokens = config.max_num_batched_tokens
        self.chunked = config.chunked_prefill
        self.by_priority = config.scheduling == "priority"
        self.optimistic = config.admission == "optimistic"
        self.recompute = config.preemption == "recompute"
        self.waiting: list[tuple[int, int, Sequence]] = []
        self.waiting_count = 0
        self.running: dict[Sequence, None] = {}
        self.parked: dict[Sequence, None] = {}  # ended, but somebody still reads their memory
        self.partial: Sequence | None = None
        self.orders = 0
        self.iteration = 0  # decode iterations so far
        self.decoding = 0
        self.rel_sum = 0  # of what decodes: stored context - iteration
        self.ends: list[tuple[int, int, Sequence]] = []
        self.chunks: list[tuple[Sequence, int]] = []
        self.aborts: list[Sequence] = []
        self.growth = 0  # blocks that what decodes needs for the iteration to come
        self.preemptions = 0
        self.prefix: Prefixes | None = None
        self.workspace: Workspace | None = None
        self.segments: Segments | None = None  # beside a paged pool

    def _enqueue(self, sequence: Sequence) -> None:
        rank = sequence.priority if self.by_priority else 0
        heappush(self.waiting, (rank, sequence.order, sequence))
        self.waiting_count += 1

    def check_memory(self) -> None:
        """Raise InvariantError where blocks are taken that nobody runs with."""
        kv = self.pages
        if kv is not None and not self.running and not self.parked and kv.free != kv.blocks:
            raise InvariantError(f"nothing runs, and {kv.blocks - kv.free} KV blocks are taken")

    def _may_enter(self, sequence: Sequence) -> bool:
        """Return whether the next iteration might take *sequence* in (or kill it)."""
        if len(self.running) >= self.max_seqs:
            return False
        room = self.max_tokens - self.decoding if self.chunked else self.max_tokens
        if room <= 0:
            return False
        return self.optimistic or self.kv.fits(sequence, min(sequence.target, room), 0)

    def _settle(self) -> None:
        """Let out what has ended, and tell who has emitted a first token."""
        if self.workspace is not None:
            self.workspace.free()
        if self.chunks:
            for sequence, chunk in self.chunks:
                sequence.computed += chunk
                if sequence.computed == sequence.target:
                    self._emit(sequence)
            self.chunks = []
        ends, iteration = self.ends, self.iteration
        while ends and ends[0][0] <= iteration:
            at, _, sequence = heappop(ends)
            if sequence.state == DECODE and sequence.finish_at == at:
                self._release(sequence)
                sequence.state = GONE
                if sequence.owner is not None:
                    self.host.finished(sequence)
        if self.aborts:
            for sequence in self.aborts:
                if sequence.state != GONE:
                    self._remove(sequence)
            self.aborts.clear()

    def _emit(self, sequence: Sequence) -> None:
        """A prefill is complete: one token comes out, and decoding begins."""
        if sequence is self.partial:
            self.partial = None
        sequence.emitted += 1
        left = sequence.output - sequence.emitted
        if sequence.emitted == 1 and sequence.owner is not None:
            self.host.first_token(sequence)
        if left == 0:
            if sequence.keeps and sequence.owner is not None:
                del self.running[sequence]
                sequence.state = GONE
                self.parked[sequence] = None
            else:
                self._remove(sequence)
            if sequence.owner is not None:
                self.host.finished(sequence)
            return
        self._decode(sequence, left)

    def _decode(self, sequence: Sequence, left: int) -> None:
        sequence.state = DECODE
        sequence.rel = sequence.target - self.iteration
        sequence.finish_at = self.iteration + left
        self.decoding += 1
        self.rel_sum += sequence.rel
        if self.pages is not None:
            self.pages.join(sequence)
        heappush(self.ends, (sequence.finish_at, sequence.order, sequence))

    def _remove(self, sequence: Sequence) -> None:
        """Take a running sequence out of the batch and free its memory."""
        self._release(sequence)
        sequence.state = GONE

    def _release(self, sequence: Sequence) -> None:
        del self.running[sequence]
        if self.prefix is not None:
            self.prefix.trim(sequence)
        self.kv.drop(sequence, self.iteration)
        if sequence.state == DECODE:
            self.decoding -= 1
            self.rel_sum -= sequence.rel
            if self.pages is not None:
                self.pages.leave(sequence)
        elif sequence is self.partial:
            self.partial = None

    def _make_room(self) -> bool:
        """Preempt until one decode iteration finds its blocks; return whether anybody had to go."""
        kv = self.pages
        if kv is None:
            return False
        barred = False
        at = self.iteration % kv.block_tokens
        while (growth := kv.classes[at]) > kv.free:
            barred = True
            self._evict(self._victim())
        self.growth = growth
        return barred

    def _continue(self, sequence: Sequence, chunks: list[tuple[Sequence, int]]) -> bool:
        """Give a prompt under way its next chunk; return whether anybody had to go for it."""
        barred = False
        chunk = min(sequence.target - sequence.computed, self.max_tokens - self.decoding)
        while chunk > 0 and not self.kv.take(sequence, chunk, self.growth):
            barred = True
            victim = self._victim()
            self._evict(victim)
            if victim is sequence:
                return True
            if self.pages is not None:
                self.growth = self.pages.next_growth(self.iteration)
        if chunk > 0:
            chunks.append((sequence, chunk))
        return barred

    def _victim(self) -> Sequence:
        if self.by_priority:
            return max(self.running, key=lambda s: (s.priority, s.order))
        return next(reversed(self.running))

    def _evict(self, sequence: Sequence) -> None:
        """Preempt *sequence* by recompute, or kill it where that is off or could not help."""
        if not self.recompute or (len(self.running) == 1 and not self.parked):
            self._remove(sequence)
            if sequence.owner is not None:
                self.host.out_of_memory(self, sequence)
            return
        if sequence.state == DECODE:
            sequence.emitted = sequence.output - (sequence.finish_at - self.iteration)
        self._release(sequence)
        sequence.state = WAITING
        sequence.target = sequence.prompt + sequence.emitted
        sequence.computed = sequence.cached = 0
        sequence.preemptions += 1
        self.preemptions += 1
        if sequence.owner is None:
            sequence.state = GONE  # cancelled while it ran
        else:
            self._enqueue(sequence)

    def _admit(self, chunks: list[tuple[Sequence, int]], budget: int) -> None:
        """Take in what waits, in order, as far as seats, tokens and memory go."""
        waiting, kv = self.waiting, self.kv
        for _, chunk in chunks:
            budget -= chunk
        while waiting:
            sequence = waiting[0][2]
            if sequence.state == GONE:
                heappop(waiting)
                continue
            if len(self.running) >= self.max_seqs or budget <= 0:
                return
            if self.prefix is not None and sequence.hashes:
                self.prefix.match(sequence)
            left = sequence.target - sequence.computed
            chunk = min(left, budget) if self.chunked else left
            if chunk > budget and chunks:
                return
            if not kv.take(sequence, chunk, self.growth):
                if not self._starve(sequence):
                    return
                continue
            heappop(waiting)
            self.waiting_count -= 1
            self.running[sequence] = None
            sequence.state = PREFILL
            if sequence.started_ns < 0:
                sequence.started_ns = self.env.ns
            if self.prefix is not None and sequence.hashes:
                self.prefix.admit(sequence)
            self.host.started(sequence)
            chunks.append((sequence, chunk))
            budget -= chunk
            if chunk < left:
                self.partial = sequence
                return

    def _starve(self, sequence: Sequence) -> bool:
        """The first in line does not fit: return whether it was killed for that."""
        alone = not self.running and not self.parked and self.kv.grows
        if not self.optimistic and not alone:
            return False
        heappop(self.waiting)
        self.waiting_count -= 1
        sequence.state = GONE
        self.host.out_of_memory(self, sequence)
        return True
