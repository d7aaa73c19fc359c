"""Every request is accounted for once, whatever stands between it and its end."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from arms import arm, run, trace

from dispatch.config import PolicyConfig, WaitConfig
from dispatch.errors import InputError
from dispatch.outcomes import Outcome, RootCause
from sim.config import DoorConfig, FaultConfig, PoolConfig, TelemetryConfig, TransferConfig

KINDS = (
    "gpu_lost", "link_degraded", "ecc_slow", "telemetry_outage", "router_crash", "memory_leak",
    "arrival_surge", "slow_client", "cancel",
)  # fmt: skip

faults = st.builds(
    FaultConfig,
    kind=st.sampled_from(KINDS),
    at_s=st.floats(0, 20),
    duration_s=st.floats(0.1, 15),
    factor=st.sampled_from([1.5, 3.0, 40.0]),
    ratio=st.floats(0, 1),
)
rates = st.builds(
    FaultConfig,
    kind=st.sampled_from(KINDS),
    rate_per_h=st.floats(100, 2000),
    duration_s=st.floats(0.1, 4),
)
engines = st.fixed_dictionaries({
    "kv": st.sampled_from(["paged", "contiguous"]),
    "admission": st.sampled_from(["optimistic", "guarded"]),
    "preemption": st.sampled_from(["none", "recompute"]),
    "chunked_prefill": st.booleans(),
    "scheduling": st.sampled_from(["fcfs", "priority"]),
    "oom_kills": st.sampled_from(["request", "process"]),
    "allocator": st.sampled_from(["arena", "caching"]),
    "prefix_cache": st.sampled_from(["off", "lru", "lfu", "length"]),
    "restart_s": st.sampled_from([0.0, 3.0]),
    "max_num_seqs": st.sampled_from([1, 4, 64]),
    "max_waiting": st.sampled_from([0, 3, 4096]),
    "memory_utilization_ratio": st.sampled_from([0.24, 0.3, 0.9]),
})  # fmt: skip
sections = st.fixed_dictionaries({
    "door": st.one_of(
        st.builds(DoorConfig, kind=st.just("direct"), dispatchers=st.integers(1, 3),
                  decision_us=st.sampled_from([20.0, 4e5])),
        st.builds(DoorConfig, kind=st.just("legacy"), workers=st.integers(1, 4),
                  queue_limit=st.sampled_from([0, 5, 4096]), retries=st.integers(0, 2),
                  timeout_s=st.sampled_from([0.5, 30.0]),
                  handling_mean_ms=st.sampled_from([8.4, 900.0])),
    ),
    "policy": st.builds(PolicyConfig, name=st.sampled_from(
        ["static_weights", "topology", "round_robin", "least_requests"])),
    "wait": st.builds(WaitConfig, deadline_s=st.sampled_from([1.0, 30.0]),
                      hold_limit=st.sampled_from([0, 4, 4096]), retries=st.integers(0, 2)),
    "telemetry": st.builds(TelemetryConfig, loss_ratio=st.sampled_from([0.0, 0.5]),
                           on_stale=st.sampled_from(["ignore", "last_known", "saturated"])),
    "drain_s": st.sampled_from([0.0, 60.0]),
    "faults": st.lists(st.one_of(faults, rates), max_size=4).map(tuple),
})  # fmt: skip
arrivals = st.lists(
    st.tuples(st.floats(0, 2), st.integers(1, 9000), st.integers(1, 400)), min_size=1, max_size=60
)


def check(facts, requests, decisions, offered):
    ended = {Outcome(o).name: n for o, n in requests["outcome"].value_counts().items()}
    assert facts.offered == offered == len(requests) == sum(facts.outcomes.values())
    assert requests["request"].is_unique
    assert {k: v for k, v in facts.outcomes.items() if v} == ended
    failed = ~requests["outcome"].isin([Outcome.finished, Outcome.in_flight])
    assert (requests.loc[failed, "root_cause"] != RootCause.none).all()
    assert (requests.loc[~failed & (requests["attempts"] == 1), "root_cause"] == 0).all()
    done = requests[requests["outcome"] == Outcome.finished]
    assert (done["end_s"] >= done["first_token_s"]).all()
    assert (done["first_token_s"] > done["started_s"]).all()
    assert (done["started_s"] >= done["decision_end_s"] - 1e-9).all()
    assert (done["decision_end_s"] >= done["arrival_s"] - 1e-9).all()
    assert (decisions.groupby("request").size() >= 1).all()


@settings(max_examples=120)
@given(rows=arrivals, engine=engines, parts=sections)
def test_offered_is_the_sum_of_outcomes_under_any_door_engine_and_fault(rows, engine, parts):
    gaps, prompts, outputs = zip(*rows, strict=True)
    offered = trace(np.cumsum(gaps), prompts, outputs, block_hashes=np.arange(len(rows)) % 3,
                    block_offsets=np.arange(len(rows) + 1), block_tokens=512)  # fmt: skip
    pools = (
        PoolConfig(name="a", gpu="A100-80G", count=2),
        PoolConfig(name="b", gpu="V100-32G", count=1, tp=4, weight=2),
    )
    engine = {**engine, "max_num_batched_tokens": 2048}
    if engine["kv"] == "contiguous":
        engine["prefix_cache_blocks"] = 2
    if engine["memory_utilization_ratio"] < 0.9:
        pools = pools[:1]
    facts, requests, decisions, _ = run(offered, arm(pools=pools, engine=engine, **parts))
    if any(f.kind == "arrival_surge" for f in parts["faults"]):
        assert facts.offered >= len(offered)
        check(facts, requests, decisions, facts.offered)
    else:
        check(facts, requests, decisions, len(offered))


@settings(max_examples=40)
@given(
    rows=arrivals, link=st.sampled_from(["nvlink", "pcie", "nic"]),
    deadline=st.sampled_from([1, 30]), faults=st.lists(faults, max_size=2).map(tuple),
    kv=st.sampled_from(["paged", "contiguous"]),
)  # fmt: skip
def test_prefill_and_decode_apart_lose_no_request(rows, link, deadline, faults, kv):
    gaps, prompts, outputs = zip(*rows, strict=True)
    pools = (
        PoolConfig(name="p", gpu="A100-80G", count=1, role="prefill"),
        PoolConfig(name="d", gpu="A100-80G", count=2, role="decode"),
    )
    offered = trace(np.cumsum(gaps), prompts, outputs)
    setup = arm(
        pools=pools, engine={"kv": kv}, wait=WaitConfig(deadline_s=deadline, hold_limit=100),
        transfer=TransferConfig(enabled=True, link=link), faults=faults,
        policy=PolicyConfig(name="least_requests"),
    )  # fmt: skip
    facts, requests, decisions, _ = run(offered, setup)
    check(facts, requests, decisions, facts.offered)


@given(
    rows=arrivals,
    cuts=st.lists(st.integers(0, 60), max_size=4),
    legacy=st.booleans(),
    drain_s=st.sampled_from([0.0, 1.0, 60.0]),
    struck=st.lists(st.one_of(faults, rates), max_size=3).map(
        lambda found: tuple(f for f in found if f.kind != "arrival_surge")
    ),
)
@settings(max_examples=60)
def test_a_trace_in_parts_gives_the_rows_of_the_whole_one(rows, cuts, legacy, drain_s, struck):
    gaps, prompts, outputs = zip(*rows, strict=True)
    whole = trace(np.cumsum(gaps), prompts, outputs)
    door = DoorConfig(kind="legacy", workers=1, handling_mean_ms=400.0) if legacy else DoorConfig()
    setup = arm(count=2, door=door, drain_s=drain_s, wait=WaitConfig(deadline_s=5.0), faults=struck)
    edges = [0, *sorted(min(c, len(rows)) for c in cuts), len(rows)]
    parts = [
        whole.take(np.arange(a, b), whole.arrival_s[a:b]) for a, b in itertools.pairwise(edges)
    ]  # fmt: skip
    _, one, first, _ = run(whole, setup)
    _, other, second, _ = run(iter(parts), setup)
    assert one.equals(other)
    assert first.equals(second)


def test_a_surge_needs_the_whole_trace_and_says_so():
    surge = FaultConfig(kind="arrival_surge", at_s=0.0)
    slow = FaultConfig(kind="ecc_slow", at_s=0.0)
    with pytest.raises(InputError, match=r"faults\[1\].*give the trace whole"):
        run(iter([trace([0.0, 1.0])]), arm(faults=(slow, surge)))
