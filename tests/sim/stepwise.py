"""A plain engine that steps every token of every sequence: the judge of the jump-ahead engine.

Nothing is shared with it but the cost model: lists instead of heaps and closed forms, blocks
counted sequence by sequence, one SimPy process that waits for every single iteration.
"""

from dataclasses import dataclass, field

import simpy

FS_PER_NS = 10**6
FS = 10**15


@dataclass(eq=False)
class Item:
    name: int
    prompt: int
    output: int
    max_tokens: int
    priority: int = 0
    order: int = 0
    emitted: int = 0
    computed: int = 0
    blocks: int = 0
    address: int | None = None
    cancelled: bool = False
    ended: str = ""
    times: list[float] = field(default_factory=list)
    end_s: float = -1.0
    started_ns: int = -1
    preemptions: int = 0
    primed: bool = False  # its prompt, and after a preemption what it had put out, is computed

    @property
    def goal(self) -> int:
        return self.prompt + self.emitted


class Stepwise:
    """Continuous batching, one iteration after the other."""

    def __init__(self, env, cost, *, kv, block_tokens=16, blocks=0, arena=None, max_seqs=256,
                 max_tokens=8192, chunked=True, by_priority=False, optimistic=False,
                 recompute=True):  # fmt: skip
        self.env, self.cost = env, cost
        self.kv, self.block_tokens = kv, block_tokens
        self.free_blocks, self.blocks = blocks, blocks
        self.arena = arena
        self.max_seqs, self.max_tokens, self.chunked = max_seqs, max_tokens, chunked
        self.by_priority, self.optimistic, self.recompute = by_priority, optimistic, recompute
        self.whole = kv == "paged" and not optimistic and not recompute
        self.waiting, self.running = [], []
        self.factor = 1.0
        self.orders = 0
        self.wake = None
        env.process(self.run())

    def submit(self, item):
        self.orders += 1
        item.order = self.orders
        self.waiting.append(item)
        if self.wake is not None and not self.wake.triggered:
            self.wake.succeed()

    def cancel(self, item):
        if item.ended:
            return
        item.cancelled = True
        if item in self.waiting:
            self.waiting.remove(item)
            item.ended = "cancelled"
        if self.wake is not None and not self.wake.triggered and self.waiting:
            self.wake.succeed()

    def at_end_of_instant(self, ns):
        event = simpy.Event(self.env)
        event._ok, event._value = True, None
        self.env.schedule(event, 2, ns - self.env.now)
        return event

    def run(self):
        at = 0
        idle = True
        while True:
            batch = self.choose()
            if not batch:
                if not idle and self.waiting and self.restart_choice:
                    continue
                idle = True
                self.wake = simpy.Event(self.env)
                yield self.wake
                self.wake = None
                yield self.at_end_of_instant(self.env.now)
                at = self.env.now * FS_PER_NS
                continue
            idle = False
            at += self.duration(batch)
            yield self.at_end_of_instant(-(-at // FS_PER_NS))
            self.finish(batch, at)

    # -- one iteration

    def line(self, batch):
        base, slope = self.cost.decode_line(batch)
        return max(1, round(base * FS * self.factor)), max(0, round(slope * FS * self.factor))

    def duration(self, batch):
        decodes = [i for i, n in batch if n == 0]
        chunks = [(i, n) for i, n in batch if n > 0]
        context = sum(i.prompt + i.emitted - 1 for i in decodes)
        if not chunks:
            base, slope = self.line(len(decodes))
            return base + slope * context
        seconds = self.cost.mixed_s(
            [n for _, n in chunks], [i.computed for i, _ in chunks], len(decodes), context
        )
        return max(1, round(seconds * FS * self.factor))

    def finish(self, batch, at):
        now_s = -(-at // FS_PER_NS) / 1e9
        for item, tokens in batch:
            if tokens:
                item.computed += tokens
                if item.computed < item.goal:
                    continue
            else:
                item.computed += 1
            item.primed = True
            item.emitted += 1
            if not item.cancelled:
                item.times.append(at / FS)
            if item.emitted == item.output:
                self.leave(item, "finished")
                item.end_s = now_s
        for item in [i for i in self.running if i.cancelled]:
            self.leave(item, "cancelled")

    def leave(self, item, how):
        self.running.remove(item)
        self.release(item)
        item.ended = "cancelled" if item.cancelled else how

    def release(self, item):
        self.free_blocks += item.blocks
        item.blocks = 0
        if item.address is not None:
            self.arena.free(item.address)
            item.address = None

    # -- who takes part

    def decoding(self):
        return [i for i in self.running if i.primed]

    def grow(self, item, tokens):
        if self.kv != "paged" or self.whole:
            return True
        need = -(-tokens // self.block_tokens) - item.blocks
        if need > self.free_blocks:
            return False
        self.free_blocks -= max(0, need)
        item.blocks += max(0, need)
        return True

    def enter(self, item, chunk):
        if self.kv == "paged":
            if self.whole:
                tokens = -(-(item.prompt + item.max_tokens) // self.block_tokens)
                if tokens > self.free_blocks:
                    return False
                self.free_blocks -= tokens
                item.blocks = tokens
                return True
            return self.grow(item, chunk)
        item.address = self.arena.allocate((item.prompt + item.max_tokens) * 512)
        return item.address is not None

    def order_of(self, item):
        return (item.priority, item.order) if self.by_priority else (0, item.order)

    def evict(self):
        item = self.running[-1]
        if self.by_priority:
            item = max(self.running, key=self.order_of)
        if not self.recompute or len(self.running) == 1:
            self.leave(item, "oom")
            return item
        self.running.remove(item)
        self.release(item)
        item.computed = 0
        item.primed = False
        item.preemptions += 1
        if item.cancelled:
            item.ended = "cancelled"
        else:
            self.waiting.append(item)
        return item

    def choose(self):
        self.restart_choice = False
        self.waiting.sort(key=self.order_of)
        if not self.chunked:
            batch = self.admit(self.max_tokens, [])
            return batch or self.decode_batch([])[0]
        batch, evicted = self.decode_batch([])
        budget = self.max_tokens - len(batch)
        partial = [i for i in self.running if i not in [b for b, _ in batch]]
        for item in partial:
            chunk = min(item.goal - item.computed, budget)
            while chunk > 0 and item in self.running:
                if self.grow(item, item.computed + chunk):
                    batch.append((item, chunk))
                    budget -= chunk
                    break
                evicted = True
                gone = self.evict()
                batch = [(i, n) for i, n in batch if i is not gone]
        if not evicted:
            batch = self.admit(budget, batch)
        elif not batch:
            self.restart_choice = True
        return batch

    def decode_batch(self, batch):
        """Every decoding sequence gets its next slot, in order; the last must go where none is."""
        evicted = False
        served = []
        for item in self.decoding():
            while item in self.running and not self.grow(item, item.computed + 1):
                gone = self.evict()
                evicted = True
                served = [i for i in served if i is not gone]
            if item in self.running:
                served.append(item)
        if evicted and not served and not self.running:
            self.restart_choice = True
        return [(i, 0) for i in served], evicted

    def admit(self, budget, batch):
        self.waiting.sort(key=self.order_of)
        entered = False
        while self.waiting and len(self.running) < self.max_seqs and budget > 0:
            item = self.waiting[0]
            left = item.goal
            chunk = min(left, budget) if self.chunked else left
            if chunk > budget and entered:
                break
            if not self.enter(item, chunk):
                alone = not self.running and self.kv == "paged"
                if self.optimistic or alone:
                    self.waiting.pop(0)
                    item.ended = "oom"
                    continue
                break
            self.waiting.pop(0)
            self.running.append(item)
            if item.started_ns < 0:
                item.started_ns = self.env.now
            batch = [*batch, (item, chunk)]
            budget -= chunk
            entered = True
        return batch
