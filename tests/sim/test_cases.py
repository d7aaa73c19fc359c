"""Faults that users of routers met, replayed through the whole simulator."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arms import arm, run, trace

from dispatch.config import PolicyConfig, WaitConfig
from dispatch.errors import InputError
from dispatch.outcomes import Outcome, RootCause
from sim.config import (
    DoorConfig,
    FaultConfig,
    ModelConfig,
    PoolConfig,
    SignalConfig,
    TelemetryConfig,
)

LEAST = PolicyConfig(name="least_requests")
TOPOLOGY = PolicyConfig(name="topology")


def shares(rows, count):
    return [int((rows["device"] == i).sum()) for i in range(count)]


@pytest.mark.parametrize("policy", ["least_requests", "topology", "round_robin", "least_work"])
def test_a_burst_on_one_snapshot_spreads_evenly_over_equal_idle_replicas(policy):
    telemetry = TelemetryConfig(interval_ms=10_000.0)
    setup = arm(count=4, policy=PolicyConfig(name=policy), telemetry=telemetry)
    _, rows, _, _ = run(trace(np.full(100, 1.0)), setup)
    assert shares(rows, 4) == [25, 25, 25, 25]


def test_without_reservations_the_same_burst_herds():
    telemetry = TelemetryConfig(interval_ms=10_000.0, reservations=False)
    _, rows, _, _ = run(
        trace(np.full(100, 1.0)), arm(count=4, policy=TOPOLOGY, telemetry=telemetry)
    )
    assert max(shares(rows, 4)) == 100


def test_long_prefills_are_counted_at_dispatch_and_not_at_their_first_token():
    _, rows, _, _ = run(trace(np.arange(8) * 1e-3, 30_000, 1), arm(count=4, policy=LEAST))
    assert shares(rows, 4) == [2, 2, 2, 2]


def test_two_simultaneous_arrivals_on_two_idle_replicas_go_one_each():
    for policy in ("least_requests", "topology", "least_kv"):
        _, rows, _, _ = run(trace([0.0, 0.0]), arm(count=2, policy=PolicyConfig(name=policy)))
        assert sorted(shares(rows, 2)) == [1, 1]


def test_a_client_that_leaves_frees_its_seat_and_its_memory_at_the_next_iteration():
    gone = FaultConfig(kind="cancel", at_s=0.0, duration_s=0.005, factor=1.0)
    engine = {"max_num_seqs": 1, "max_num_batched_tokens": 2048}
    setup = arm(count=1, policy=LEAST, engine=engine, faults=(gone,))
    _, rows, _, devices = run(trace([0.0, 0.01], 100, 3000, max_tokens=np.full(2, 3000, np.int32)),
                              setup)  # fmt: skip
    rows = rows.sort_values("request")
    assert rows["outcome"].iloc[0] == Outcome.cancelled
    left = rows["end_s"].iloc[0]
    assert left <= rows["started_s"].iloc[1] <= left + 0.1
    assert devices.sort_values("time_s")["kv_used_bytes"].iloc[-1] == 0


def test_a_refresh_slower_than_the_limit_of_a_saturated_signal_is_an_error_at_the_start():
    slow = TelemetryConfig(interval_ms=15_000.0, stale_after_s=0.2, on_stale="saturated")
    with pytest.raises(InputError, match="staleness"):
        run(trace([0.0]), arm(count=1, policy=TOPOLOGY, telemetry=slow))


def test_a_refresh_slower_than_its_limit_blocks_nobody_where_stale_signals_are_ignored():
    slow = TelemetryConfig(interval_ms=15_000.0, stale_after_s=0.2, on_stale="ignore")
    facts, _, _, _ = run(trace(np.arange(60.0)), arm(count=1, policy=TOPOLOGY, telemetry=slow))
    assert facts.outcomes["finished"] == 60


def test_capacity_comes_from_the_memory_that_is_left_and_not_from_the_kind_of_gpu():
    pools = [PoolConfig(name=name, gpu="A100-80G", count=1) for name in ("a", "b")]
    facts = run(trace([0.0]), arm(pools=pools))[0]
    less = run(trace([0.0]), arm(pools=pools, engine={"memory_utilization_ratio": 0.5}))[0]
    assert less.devices[0]["capacity_tokens"] < 0.55 * facts.devices[0]["capacity_tokens"]


def test_peaks_that_do_not_fit_together_run_as_many_at_once_as_do_and_the_others_queue():
    """Five requests that peak at 5 of 16 parts of the memory each: three at once."""
    engine = {"kv": "contiguous", "admission": "guarded", "preemption": "none",
              "memory_utilization_ratio": 0.5}  # fmt: skip
    tokens = run(trace([0.0]), arm(count=1, engine=engine))[0].devices[0]["capacity_tokens"]
    limits = np.full(5, 5 * tokens // 16 - 20_000, np.int32)
    offered = trace(np.zeros(5), 20_000, 300, max_tokens=limits)
    patient = WaitConfig(deadline_s=1e4)
    setup = arm(count=1, engine=engine, wait=patient, policy=LEAST, device_window_s=0.2)
    facts, rows, _, devices = run(offered, setup)
    assert facts.outcomes["finished"] == 5
    assert devices["running"].max() == 3
    assert (rows["started_s"] >= rows["end_s"].min()).sum() == 2
    died = arm(count=1, engine={**engine, "admission": "optimistic"}, wait=patient, policy=LEAST)
    assert run(offered, died)[0].outcomes["oom"] == 2


def test_a_group_of_unlike_gpus_holds_as_many_times_what_the_least_of_them_has_left():
    """One GPU of two loses memory: what would fit in the sum of both does not fit on each."""
    engine = {"kv": "contiguous", "admission": "optimistic", "preemption": "none"}
    pools = [PoolConfig(name="pair", gpu="H100-80G", count=1, tp=2)]
    leak = FaultConfig(kind="memory_leak", at_s=0.0, duration_s=60.0, factor=60.0)
    offered = trace([0.5, 36.5], 1000, 10, max_tokens=np.full(2, 119_000, np.int32))
    setup = arm(pools=pools, engine=engine, faults=(leak,), policy=LEAST)
    big = {"model": ModelConfig(name="llama-3.1-70b", precision="fp8")}
    _, rows, _, devices = run(offered, setup.model_copy(update=big))
    assert list(rows.sort_values("request")["outcome"]) == [Outcome.finished, Outcome.oom]
    table = devices.sort_values("time_s")
    free = table["free_bytes"].to_numpy()
    need = 120_000 * 163_840  # of keys and values: 80 layers, 8 heads of 128, one byte each
    lost = free[5] - free[36]
    assert free[36] < need < free[36] + lost / 2  # enough in all, had it been one memory


@pytest.mark.parametrize(("start", "peak"), [("same", 16), ("random", 6)])
def test_round_robin_of_many_workers_peaks_on_one_replica_until_every_worker_has_been_round(
    start, peak
):
    """16 states over 10 replicas: all first requests meet; after 160 the skew is gone."""
    policy = PolicyConfig(name="static_weights", params={"workers": 16, "start": start})
    _, rows, _, _ = run(trace(np.arange(160) * 0.01), arm(count=10, policy=policy))
    devices = rows.sort_values("request")["device"].to_numpy()
    first = np.bincount(devices[:16], minlength=10)
    assert first.max() == peak if start == "same" else first.max() <= peak
    if start == "same":
        assert (devices[:16] == 0).all()
        assert (devices[16:32] == 1).all()
    assert list(np.bincount(devices, minlength=10)) == [16] * 10


def test_a_request_that_waits_while_all_is_full_is_placed_when_room_comes_in_order():
    engine = {"kv": "contiguous", "admission": "guarded", "preemption": "none",
              "memory_utilization_ratio": 0.25}  # fmt: skip
    tokens = np.full(6, 1000, np.int32)
    setup = arm(count=1, policy=TOPOLOGY, engine=engine, wait=WaitConfig(deadline_s=1e3))
    _, rows, decisions, _ = run(trace(np.arange(6) * 0.01, 20_000, 200, max_tokens=tokens), setup)
    assert (rows["outcome"] == Outcome.finished).all()
    rows = rows.sort_values("request")
    assert (np.diff(rows["started_s"]) > 0).all()
    ends = rows["end_s"].to_numpy()
    waited = rows["started_s"].to_numpy()[1:] - ends[:-1]
    assert (waited >= 0).all()
    assert (waited < 0.2).all()  # a sample after the release, and no back-off of minutes
    assert (decisions["device"] == -1).any()


def test_retries_stop_and_what_they_threw_away_is_told():
    door = DoorConfig(kind="legacy", timeout_s=2.0, retries=3,
                      settings={"retry_non_idempotent": True})  # fmt: skip
    engine = {"max_num_seqs": 1, "max_num_batched_tokens": 2048}
    setup = arm(count=2, door=door, policy=PolicyConfig(name="static_weights"), engine=engine,
                wait=WaitConfig(deadline_s=30.0))  # fmt: skip
    _, rows, _, _ = run(trace(np.arange(30) * 0.1, 2000, 600), setup)
    assert rows["attempts"].max() <= 4
    again = rows[(rows["attempts"] > 1)]
    assert len(again)
    assert (again["wasted_s"] > 0).all()
    assert (rows.loc[rows["outcome"] == Outcome.timed_out, "root_cause"] != RootCause.none).all()


def test_a_device_that_never_gets_anything_is_named():
    pools = [PoolConfig(name="used", gpu="A100-80G", count=1),
             PoolConfig(name="unused", gpu="A100-80G", count=1, weight=0)]  # fmt: skip
    facts, rows, _, _ = run(
        trace(np.arange(10.0)), arm(pools=pools, policy=PolicyConfig(name="static_weights"))
    )
    assert facts.idle_devices == ("unused-0",)
    assert shares(rows, 2) == [10, 0]


@pytest.mark.slow
def test_a_day_of_long_generations_does_not_drift_to_few_replicas():
    rng = np.random.default_rng(4)
    count = 20_000
    arrival = np.sort(rng.uniform(0, 86_400, count))
    offered = trace(arrival, 500, rng.geometric(1 / 900, count))
    _, rows, _, _ = run(offered, arm(count=6, policy=LEAST))
    hours = (rows["arrival_s"] // (6 * 3600)).astype(int)
    spread = []
    for quarter in range(4):
        placed = np.array(shares(rows[hours == quarter], 6))
        spread.append(placed.std() / placed.mean())
    assert max(spread) < 0.06
    assert spread[-1] < spread[0] + 0.03


def test_the_router_says_how_busy_it_was():
    door = DoorConfig(kind="legacy", workers=1, handling_mean_ms=8.0, handling_cv=0.0)
    setup = arm(count=4, door=door, policy=PolicyConfig(name="static_weights"))
    facts, _, _, _ = run(trace(np.arange(5000) * 0.01, 10, 2), setup)
    assert facts.router_utilisation == pytest.approx(0.8, rel=0.01)


def test_past_its_capacity_the_router_is_the_bottleneck_and_the_cause():
    door = DoorConfig(kind="legacy", workers=1, handling_mean_ms=10.0, handling_cv=0.0,
                      queue_limit=100_000)  # fmt: skip
    waits = []
    for rate in (50, 90, 110, 150):  # the knee is at 100 a second
        setup = arm(count=4, door=door, policy=PolicyConfig(name="static_weights"),
                    wait=WaitConfig(deadline_s=5.0))  # fmt: skip
        facts, rows, _, _ = run(trace(np.arange(rate * 30) / rate, 10, 2), setup)
        waits.append(rows["door_wait_s"].mean())
        late = facts.outcomes["timed_out"]
        assert late == 0 if rate < 100 else rate == 110 or late > 0
        if late:
            assert facts.causes["router"] == late
    assert waits[0] == waits[1] == 0
    assert 0.5 < waits[2] < waits[3]


def test_the_arrivals_in_a_window_stand_beside_the_result():
    facts, _, _, _ = run(trace(np.arange(1000) * 0.01), arm(count=2, policy=TOPOLOGY))
    assert facts.arrivals_per_window == pytest.approx(5.0, rel=0.01)


@pytest.mark.parametrize("policy", ["topology", "least_requests", "least_work", "most_free"])
def test_unrelated_prompts_leave_no_replica_idle(policy):
    _, rows, _, _ = run(
        trace(np.arange(512) * 1e-3, 400, 100), arm(count=5, policy=PolicyConfig(name=policy))
    )
    assert min(shares(rows, 5)) >= 0.15 * 512


@pytest.mark.parametrize("policy", ["topology", "most_free", "least_kv"])
def test_a_policy_of_memory_goes_where_kv_blocks_are_free(policy):
    arrival = [0.0, *(1.0 + 0.5 * np.arange(10))]
    offered = trace(arrival, [30_000] + [50] * 10, [4000] + [5] * 10)
    _, rows, _, _ = run(offered, arm(count=2, policy=PolicyConfig(name=policy)))
    by_row = rows.sort_values("request")["device"].to_numpy()
    assert (by_row[1:] == 1 - by_row[0]).all()


# -- metamorphic: what a change of the input must do to the output ---------------------------------


def base(rng, count=300):
    return trace(np.cumsum(rng.exponential(0.2, count)), rng.integers(1, 2000, count),
                 rng.integers(1, 300, count))  # fmt: skip


def test_a_shift_in_time_by_whole_ticks_shifts_every_time_and_changes_nothing_else():
    offered = base(np.random.default_rng(1))
    later = trace(offered.arrival_s + 1000.0, offered.prompt_tokens, offered.output_tokens)
    for door in (DoorConfig(), DoorConfig(kind="legacy")):
        policy = TOPOLOGY if door.kind == "direct" else PolicyConfig(name="static_weights")
        _, one, _, _ = run(offered, arm(count=2, policy=policy, door=door))
        _, two, _, _ = run(later, arm(count=2, policy=policy, door=door))
        assert (one["device"] == two["device"]).all()
        gap = two["end_s"] - one["end_s"]
        assert gap.to_numpy() == pytest.approx(1000.0, abs=3e-9)


def test_a_fleet_twice_as_slow_takes_twice_as_long_for_a_request_alone():
    lonely = trace(np.arange(10) * 100.0, 700, 90)
    slow = FaultConfig(kind="ecc_slow", at_s=0.0, duration_s=1e6, factor=2.0)
    _, one, _, _ = run(lonely, arm(count=1))
    _, two, _, _ = run(lonely, arm(count=1, faults=(slow,)))
    took = [(r["end_s"] - r["started_s"]).to_numpy() for r in (one, two)]
    assert took[1] == pytest.approx(2 * took[0], rel=1e-6)


def test_more_replicas_under_least_requests_never_make_the_mean_worse():
    offered = base(np.random.default_rng(2), 400)
    means = []
    for count in (1, 2, 4, 8):
        _, rows, _, _ = run(offered, arm(count=count, policy=LEAST))
        means.append((rows["end_s"] - rows["arrival_s"]).mean())
    assert means == sorted(means, reverse=True)


def test_names_of_pools_and_a_split_of_one_pool_in_two_change_nothing():
    offered = base(np.random.default_rng(3))
    one = arm(pools=[PoolConfig(name="all", gpu="A100-80G", count=4)], policy=TOPOLOGY)
    two = arm(pools=[PoolConfig(name="x", gpu="A100-80G", count=2),
                     PoolConfig(name="y", gpu="A100-80G", count=2)], policy=TOPOLOGY)  # fmt: skip
    _, first, _, _ = run(offered, one)
    _, second, _, _ = run(offered, two)
    assert first.equals(second)


def test_a_window_of_the_device_series_changes_no_request_and_no_total():
    offered = base(np.random.default_rng(4))
    _, one, _, narrow = run(offered, arm(count=2, policy=TOPOLOGY, device_window_s=0.5))
    _, two, _, wide = run(offered, arm(count=2, policy=TOPOLOGY, device_window_s=10.0))
    assert one.equals(two)
    for column in ("busy_ratio", "running", "waiting", "kv_used_bytes"):
        totals = [
            (table[column] * table["window_s"]).groupby(table["device"]).sum()
            for table in (narrow, wide)
        ]  # fmt: skip
        # KV use between two notes is taken as a straight line, and a window's edge is a note.
        near = 1e-3 if column == "kv_used_bytes" else 1e-6
        assert totals[0].to_numpy() == pytest.approx(totals[1].to_numpy(), rel=near)


def test_the_same_seed_gives_the_same_rows_and_another_seed_other_handling_times():
    offered = base(np.random.default_rng(5))
    setup = arm(count=2, door=DoorConfig(kind="legacy"), policy=PolicyConfig(name="static_weights"))
    _, one, _, _ = run(offered, setup, seed=1)
    _, same, _, _ = run(offered, setup, seed=1)
    _, other, _, _ = run(offered, setup, seed=2)
    assert one.equals(same)
    assert not one["door_service_s"].equals(other["door_service_s"])


def test_littles_law_holds_between_the_rows_and_the_device_series():
    offered = base(np.random.default_rng(6), 600)
    facts, rows, _, devices = run(offered, arm(count=2, policy=LEAST))
    inside_s = (rows["end_s"] - rows["decision_end_s"]).sum()
    counted_s = ((devices["running"] + devices["waiting"]) * devices["window_s"]).sum()
    assert counted_s == pytest.approx(inside_s, rel=1e-3)
    assert facts.outcomes["finished"] == 600


def test_a_signal_that_nobody_samples_in_time_leaves_the_policy_with_what_it_knows():
    telemetry = TelemetryConfig(signals={"kv": SignalConfig(loss_ratio=1.0)})
    facts, _, decisions, _ = run(
        trace(np.arange(50.0)), arm(count=2, policy=TOPOLOGY, telemetry=telemetry)
    )
    assert facts.outcomes["finished"] == 50
    assert decisions["seen_age_s"].max() > 40
