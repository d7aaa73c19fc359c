"""The jump-ahead engine and a plain stepwise engine give every sequence the same times."""

import sys
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from stepwise import Item, Stepwise

from dispatch.arena import ContiguousArena
from sim.clock import Clock
from sim.config import EngineConfig
from sim.engine import Engine
from sim.memory import ContiguousKv, PagedKv
from sim.rates import Rates
from sim.sequence import Sequence

BLOCK = 4
TOKEN = 512  # bytes: what an arena aligns to


@dataclass(frozen=True)
class LineCost:
    """A cost model with every dependence a real one has, from three numbers."""

    base_s: float = 3e-3
    slope_s: float = 7.1e-7
    token_s: float = 2.3e-5

    def decode_line(self, batch):
        return self.base_s + 1.7e-5 * batch, self.slope_s

    def mixed_s(self, new_tokens, past_tokens, decode_batch=0, decode_context=0.0):
        attended = sum(n * (p + n / 2) for n, p in zip(new_tokens, past_tokens, strict=True))
        new = sum(new_tokens)
        return (
            self.base_s
            + self.token_s * (new + decode_batch)
            + self.slope_s * (decode_context + attended * 0.01)
        )


class Recorder:
    def __init__(self):
        self.first, self.end, self.started_at, self.how = {}, {}, {}, {}

    def started(self, sequence):
        self.started_at.setdefault(sequence.owner, self.env.now)

    def first_token(self, sequence):
        self.first[sequence.owner] = self.env.now / 1e9

    def finished(self, sequence):
        self.end[sequence.owner] = self.env.now / 1e9
        self.how[sequence.owner] = "finished"

    def out_of_memory(self, engine, sequence):
        self.how[sequence.owner] = "oom"


requests = st.lists(
    st.tuples(
        st.integers(0, 300),  # ms since the one before
        st.integers(1, 90),  # prompt
        st.integers(1, 60),  # output
        st.integers(0, 30),  # max_tokens beyond it
        st.integers(0, 2),  # priority
        st.one_of(st.none(), st.integers(0, 900)),  # cancelled this many ms after arrival
    ),
    min_size=1,
    max_size=25,
)
slowdowns = st.lists(
    st.tuples(st.integers(0, 2_000), st.sampled_from([0.5, 1.0, 2.0, 3.7])), max_size=3
)
shapes = st.fixed_dictionaries({
    "kv": st.sampled_from(["paged", "contiguous"]),
    "chunked": st.booleans(),
    "by_priority": st.booleans(),
    "optimistic": st.booleans(),
    "recompute": st.booleans(),
    "max_seqs": st.integers(1, 12),
    "max_tokens": st.integers(12, 64),
    "pool": st.integers(30, 90),  # blocks of 4 tokens
})  # fmt: skip


def jump(shape, rows, slow):
    env = Clock()
    host = Recorder()
    host.env = env
    config = EngineConfig(
        kv=shape["kv"], block_tokens=BLOCK, max_num_seqs=shape["max_seqs"],
        max_num_batched_tokens=shape["max_tokens"], chunked_prefill=shape["chunked"],
        scheduling="priority" if shape["by_priority"] else "fcfs",
        admission="optimistic" if shape["optimistic"] else "guarded",
        preemption="recompute" if shape["recompute"] else "none",
    )  # fmt: skip
    if shape["kv"] == "paged":
        whole = not shape["optimistic"] and not shape["recompute"]
        kv = PagedKv(shape["pool"] * BLOCK, 1.0, BLOCK, whole)
    else:
        kv = ContiguousKv(shape["pool"] * BLOCK * TOKEN, TOKEN)
    rates = Rates(LineCost())
    engine = Engine(env, host, 0, kv, rates, config)
    made = {}

    def arrive(name):
        sequence = Sequence(name, *made_of(rows[name]))
        made[name] = sequence
        if kv.ever_fits(sequence):
            engine.submit(sequence)
        else:
            host.how[name] = "refused"

    def leave(name):
        if name not in host.how:
            host.how[name] = "cancelled"
            engine.cancel(made[name])

    def pace(factor):
        engine.rates = Rates(LineCost(), factor)
        engine.poke()

    schedule(env, rows, slow, arrive, leave, pace)
    env.run(until=10**13)
    check_empty(engine, kv)
    return host, {n: s.preemptions for n, s in made.items()}


def made_of(row):
    _, prompt, output, beyond, priority, _ = row
    return prompt, output, output + beyond, priority


def schedule(env, rows, slow, arrive, leave, pace):
    at = 0
    for name, row in enumerate(rows):
        at += row[0] * 10**6
        env.call_at(at, arrive, name)
        if row[5] is not None:
            env.call_at(at + row[5] * 10**6 + 1, leave, name)
    for ms, factor in slow:
        env.call_at(ms * 10**6, pace, factor)


def check_empty(engine, kv):
    assert not engine.running
    assert engine.decoding == engine.rel_sum == engine.waiting_count == 0
    if isinstance(kv, PagedKv):
        assert kv.free == kv.blocks
        assert kv.members == 0
        assert not any(kv.classes)
    else:
        assert kv.used_bytes == 0


def step(shape, rows, slow):
    env = Clock()
    engine = Stepwise(
        env, LineCost(), kv=shape["kv"], block_tokens=BLOCK, blocks=shape["pool"],
        arena=ContiguousArena(shape["pool"] * BLOCK * TOKEN), max_seqs=shape["max_seqs"],
        max_tokens=shape["max_tokens"], chunked=shape["chunked"],
        by_priority=shape["by_priority"], optimistic=shape["optimistic"],
        recompute=shape["recompute"],
    )  # fmt: skip
    made = {}

    def arrive(name):
        item = Item(name, *made_of(rows[name]))
        made[name] = item
        if engine.kv == "paged":
            later = item.max_tokens if engine.whole else 1
            fits = -(-(item.prompt + later) // BLOCK) <= engine.blocks
        else:
            fits = (item.prompt + item.max_tokens) * TOKEN <= engine.arena.size_bytes
        if fits:
            engine.submit(item)
        else:
            item.ended = "refused"

    def pace(factor):
        engine.factor = factor

    schedule(env, rows, slow, arrive, lambda name: engine.cancel(made[name]), pace)
    env.run(until=10**13)
    return made


@settings(max_examples=300)
@given(shape=shapes, rows=requests, slow=slowdowns)
def test_token_times_are_those_of_the_stepwise_engine(shape, rows, slow):
    shape = {**shape, "max_tokens": max(shape["max_tokens"], shape["max_seqs"])}
    host, preemptions = jump(shape, rows, slow)
    judged = step(shape, rows, slow)
    for name, item in judged.items():
        assert host.how.get(name, "") == item.ended, name
        if item.times:
            assert abs(host.first[name] - item.times[0]) <= 1.001e-9
            assert abs(host.started_at[name] - item.started_ns) <= 1
        if item.ended == "finished":
            assert abs(host.end[name] - item.times[-1]) <= 1.001e-9
            assert preemptions[name] == item.preemptions
