"""Prefill on one replica, decode on another: whose memory a prompt's KV fills, and until when."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arms import arm, run, trace

from dispatch.config import PolicyConfig, WaitConfig
from dispatch.errors import InputError
from dispatch.outcomes import Outcome
from sim.config import FaultConfig, PoolConfig, TransferConfig

LEAST = PolicyConfig(name="least_requests")
PATIENT = WaitConfig(deadline_s=1e3, hold_limit=1000)


def apart(nic_gb_per_s=1.0, faults=(), wait=PATIENT, prefills=1, **engine):
    """Return an arm of replicas that prefill and one that decodes, over a NIC."""
    pools = [PoolConfig(name="p", gpu="A100-80G", count=prefills, role="prefill"),
             PoolConfig(name="d", gpu="A100-80G", count=1, role="decode")]  # fmt: skip
    return arm(pools=pools, engine=engine, policy=LEAST, faults=faults, wait=wait,
               device_window_s=0.1,
               transfer=TransferConfig(enabled=True, nic_gb_per_s=nic_gb_per_s))  # fmt: skip


def used(devices, device):
    rows = devices[devices["device"] == device].sort_values("time_s")
    return rows["time_s"].to_numpy(), rows["kv_used_bytes"].to_numpy()


@pytest.mark.parametrize("kv", ["paged", "contiguous"])
def test_the_prefill_replica_holds_the_prompt_until_its_copy_has_ended(kv):
    """20,000 tokens of 131,072 bytes over 1 GB/s: 2.6 s."""
    _, rows, _, devices = run(trace([0.0], 20_000, 50), apart(kv=kv))
    first, end = rows["first_token_s"].iloc[0], rows["end_s"].iloc[0]
    assert 2.6 < end - first < 6
    at, bytes_ = used(devices, 0)
    copying = (at > first) & (at + 0.1 < first + 2.6)
    assert copying.sum() > 20
    assert bytes_[copying] == pytest.approx(20_000 * 131_072, rel=1e-3)
    assert (bytes_[at > first + 2.8] == 0).all()
    at, bytes_ = used(devices, 1)
    assert (bytes_[at + 0.1 < first + 2.6] == 0).all()


def test_prompts_wait_for_memory_that_copies_still_hold_and_none_is_lost():
    """The pool holds two prompts; the third is prefilled when the first copy has ended."""
    engine = {"memory_utilization_ratio": 0.3}
    facts, rows, _, devices = run(trace(np.zeros(6), 20_000, 50), apart(**engine))
    room = facts.devices[0]["capacity_tokens"]
    assert 40_000 < room < 60_000
    assert facts.outcomes["finished"] == 6
    started = np.sort(rows["started_s"].to_numpy())
    assert started[2] > 2.6
    assert facts.oom_events == 0
    _, bytes_ = used(devices, 0)
    assert bytes_.max() <= room * 131_072
    fast, _, _, _ = run(trace(np.zeros(6), 20_000, 50), apart(1000.0, **engine))
    assert fast.outcomes["finished"] == 6


def test_a_prefill_replica_that_dies_takes_the_copy_under_way_with_it():
    offered = trace([0.0], 20_000, 50)
    _, rows, decisions, _ = run(offered, apart(prefills=2))
    first = int(decisions["device"].iloc[0])
    lost = FaultConfig(kind="gpu_lost", pool="p", replica=first, at_s=2.5, duration_s=1.0)
    assert rows["first_token_s"].iloc[0] < 2.5
    _, rows, _, devices = run(offered, apart(prefills=2, faults=(lost,)))
    assert rows["outcome"].iloc[0] == Outcome.failed
    assert rows["end_s"].iloc[0] == pytest.approx(2.5)
    assert rows["device"].iloc[0] == first
    assert devices["kv_used_bytes"].iloc[-1] == 0
    again = WaitConfig(deadline_s=1e3, retries=5, retry_on=("fault",))
    _, rows, decisions, _ = run(offered, apart(prefills=2, faults=(lost,), wait=again))
    assert rows["outcome"].iloc[0] == Outcome.finished
    assert rows["attempts"].iloc[0] == 2
    assert list(decisions["device"]) == [first, 2, 1 - first, 2]


def test_a_client_that_leaves_during_the_copy_frees_both_replicas():
    gone = FaultConfig(kind="cancel", at_s=0.0, duration_s=1.0, factor=2.0)
    _, rows, _, devices = run(trace([0.0, 0.0, 0.0], 20_000, 50), apart(faults=(gone,)))
    assert (rows["outcome"] == Outcome.cancelled).any()
    for device in (0, 1):
        assert used(devices, device)[1][-1] == 0


def test_roles_without_a_transfer_are_refused():
    pools = [PoolConfig(name="p", gpu="A100-80G", count=1, role="prefill"),
             PoolConfig(name="d", gpu="A100-80G", count=1, role="decode")]  # fmt: skip
    with pytest.raises(InputError, match="has role 'prefill'"):
        run(trace([0.0]), arm(pools=pools))
