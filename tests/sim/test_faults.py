"""Each fault does what its name says, when it says, to whom it says, and nothing else."""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from arms import arm, run, trace

from dispatch.config import PolicyConfig, WaitConfig
from dispatch.errors import InputError
from dispatch.outcomes import Outcome, RootCause
from sim.config import DoorConfig, FaultConfig, PoolConfig, TelemetryConfig, TransferConfig
from sim.faults import strikes, with_surges

EVERY_SECOND = np.arange(60.0)
ROUND_ROBIN = PolicyConfig(name="round_robin")


def fault(kind, at_s=20.0, duration_s=20.0, **more):
    return FaultConfig(kind=kind, at_s=at_s, duration_s=duration_s, **more)


def outcomes(rows):
    return [Outcome(o).name for o in rows.sort_values("request")["outcome"]]


def test_a_lost_gpu_fails_what_it_held_and_gets_nothing_once_its_death_is_known():
    setup = arm(count=2, policy=ROUND_ROBIN, faults=(fault("gpu_lost", replica=0),))
    facts, rows, _, devices = run(trace(EVERY_SECOND, 500, 300), setup)
    failed = rows[rows["outcome"] == Outcome.failed]
    assert len(failed) >= 1
    assert (failed["root_cause"] == RootCause.fault).all()
    assert (failed["device"] == 0).all()
    assert ((failed["end_s"] >= 20.0) & (failed["end_s"] < 20.2)).all()
    during = rows[(rows["arrival_s"] > 20.1) & (rows["arrival_s"] < 40)]
    assert (during["device"] == 1).all()
    back = rows[rows["arrival_s"] > 40.1]
    assert set(back["device"]) == {0, 1}
    down = devices[(devices["device"] == 0) & devices["time_s"].between(21, 38)]
    assert (down["busy_ratio"] == 0).all()
    assert facts.outcomes["failed"] == len(failed)


def test_requests_lost_with_a_gpu_are_tried_again_elsewhere_where_the_client_may():
    wait = WaitConfig(retries=1, retry_on=("fault",))
    setup = arm(count=2, policy=ROUND_ROBIN, wait=wait, faults=(fault("gpu_lost", replica=0),))
    _, rows, _, _ = run(trace(EVERY_SECOND, 500, 300), setup)
    assert set(outcomes(rows)) == {"finished"}
    again = rows[rows["attempts"] == 2]
    assert len(again) >= 1
    assert (again["device"] == 1).all()
    assert (again["wasted_s"] > 0).all()


def test_an_ecc_slow_gpu_takes_its_factor_longer_and_then_no_longer():
    plain = run(trace(EVERY_SECOND * 4, 500, 100), arm(count=1))[1]
    entry = fault("ecc_slow", at_s=60.0, duration_s=100.0, factor=3.0)
    slow = run(trace(EVERY_SECOND * 4, 500, 100), arm(count=1, faults=(entry,)))[1]
    ratio = ((slow["end_s"] - slow["started_s"]) / (plain["end_s"] - plain["started_s"])).to_numpy()
    inside = (plain["arrival_s"] > 60) & (plain["arrival_s"] < 155)
    outside = (plain["arrival_s"] < 55) | (plain["arrival_s"] > 165)
    assert ratio[inside] == pytest.approx(3.0, rel=1e-6)
    assert ratio[outside] == pytest.approx(1.0, rel=1e-9)


def test_a_degraded_ring_slows_collectives_alone_and_only_of_its_replica():
    pools = [PoolConfig(name="a", gpu="A100-80G", count=2, tp=4)]
    setup = {"pools": pools, "model": "llama-2-70b", "policy": ROUND_ROBIN}
    offered = trace(EVERY_SECOND * 4, 500, 50)
    plain = run(offered, arm(**setup))[1]
    hurt = run(offered, arm(**setup, faults=(
        fault("link_degraded", at_s=0.0, duration_s=1e4, factor=3.0, replica=1),)))[1]  # fmt: skip
    ratio = (hurt["end_s"] - hurt["started_s"]) / (plain["end_s"] - plain["started_s"])
    assert (ratio[hurt["device"] == 1] > 1.05).all()
    assert (ratio[hurt["device"] == 1] < 3.0).all()
    assert ratio[hurt["device"] == 0].to_numpy() == pytest.approx(1.0, rel=1e-9)


def test_the_topology_policy_sees_a_degraded_ring_and_the_pcie_use_that_comes_with_it():
    pools = [PoolConfig(name="a", gpu="H100-80G", count=4, tp=4)]
    setup = arm(pools=pools, model="llama-3.1-70b", policy=PolicyConfig(name="topology"),
                faults=(fault("link_degraded", factor=3.0, replica=2),))  # fmt: skip
    _, rows, decisions, _ = run(trace(np.arange(300) * 0.2, 500, 50), setup)
    during = rows[(rows["arrival_s"] > 20.1) & (rows["arrival_s"] < 40)]
    before = rows[rows["arrival_s"] < 20]
    assert (during["device"] == 2).sum() < (before["device"] == 2).sum()
    assert decisions["seen_ring_s"].min() > 0


def test_one_gpu_has_no_ring_and_no_pcie_use_by_collectives():
    _, _, decisions, _ = run(
        trace(EVERY_SECOND, 500, 50), arm(count=2, policy=PolicyConfig(name="topology"))
    )
    assert (decisions["seen_ring_s"] == 0).all()
    assert (decisions["seen_pcie_ratio"] == 0).all()


def test_in_a_telemetry_outage_samples_grow_old_and_are_fresh_again_after_it():
    setup = arm(count=2, policy=PolicyConfig(name="topology"), faults=(fault("telemetry_outage"),))
    _, _, decisions, _ = run(trace(EVERY_SECOND + 0.5, 500, 50), setup)
    age, at = decisions["seen_age_s"].to_numpy(), decisions["time_s"].to_numpy()
    inside = (at > 20.1) & (at < 40)
    assert age[inside] == pytest.approx(at[inside] - 20.0, abs=0.06)
    assert (age[~inside] < 0.06).all()


def test_a_router_that_crashes_loses_what_it_holds_and_takes_nothing_until_it_is_back():
    door = DoorConfig(kind="legacy", workers=4, handling_mean_ms=100.0)
    setup = arm(count=2, door=door, policy=PolicyConfig(name="static_weights"),
                faults=(fault("router_crash", at_s=20.05, duration_s=10.0),))  # fmt: skip
    _, rows, _, _ = run(trace(EVERY_SECOND, 100, 20), setup)
    lost = rows[rows["outcome"] != Outcome.finished]
    assert (lost["root_cause"] == RootCause.router).all()
    assert sorted(lost["arrival_s"]) == list(range(20, 31))


def test_a_memory_leak_takes_the_room_of_the_engine_until_requests_die_of_it():
    engine = {"kv": "contiguous", "admission": "optimistic", "preemption": "none"}
    leak = fault("memory_leak", at_s=5.0, duration_s=50.0, factor=400.0)
    setup = arm(count=1, engine=engine, faults=(leak,))
    _, rows, _, devices = run(trace(EVERY_SECOND, 4000, 50), setup)
    dead = rows[rows["outcome"] == Outcome.oom]
    assert len(dead) > 0
    assert dead["arrival_s"].min() > 8
    free = devices.sort_values("time_s")["free_bytes"].to_numpy()
    assert free[4] > free[9] > free[12]
    assert free[-1] == free[0]  # it comes back at the end


def test_a_leak_that_fills_the_card_kills_the_process_where_the_scenario_says_so():
    engine = {"kv": "paged", "oom_kills": "process", "restart_s": 5.0}
    leak = fault("memory_leak", at_s=0.0, duration_s=30.0, factor=60.0 * 9)
    facts, rows, _, _ = run(
        trace(EVERY_SECOND, 100, 400), arm(count=1, engine=engine, faults=(leak,))
    )
    assert facts.oom_events >= 1
    assert (rows.loc[rows["outcome"] == Outcome.failed, "root_cause"] == RootCause.fault).all()
    assert (rows["outcome"] == Outcome.failed).any()


def test_slow_clients_hold_their_request_open_for_their_factor_and_no_memory():
    slow = fault("slow_client", at_s=0.0, duration_s=1e4, factor=5.0, ratio=0.5)
    plain = run(trace(EVERY_SECOND, 100, 50), arm(count=1))[1]
    rows = run(trace(EVERY_SECOND, 100, 50), arm(count=1, faults=(slow,)))[1]
    stretch = (rows["end_s"] - rows["first_token_s"]) / (plain["end_s"] - plain["first_token_s"])
    held = stretch > 1.5
    assert 15 < held.sum() < 45
    assert stretch[held].to_numpy() == pytest.approx(5.0, rel=1e-6)
    assert stretch[~held].to_numpy() == pytest.approx(1.0, rel=1e-6)


def test_cancelled_requests_are_counted_as_the_clients_doing_and_free_their_seat():
    leaves = fault("cancel", at_s=0.0, duration_s=1e4, factor=0.2, ratio=0.5)
    _, rows, _, _ = run(trace(EVERY_SECOND, 100, 200), arm(count=1, faults=(leaves,)))
    gone = rows[rows["outcome"] == Outcome.cancelled]
    assert 10 < len(gone) < 45
    assert (gone["root_cause"] == RootCause.client).all()
    assert (gone["output_tokens"] < 200).all()


def test_a_surge_adds_arrivals_in_its_window_and_changes_none_of_the_others():
    offered = trace(np.linspace(0, 99, 1000), np.arange(1000) + 1, 5)
    surged = with_surges(offered, (fault("arrival_surge", factor=3.0),), seed=7)
    inside = (surged.arrival_s >= 20) & (surged.arrival_s < 40)
    before = ((offered.arrival_s >= 20) & (offered.arrival_s < 40)).sum()
    assert inside.sum() == 3 * before
    assert (np.diff(surged.arrival_s) >= 0).all()
    assert (~inside).sum() == len(offered) - before
    facts, rows, _, _ = run(offered, arm(count=2, faults=(fault("arrival_surge", factor=3.0),)))
    assert facts.offered == len(rows) == len(surged)


@given(st.integers(0, 2**31), st.floats(10, 1000))
def test_faults_by_rate_are_the_same_for_every_arm_and_come_at_that_rate(seed, per_h):
    entry = FaultConfig(kind="gpu_lost", rate_per_h=per_h)
    hours = 500 / per_h
    one = list(strikes((entry,), seed, hours * 3600))
    assert one == list(strikes((entry,), seed, hours * 3600))
    assert 500 - 5 * 500**0.5 < len(one) < 500 + 5 * 500**0.5
    assert all(a.start_ns <= b.start_ns for a, b in pairwise(one))


def test_overlapping_losses_of_one_gpu_hold_it_down_until_the_last_has_ended():
    both = (fault("gpu_lost", 10.0, 20.0, replica=0), fault("gpu_lost", 15.0, 30.0, replica=0))
    _, rows, _, _ = run(trace(EVERY_SECOND, 100, 20), arm(count=2, policy=ROUND_ROBIN, faults=both))
    on_it = rows[(rows["device"] == 0) & (rows["outcome"] == Outcome.finished)]["arrival_s"]
    assert not on_it.between(10.1, 45).any()
    assert (on_it > 45.1).any()


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (FaultConfig(kind="gpu_lost"), "no time"),
        (fault("gpu_lost", pool="nowhere"), "nowhere"),
        (fault("gpu_lost", replica=9), "index below 2"),
    ],
)
def test_a_fault_that_cannot_strike_is_an_error_that_names_it(entry, says):
    with pytest.raises(InputError, match=says) as raised:
        run(trace([0.0]), arm(count=2, faults=(entry,)))
    assert "faults[0]" in str(raised.value)


def apart(**more):
    pools = (
        PoolConfig(name="p", gpu="A100-80G", count=1, role="prefill"),
        PoolConfig(name="d", gpu="A100-80G", count=1, role="decode", gpus_per_node=1),
    )
    return arm(pools=pools, policy=PolicyConfig(name="least_requests"), **more)


@pytest.mark.parametrize("gb_per_s", [1.0, 4.0])
def test_a_handover_costs_the_time_of_the_prompts_kv_over_the_link_and_nothing_else(gb_per_s):
    transfer = TransferConfig(enabled=True, link="nic", nic_gb_per_s=gb_per_s)
    _, rows, decisions, _ = run(trace([0.0], 2000, 50), apart(transfer=transfer))
    free = TransferConfig(enabled=True, link="nic", nic_gb_per_s=1e6)
    _, base, _, _ = run(trace([0.0], 2000, 50), apart(transfer=free))
    assert list(decisions["device"]) == [0, 1]
    added = rows["end_s"][0] - base["end_s"][0]
    pcie_s = 2000 * 131072 / 32e9
    assert added == pytest.approx(2000 * 131072 / (gb_per_s * 1e9) - pcie_s, rel=0.05)
    assert rows["first_token_s"][0] == base["first_token_s"][0]


def test_two_handovers_at_once_share_the_nic():
    transfer = TransferConfig(enabled=True, link="nic", nic_gb_per_s=0.5)
    one = run(trace([0.0], 2000, 2), apart(transfer=transfer))[1]
    two = run(trace([0.0, 0.0], 2000, 2), apart(transfer=transfer))[1]
    alone = 2000 * 131072 / 0.5e9
    assert two["end_s"].max() - one["end_s"].max() == pytest.approx(alone, rel=0.2)


def test_roles_that_cannot_hand_over_are_refused():
    with pytest.raises(InputError, match="role 'decode'"):
        run(trace([0.0]), arm(count=1, transfer=TransferConfig(enabled=True)))


def test_stale_samples_are_ignored_where_the_scenario_says_so():
    telemetry = TelemetryConfig(on_stale="ignore", stale_after_s=1.0)
    setup = arm(count=2, policy=PolicyConfig(name="topology"), telemetry=telemetry,
                faults=(fault("telemetry_outage"),))  # fmt: skip
    _, _, decisions, _ = run(trace(EVERY_SECOND + 0.5, 500, 50), setup)
    at = decisions["time_s"]
    assert decisions["seen_ring_s"][(at > 22) & (at < 40)].isna().all()
    assert decisions["seen_ring_s"][(at < 20) | (at > 41)].notna().all()


def test_surges_count_among_the_faults_that_struck():
    surge = FaultConfig(kind="arrival_surge", at_s=1.0, duration_s=2.0, factor=3.0)
    slow = FaultConfig(kind="ecc_slow", at_s=2.0, duration_s=1.0)
    facts, _, _, _ = run(trace(np.arange(50) * 0.1), arm(count=1, faults=(surge, slow)))
    assert "2 faults struck" in facts.notes
