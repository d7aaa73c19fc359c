"""The serving engine of one replica: continuous batching that jumps between changes of its batch.

While the batch stays the same, iterations take an arithmetic series of times (decode cost is affine
in the context), so the end of any number of them is known in closed form: an event per change, not
per token. A request that comes in between waits for the end of the iteration under way.
"""

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from sim.batch import Batch, Host
from sim.clock import FS_PER_NS, LAST, Alarm, Clock
from sim.config import EngineConfig
from sim.memory import ContiguousKv, PagedKv
from sim.rates import Rates, iterations_fs, iterations_until
from sim.sequence import DECODE, GONE, WAITING, Sequence

if TYPE_CHECKING:
    from sim.watch import Watch


class Engine(Batch):
    """One replica: its batch, and the clock of its iterations."""

    __slots__ = (
        "alarm", "at_fs", "base", "context", "count", "decodes", "down", "due", "eid",
        "index", "iterations", "jump_fs", "queue", "rates", "slope", "span_fs", "turning", "watch",
    )  # fmt: skip

    def __init__(
        self, env: Clock, host: Host, index: int, kv: ContiguousKv | PagedKv, rates: Rates,
        config: EngineConfig,
    ) -> None:  # fmt: skip
        super().__init__(env, host, kv, config)
        self.index = index
        self.rates = rates
        self.alarm = Alarm(env, self._turn)
        self.queue: list[Any] = env._queue
        self.eid = env._eid
        self.due = -1  # when the batch changes next; -1 while idle
        self.at_fs = 0  # when the iterations under way began
        self.count = 0  # iterations under way, all alike; 0: one with prompts, or none
        self.base = self.slope = self.context = 0
        self.span_fs = 0  # of the one iteration with prompts
        self.jump_fs = 0  # of all iterations under way
        self.decodes = False  # whether the iteration with prompts also decodes
        self.iterations = 0
        self.turning = False
        self.down = False
        self.watch: Watch | None = None  # who is told before and after the state changes

    # -- from outside ------------------------------------------------------------------------

    def submit(self, sequence: Sequence) -> None:
        """Take *sequence* in; it waits at least until the iteration under way ends."""
        self.orders += 1
        sequence.order = self.orders
        self._enqueue(sequence)
        now = self.env.ns
        if self.watch is not None:
            self.watch.queued(now)
        if self.turning:
            return
        if self.due < 0:
            self.at_fs = now * FS_PER_NS
            self._ring(now)
        elif self.count > 1:
            waiting = self.waiting
            while waiting[0][2].state == GONE:  # cancelled
                heappop(waiting)
            if waiting[0][2] is sequence and self._may_enter(sequence):
                self._cut(now)

    def cancel(self, sequence: Sequence) -> None:
        """Let *sequence* go: at once while it waits, else when the iteration under way ends."""
        sequence.owner = None
        if sequence.state == WAITING:
            sequence.state = GONE
            self.waiting_count -= 1
            if self.watch is not None:
                self.watch.queued(self.env.ns)
            self.poke()
        elif sequence.state != GONE:
            self.aborts.append(sequence)
            self.poke()

    def let_go(self, sequence: Sequence) -> None:
        """Free the memory of *sequence*, which has ended and was parked; it may be gone already."""
        if sequence not in self.parked:
            return
        now = self.env.ns
        if self.watch is not None:
            self.watch.amid(now)
        del self.parked[sequence]
        if self.prefix is not None:
            self.prefix.trim(sequence)
        self.kv.drop(sequence, self.iteration)
        if self.watch is not None:
            self.watch.resume(now)
        self.poke()

    def poke(self) -> None:
        """Look at everything again when the iteration under way ends."""
        now = self.env.ns
        if self.turning:
            return
        if self.due < 0:
            if self.waiting_count:
                self.at_fs = now * FS_PER_NS
                self._ring(now)
        elif self.count > 1:
            self._cut(now)

    def youngest(self) -> Sequence | None:
        """Return the last admitted sequence that somebody still waits for."""
        for sequence in reversed(self.running):
            if sequence.owner is not None and sequence.state != GONE:
                return sequence
        return None

    def crash(self) -> list[Sequence]:
        """Drop everything at once; return what ran, what was parked and what waited, in order."""
        now = self.env.ns
        if self.watch is not None:
            self.watch.before(now)
        lost = [s for s in (*self.running, *self.parked) if s.owner is not None]
        lost += [s for _, _, s in sorted(self.waiting) if s.state != GONE]
        for sequence in (*self.running, *lost):
            sequence.state = GONE
        self.running.clear()
        self.parked.clear()
        self.waiting.clear()
        self.ends.clear()
        self.aborts.clear()
        self.chunks = []
        self.partial = None
        self.waiting_count = self.decoding = self.rel_sum = self.count = 0
        if self.prefix is not None:
            self.prefix.clear()
        if self.workspace is not None:
            self.workspace.clear()
        self.kv.clear()
        if self.segments is not None:
            self.segments.clear(now)
        self.due = -1
        self.down = True
        if self.watch is not None:
            self.watch.after(now)
        return lost

    def restart(self) -> None:
        """Come back, empty."""
        self.down = False

    # -- the end of iterations ---------------------------------------------------------------

    def _ring(self, at_ns: int) -> None:
        self.due = at_ns
        # Clock.ring, written out: this is called at every change of a batch
        heappush(self.queue, (at_ns, LAST, next(self.eid), self.alarm))

    def _cut(self, now: int) -> None:
        """End the iterations under way at the first boundary that is not before *now*."""
        elapsed = (now - 1) * FS_PER_NS - self.at_fs
        line = (self.base, self.slope, self.decoding, self.context)
        count = iterations_until(elapsed, *line) if elapsed > 0 else 1
        if count < self.count:
            self.count = count
            span = self.jump_fs = iterations_fs(count, *line)
            self._ring(-(-(self.at_fs + span) // FS_PER_NS))

    def done_by(self, now: int) -> int:
        """Return how many of the iterations under way have ended by *now*."""
        if not self.count:
            return 0
        elapsed = now * FS_PER_NS - self.at_fs
        if elapsed <= 0:
            return 0
        line = (self.base, self.slope, self.decoding, self.context)
        return min(self.count, iterations_until(elapsed, *line) - 1)

    def emitted(self, sequence: Sequence) -> int:
        """Return the tokens that *sequence* has put out by now."""
        if sequence.state == DECODE:
            done = self.iteration + self.done_by(self.env.ns)
            return sequence.output - max(0, sequence.finish_at - done)
        return sequence.emitted

    def kv_used_at(self, now: int) -> float:
        """Return the KV bytes in use at *now*, growth of the iterations under way included."""
        kv = self.pages
        if not self.count or kv is None:
            return self.kv.used_bytes
        grown = kv.growth(self.iteration, min(self.count, self.done_by(now) + 1))
        return kv.used_bytes + grown * kv.bytes_per_block

    def _turn(self, _: Any) -> None:
        """Ring: the iterations under way have ended, the next begin."""
        now = self.env.ns
        if now != self.due:
            return  # set back since
        self.due = -1
        self.turning = True
        # Move time and counts to the end of the iterations under way.
        if count := self.count:
            self.at_fs += self.jump_fs
            if self.pages is not None:
                self.pages.free -= self.pages.growth(self.iteration, count)
            self.iteration += count
            self.iterations += count
            self.count = 0
        elif self.chunks:
            self.at_fs += self.span_fs
            self.iterations += 1
            self.iteration += self.decodes
        watch = self.watch
        if watch is not None:
            watch.before(now)
        self._settle()
        while not self._chosen():
            pass
        self.turning = False
        if watch is not None:
            watch.after(now)

    # -- the next iterations -----------------------------------------------------------------

    def _chosen(self) -> bool:
        """Choose a batch; False where somebody was killed for it and another may do."""
        chunks: list[tuple[Sequence, int]] = []
        barred = False  # whether somebody was preempted: then nobody enters in this iteration
        self.growth = 0
        pages = self.pages
        if self.chunked:
            if self.decoding and pages is not None:
                self.growth = growth = pages.classes[self.iteration % pages.block_tokens]
                if growth > pages.free:
                    barred = self._make_room()
            if self.partial is not None:
                barred = self._continue(self.partial, chunks) or barred
            if not barred and self.waiting_count:
                self._admit(chunks, self.max_tokens - self.decoding)
        else:
            if self.waiting_count:
                self._admit(chunks, self.max_tokens)
            if not chunks and self.decoding:
                barred = self._make_room()
        if self.down:
            return True
        if chunks:
            if self.workspace is not None and not self._work(chunks):
                return self.down
            self._run_mixed(chunks)
        elif self.decoding:
            self._run_decode(barred)
        else:  # where the only one that ran was killed, others may enter
            return not (barred and self.waiting_count)
        return True

    def _work(self, chunks: list[tuple[Sequence, int]]) -> bool:
        """Allocate the workspace of *chunks*; who makes it too much is killed. False: start anew.

        The allocator fails inside the forward pass: the last admitted of them dies of it.
        """
        workspace = self.workspace
        assert workspace is not None
        if workspace.take(sum(chunk for _, chunk in chunks) + self.decoding):
            return True
        for sequence, chunk in chunks:  # none of them has come about
            self.kv.give_back(sequence, chunk)
        for sequence, _ in chunks[:-1]:
            if sequence.computed == sequence.cached:
                self._send_back(sequence)
        victim = chunks[-1][0]
        self._remove(victim)
        if victim.owner is not None:
            self.host.out_of_memory(self, victim)
        return False

    def _send_back(self, sequence: Sequence) -> None:
        """Let *sequence* wait again: the iteration it was admitted for has not happened."""
        self._release(sequence)
        sequence.state = WAITING
        sequence.computed = sequence.cached = 0
        if sequence.owner is None:
            sequence.state = GONE
        else:
            self._enqueue(sequence)

    def _run_mixed(self, chunks: list[tuple[Sequence, int]]) -> None:
        self.chunks = chunks
        if len(chunks) == 1:
            sequence, chunk = chunks[0]
            new, past = [chunk], [sequence.computed]
        else:
            new = [chunk for _, chunk in chunks]
            past = [sequence.computed for sequence, _ in chunks]
        self.decodes = self.chunked and self.decoding > 0
        if self.decodes:
            context = self.rel_sum + self.decoding * self.iteration
            self.span_fs = self.rates.mixed(new, past, self.decoding, context)
            if self.pages is not None:
                self.pages.free -= self.growth
        else:
            self.span_fs = self.rates.mixed(new, past, 0, 0)
        self._ring(-(-(self.at_fs + self.span_fs) // FS_PER_NS))

    def _run_decode(self, barred: bool) -> None:
        ends = self.ends
        while True:
            at, _, sequence = ends[0]
            if sequence.state == DECODE and sequence.finish_at == at:
                break
            heappop(ends)
        count = 1 if barred else at - self.iteration
        if self.pages is not None:
            count = self.pages.longest(self.iteration, count)
        assert count >= 1
        batch, rates = self.decoding, self.rates
        line = rates.lines.get(batch)
        if line is None:
            line = rates.decode(batch)
        base, slope = self.base, self.slope = line
        context = self.context = self.rel_sum + batch * self.iteration
        self.count = count
        span = count * base + slope * (count * context + batch * (count * (count - 1) // 2))
        self.jump_fs = span
        self.due = due = -(-(self.at_fs + span) // FS_PER_NS)
        heappush(self.queue, (due, LAST, next(self.eid), self.alarm))
