"""Who dies of memory, when, and what the journal says was the cause."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import itertools

from arms import arm, run, trace

from dispatch.config import PolicyConfig, WaitConfig
from dispatch.outcomes import Outcome, RootCause
from sim.config import FaultConfig, ModelConfig, PoolConfig
from sim.memory import ContiguousKv, PagedKv
from sim.run import _Run
from sim.sequence import Sequence

OPTIMISTIC = {"kv": "contiguous", "admission": "optimistic", "preemption": "none"}
BLIND = PolicyConfig(name="round_robin")  # looks at no memory


def small(capacity_share=0.25, **engine):
    """Return an engine section that leaves little KV memory on an A100-80G."""
    return {**OPTIMISTIC, "memory_utilization_ratio": capacity_share, **engine}


def causes(rows, outcome):
    return {RootCause(c) for c in rows.loc[rows["outcome"] == outcome, "root_cause"]}


def test_a_request_that_fits_nowhere_dies_because_the_fleet_is_full():
    _, rows, _, _ = run(trace([0.0] * 12, 3000, 100), arm(count=1, policy=BLIND, engine=small()))
    assert (rows["outcome"] == Outcome.oom).any()
    assert causes(rows, Outcome.oom) == {RootCause.fleet_full}
    assert (rows.loc[rows["outcome"] == Outcome.oom, "fitting_device"] == -1).all()


def test_memory_was_misjudged_where_another_device_could_have_held_the_request():
    pools = [PoolConfig(name="small", gpu="A100-40G", count=1, weight=9),
             PoolConfig(name="big", gpu="A100-80G", count=1, weight=1)]  # fmt: skip
    engine = {**OPTIMISTIC, "memory_utilization_ratio": 0.5}
    setup = arm(pools=pools, policy=PolicyConfig(name="static_weights"), engine=engine)
    _, rows, _, _ = run(trace([0.0] * 12, 6000, 100), setup)
    dead = rows[rows["outcome"] == Outcome.oom]
    assert len(dead)
    assert (dead["root_cause"] == RootCause.memory_misjudged).all()
    assert (dead["fitting_device"] == 1).all()
    assert (dead["device"] == 0).all()


def test_free_bytes_without_a_block_large_enough_are_fragmentation():
    # Four neighbours of unlike life leave two holes; the last is larger than either.
    engine = small(max_num_batched_tokens=8192)
    setup = arm(count=1, policy=BLIND, engine=engine, wait=WaitConfig(deadline_s=100))
    probe = _Run(trace([0.0]), setup, 1, _journal(), None)
    tokens = int(probe.world.engines[0].kv.arena.size_bytes / 131072)
    quarter = tokens // 4 - 20
    arrival = [0.0, 0.0, 0.0, 0.0, 20.0]
    output = [10, 1000, 10, 1000, 10]
    prompt = [quarter - o for o in output[:4]] + [tokens // 2 - 400]
    offered = trace(arrival, prompt, output, max_tokens=np.array(output, dtype=np.int32))
    late = trace([*arrival[:4], 4.0], prompt, output,
                 max_tokens=np.array(output, dtype=np.int32))  # fmt: skip
    _, rows, _, devices = run(late, setup)
    by_row = rows.sort_values("request")
    assert list(by_row["outcome"]) == [1, 1, 1, 1, Outcome.oom]
    assert by_row["root_cause"].iloc[-1] == RootCause.fragmentation
    assert devices["fragmentation"].max() > 0.3
    _, rows, _, _ = run(offered, setup)  # later, when all have gone
    assert (rows["outcome"] == Outcome.finished).all()


def _journal():
    from dispatch.journal import Journal

    return Journal()


def test_guarded_admission_waits_where_optimistic_admission_dies():
    offered = trace([0.0] * 12, 3000, 100)
    died, _, _, _ = run(offered, arm(count=1, policy=BLIND, engine=small()))
    waited, rows, _, _ = run(offered, arm(count=1, policy=BLIND, engine=small(admission="guarded")))
    assert died.outcomes["oom"] > 0
    assert waited.outcomes["finished"] == 12
    assert rows["started_s"].nunique() > 1


def test_an_oom_that_kills_the_process_loses_all_it_held_and_costs_the_restart():
    offered = trace([0.0] * 12 + [2.0, 20.0], 3000, 1000)
    setup = arm(count=1, policy=BLIND, engine=small(oom_kills="process", restart_s=15.0))
    facts, rows, _, devices = run(offered, setup)
    by_row = rows.sort_values("request")["outcome"].to_numpy()
    assert facts.oom_events == 1
    assert (by_row[:12] == Outcome.oom).sum() == 1
    assert (by_row[:12] == Outcome.failed).sum() == 11
    assert by_row[12] in (Outcome.failed, Outcome.rejected)  # while it restarts
    assert by_row[13] == Outcome.finished
    assert (devices[devices["time_s"].between(1, 14)]["busy_ratio"] == 0).all()


def test_paged_preemption_recomputes_what_was_lost_and_everybody_finishes():
    engine = {"memory_utilization_ratio": 0.25}
    facts, rows, _, _ = run(trace([0.0] * 40, 500, 600), arm(count=1, policy=BLIND, engine=engine))
    assert facts.preemptions > 0
    assert facts.outcomes["finished"] == 40
    assert rows["preemptions"].sum() == facts.preemptions


def test_without_preemption_the_pool_is_reserved_whole_and_nobody_is_thrown_out():
    engine = {"memory_utilization_ratio": 0.25, "preemption": "none"}
    facts, _, _, _ = run(trace([0.0] * 40, 500, 600), arm(count=1, policy=BLIND, engine=engine))
    assert facts.preemptions == facts.oom_events == 0
    assert facts.outcomes["finished"] == 40


def test_paged_memory_holds_what_a_contiguous_reservation_of_max_tokens_cannot():
    offered = trace([0.0] * 30, 300, 20)
    paged, _, _, _ = run(
        offered, arm(count=1, policy=BLIND, engine={"memory_utilization_ratio": 0.25})
    )
    whole, _, _, _ = run(offered, arm(count=1, policy=BLIND, engine=small()))
    assert paged.outcomes["oom"] == 0 < whole.outcomes["oom"]


def test_workspace_through_the_caching_allocator_can_be_what_kills_a_request():
    """Weights and KV fit; the activations of the prompt do not find a segment."""
    offered = trace(np.arange(30) * 0.01, 2000, 400)
    plain = small(0.26, max_num_batched_tokens=2048)
    arena, _, _, _ = run(offered, arm(count=1, policy=BLIND, engine=plain))
    caching, rows, _, _ = run(
        offered, arm(count=1, policy=BLIND, engine={**plain, "allocator": "caching"})
    )
    assert caching.outcomes["oom"] > 0
    assert caching.outcomes != arena.outcomes
    assert (rows["outcome"] != Outcome.in_flight).all()


@pytest.mark.parametrize("prefix_cache", ["off", "lru"])
def test_blocks_of_an_iteration_that_found_no_workspace_come_back(prefix_cache):
    """The run itself checks that no block is taken where nothing runs."""
    offered = trace(np.arange(60) * 0.05, 6000, 100, block_hashes=np.arange(180) % 7,
                    block_offsets=np.arange(61) * 3, block_tokens=2048)  # fmt: skip
    engine = {"allocator": "caching", "kernel_plan": "three_stage", "chunked_prefill": False,
              "max_num_batched_tokens": 16384, "prefix_cache": prefix_cache}  # fmt: skip
    leak = FaultConfig(kind="memory_leak", at_s=0.5, duration_s=100, factor=300.0)
    setup = arm(count=1, policy=BLIND, engine=engine, faults=(leak,), drain_s=100.0)
    facts, rows, _, _ = run(offered, setup)
    assert facts.outcomes["oom"] > 0
    assert (rows["outcome"] != Outcome.in_flight).all()


def test_group_capacity_is_that_of_its_gpus_together_less_one_share_of_the_weights():
    one = run(trace([0.0]), arm(pools=[PoolConfig(name="a", gpu="A100-80G", count=1)]))[0]
    four = run(trace([0.0]), arm(pools=[PoolConfig(name="a", gpu="A100-80G", count=1, tp=4)]))[0]
    capacity = [f.devices[0]["capacity_tokens"] for f in (one, four)]
    assert 4 * capacity[0] < capacity[1] < 5 * capacity[0]


def test_a_model_that_fits_no_gpu_is_an_error_that_says_by_how_much():
    from dispatch.errors import InputError

    pool = PoolConfig(name="a", gpu="V100-32G", count=1, model=ModelConfig(name="llama-2-70b"))
    with pytest.raises(InputError, match="GB"):
        run(trace([0.0]), arm(pools=[pool]))


def test_a_policy_that_looks_at_memory_holds_what_a_blind_one_lets_die():
    offered = trace([0.0] * 12, 3000, 100)
    blind, _, _, _ = run(offered, arm(count=1, policy=BLIND, engine=small()))
    sees, _, decisions, _ = run(offered, arm(
        count=1, engine=small(), policy=PolicyConfig(name="topology")))  # fmt: skip
    assert blind.outcomes["oom"] > 0 == sees.outcomes["oom"]
    assert sees.outcomes["finished"] == 12
    assert (decisions["device"] == -1).any()


@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 200)), min_size=1, max_size=20),
    st.integers(1, 16),
    st.integers(1, 300),
)
def test_blocks_of_any_number_of_iterations_follow_from_the_classes(rows, block, count):
    """The closed form against a count sequence by sequence."""
    kv = PagedKv(10**6, 1.0, block, whole=False)
    iteration = 37
    stored = []
    for number, (emitted, prompt) in enumerate(rows):
        sequence = Sequence(number, prompt, 10**6, 10**6)
        sequence.target = prompt + emitted - 1
        sequence.rel = sequence.target - iteration
        kv.join(sequence)
        stored.append(sequence.target)
    need = sum(-(-(s + count) // block) - -(-s // block) for s in stored)
    assert kv.growth(iteration, count) == need
    kv.free = need
    assert kv.longest(iteration, count) == count
    if need:
        kv.free = need - 1
        shorter = kv.longest(iteration, count)
        assert shorter < count
        assert kv.growth(iteration, shorter) <= kv.free < kv.growth(iteration, shorter + 1)


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=60), st.booleans())
def test_contiguous_ranges_never_overlap_and_all_comes_back(steps, caching):
    kv = ContiguousKv(256 << 20, 131072.0, caching=caching)
    held = []
    for number, (tokens, leave) in enumerate(steps):
        if leave and held:
            kv.drop(held.pop(tokens % len(held)), 0)
            continue
        sequence = Sequence(number, tokens, 1, 1)
        if kv.take(sequence, tokens, 0):
            held.append(sequence)
    spans = sorted((s.address, s.address + kv.size(s)) for s in held)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    assert 0 <= kv.largest_block_bytes <= kv.free_bytes
    for sequence in held:
        kv.drop(sequence, 0)
    assert kv.used_bytes == 0
