"""Running requests and the prefix cache share one pool of blocks, and the sums always agree."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from arms import arm, run, trace

from dispatch.config import PolicyConfig
from dispatch.errors import InputError, InvariantError
from dispatch.outcomes import Outcome
from sim.sequence import DECODE, PREFILL, Sequence
from sim.sharing import Residents, SharedKv, SharedPrefixes

BLIND = PolicyConfig(name="round_robin")
SIZE, UNIT = 4, 8  # tokens of a KV block, and of a block of the trace
RULES = ("lru", "lfu", "length")


def crowd(prompts, tokens=2048, gap_s=0.0, output=200):
    offsets = np.concatenate([[0], np.cumsum([len(b) for b in prompts])])
    return trace(np.arange(len(prompts)) * gap_s, tokens, output, block_offsets=offsets,
                 block_hashes=np.concatenate(prompts), block_tokens=512)  # fmt: skip


def shared(**engine):
    return arm(count=1, policy=BLIND, engine={"prefix_cache": "lru", **engine})


class Model:
    """A pool that is driven by hand, and the judge of its sums."""

    def __init__(self, blocks, whole, evict):
        self.kv = SharedKv(blocks * SIZE, 1.0, SIZE, whole, evict)
        self.prefixes = SharedPrefixes(self.kv)
        self.running: list[Sequence] = []
        self.iteration = 0

    def admit(self, hashes, tail, output, chunk):
        prompt = len(hashes) * UNIT + tail
        new = Sequence(None, prompt, output, output, hashes=hashes, block_tokens=UNIT)
        self.prefixes.match(new)
        chunk = min(chunk, new.target - new.computed)
        if self.kv.take(new, chunk, 0):
            self.prefixes.admit(new)
            new.state = PREFILL
            new.computed += chunk
            self.running.append(new)

    def go_on(self, at, chunk):
        """Compute the next chunk of a prompt, or begin to decode."""
        sequence = self.running[at]
        left = sequence.target - sequence.computed
        if sequence.state == DECODE:
            return
        if left:
            chunk = min(chunk, left)
            if self.kv.take(sequence, chunk, 0):
                sequence.computed += chunk
            return
        sequence.state = DECODE
        sequence.rel = sequence.target - self.iteration
        self.kv.join(sequence)

    def step(self):
        """One decode iteration of all, where there is room for it."""
        grown = self.kv.growth(self.iteration, 1)
        if grown <= self.kv.free:
            self.kv.free -= grown
            self.iteration += 1

    def leave(self, at):
        sequence = self.running.pop(at)
        self.kv.drop(sequence, self.iteration)
        if sequence.state == DECODE:
            self.kv.leave(sequence)

    def check(self):
        """Held blocks once each, what a request has to itself, and the free ones are the pool."""
        kv, residents = self.kv, self.kv.residents
        own = 0
        for s in self.running:
            if kv.whole:
                tokens = s.prompt + s.max_tokens
            else:
                tokens = s.rel + self.iteration if s.state == DECODE else s.computed
            own += -(-tokens // SIZE) - kv._shared.get(s, 0)
        assert kv.free + own + residents.held * kv.unit == kv.blocks
        assert 0 <= kv.free <= kv.blocks
        kv.trim()
        assert residents.idle * kv.unit <= kv.free
        held = {b for s in self.running for b in kv._held.get(s, ())}
        assert len(held) == residents.held
        for s in self.running:
            assert residents.match(tuple(kv._held.get(s, ())), 99) == len(kv._held.get(s, ()))


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["admit", "admit", "go_on", "go_on", "step", "leave"]),
        st.integers(0, 40), st.integers(0, 40), st.integers(1, 30), st.integers(1, 12),
    ),
    max_size=40,
)  # fmt: skip
TREE = ((1, 2, 3, 4), (1, 2, 5), (1, 6, 7), (8, 9), (8,), (10, 11, 12, 13, 14), ())


@given(steps=STEPS, blocks=st.integers(4, 40), whole=st.booleans(), evict=st.sampled_from(RULES))
@settings(max_examples=150)
def test_held_own_and_free_blocks_are_the_pool_after_any_steps(steps, blocks, whole, evict):
    model = Model(blocks, whole, evict)
    for step, which, tail, chunk, output in steps:
        if step == "admit":
            model.admit(TREE[which % len(TREE)], tail % UNIT + 1, output, chunk)
        elif step == "step":
            model.step()
        elif model.running:
            at = which % len(model.running)
            model.go_on(at, chunk) if step == "go_on" else model.leave(at)
        model.check()
    while model.running:
        model.leave(0)
        model.check()
    assert model.kv.free == blocks
    assert model.kv.residents.held == 0


def test_a_block_that_is_held_is_never_freed():
    residents = Residents("lru")
    residents.bring(1, 0)
    with pytest.raises(InvariantError, match="while it is held"):
        residents.forget(1)
    assert residents.release([1]) == 1
    with pytest.raises(InvariantError, match="does not hold"):
        residents.release([1])


@pytest.mark.parametrize(("evict", "gone"), [("lru", [3, 2, 1]), ("lfu", [3, 4, 2]),
                                            ("length", [3, 2, 1])])  # fmt: skip
def test_each_rule_lets_its_own_block_go_first(evict, gone):
    residents = Residents(evict)
    for depth, block in enumerate((1, 2, 3)):
        residents.bring(block, depth)
    residents.hold((1, 2))
    residents.release([1, 2])
    residents.release([1, 2, 3])
    residents.bring(4, 0)
    residents.release([4])
    assert [residents.evict() for _ in range(3)] == gone


def test_a_crowd_with_one_prompt_holds_it_once():
    offered = crowd([[1, 2, 3, 4]] * 20, gap_s=1.0, output=2000)
    used = {}
    for sharing in (True, False):
        _, rows, _, devices = run(offered, shared(prefix_sharing=sharing))
        assert (rows["outcome"] == Outcome.finished).all()
        used[sharing] = devices["kv_used_bytes"].max()
    assert used[True] < 0.6 * used[False]


def test_more_requests_run_at_once_where_their_prefix_is_shared():
    offered = crowd([[1, 2, 3, 4]] + [[1, 2, 3, 4]] * 60, gap_s=0.001, output=300)
    running = {}
    for sharing in (True, False):
        setup = shared(prefix_sharing=sharing, memory_utilization_ratio=0.26)
        _, rows, _, devices = run(offered, setup)
        assert (rows["outcome"] == Outcome.finished).all()
        running[sharing] = devices["running"].max()
    assert running[True] > 1.5 * running[False]


def test_the_free_kv_blocks_that_a_policy_reads_count_a_shared_prefix_once():
    offered = crowd([[1, 2, 3, 4]] * 12, gap_s=1.0, output=3000)
    seen = {}
    for sharing in (True, False):
        setup = shared(prefix_sharing=sharing).model_copy(
            update={"policy": PolicyConfig(name="topology")}
        )
        _, _, decisions, _ = run(offered, setup)
        seen[sharing] = decisions["best0_score"].min()
    assert seen[True] > seen[False]


def test_prompts_that_share_nothing_go_as_they_go_without_sharing():
    offered = crowd([[10 * i + j for j in range(4)] for i in range(30)], tokens=2100, gap_s=0.05)
    tables = [run(offered, shared(prefix_sharing=sharing))[1] for sharing in (True, False)]
    assert tables[0].equals(tables[1])


def test_the_last_kv_block_of_a_prompt_that_is_all_there_is_computed():
    offered = crowd([[1, 2, 3, 4]] * 2, gap_s=20.0)
    _, rows, _, _ = run(offered, shared())
    assert list(rows.sort_values("request")["cached_tokens"]) == [0, 2048 - 16]


def test_blocks_that_no_kv_block_divides_are_refused():
    with pytest.raises(InputError, match="no whole number"):
        run(crowd([[1, 2, 3, 4]]), shared(block_tokens=48))
