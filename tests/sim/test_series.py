"""The device series says what was true at the end of each window, and on average within it."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arms import arm, run, trace

from dispatch.config import PolicyConfig
from dispatch.journal import Journal
from sim.clock import S
from sim.config import FaultConfig, TelemetryConfig
from sim.run import _Run

TOPOLOGY = PolicyConfig(name="topology")
ENGINES = [
    {"kv": "paged"},
    {"kv": "paged", "allocator": "caching"},
    {"kv": "contiguous"},
    {"kv": "contiguous", "allocator": "caching"},
]
IDS = ["paged", "paged, caching", "contiguous", "contiguous, caching"]


def offered(count=120, seed=3):
    """Return arrivals some of which fall on the very end of a window, where a batch turns."""
    rng = np.random.default_rng(seed)
    arrival = np.sort(np.concatenate([rng.uniform(0, 60, count), np.arange(1.0, 60.0, 3.0)]))
    rows = len(arrival)
    return trace(arrival, rng.integers(1, 6000, rows), rng.integers(1, 400, rows))


def free_now(engine, slack):
    """Return free bytes and largest block by the books of the engine's own allocator."""
    arena = getattr(engine.kv, "arena", None)
    if arena is None and engine.workspace is not None:
        arena = engine.workspace.arena
    if arena is None:
        return float(slack), float(slack)
    return float(arena.free_bytes), float(arena.largest_block_bytes)


class Sweep:
    """The series of one replica, beside an eager look at the last moment of every window."""

    def __init__(self, setup, made):
        journal = Journal()
        run_ = _Run(made, setup, 1, journal, None)
        world, seen = run_.world, []
        engine, slack = world.engines[0], world.kinds[0].slack_bytes
        window = round(setup.device_window_s * S)

        def look(_):
            seen.append(free_now(engine, slack))

        for end in range(window, run_.horizon_ns + 1, window):
            world.env.call_at(end - 1, look, None, 3)
        run_.go()
        journal.close()
        self.rows = journal.to_pandas("devices").sort_values("time_s")
        self.seen = np.array(seen)
        self.engine, self.slack = engine, slack


@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
def test_free_bytes_and_largest_block_are_those_of_the_last_moment_of_the_window(engine):
    sweep = Sweep(arm(count=1, engine=engine, device_window_s=0.5), offered())
    told = sweep.rows[["free_bytes", "largest_block_bytes"]].to_numpy()[: len(sweep.seen)]
    assert np.array_equal(told, sweep.seen)
    if len(engine) > 1 or engine["kv"] == "contiguous":
        assert len(np.unique(told[:, 0])) > 5


@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
def test_the_fragmentation_score_is_one_less_the_largest_block_of_what_is_free(engine):
    rows = Sweep(arm(count=1, engine=engine, device_window_s=0.5), offered()).rows
    free, block = (rows[c].to_numpy() for c in ("free_bytes", "largest_block_bytes"))
    assert (block <= free).all()
    expected = 1.0 - np.divide(block, free, out=np.ones_like(free), where=free > 0)
    assert rows["fragmentation"].to_numpy() == pytest.approx(expected, abs=1e-12)


def test_under_paged_kv_blocks_and_segments_are_apart_and_segments_fragment():
    """The pool is one allocation: what fragments is the memory that activations come from."""
    sweep = Sweep(arm(count=1, engine=ENGINES[1], device_window_s=0.05), offered())
    rows = sweep.rows
    assert rows["fragmentation"].max() > 0.01
    assert rows["kv_used_bytes"].max() > 0
    pool = sweep.engine.kv.blocks * sweep.engine.kv.bytes_per_block
    beside = sweep.engine.workspace.arena.size_bytes
    assert beside == pytest.approx(sweep.slack, rel=1.0)
    assert (rows["free_bytes"] <= beside).all()
    assert beside < pool


@pytest.mark.parametrize("engine", ENGINES, ids=IDS)
@pytest.mark.parametrize("delay_ms", [0.0, 130.0])
def test_memory_told_to_the_policy_is_what_was_true_at_the_tick(engine, delay_ms):
    telemetry = TelemetryConfig(interval_ms=50, delay_ms=delay_ms)
    setup = arm(count=1, policy=TOPOLOGY, telemetry=telemetry, engine=engine)
    run_ = _Run(offered(60), setup, 1, Journal(), None)
    world = run_.world
    graph, told, true = world.graph, [], {}
    slack = world.kinds[0].slack_bytes

    def look(_):
        graph.source.refresh(world.env.now_s, world.policy.signals)
        source = round(float(graph.signals["memory"].source_s[0]), 6)
        told.append((source, (float(graph.free[0]), float(graph.block[0]))))

    def note(_):
        true[round(world.env.now_s, 6)] = free_now(world.engines[0], slack)

    for tick in range(1, 1300):
        world.env.call_at(tick * 50_000_000, note, None, 3)
        if tick % 7 == 0:
            world.env.call_at(tick * 50_000_000 + 25_000_000 + tick, look, None, 3)
    run_.go()
    for source, memory in told:
        if source > 0:
            assert memory == true[source], source


def test_a_leak_beside_a_paged_pool_shows_in_the_series_and_in_the_telemetry():
    leak = FaultConfig(kind="memory_leak", at_s=5.0, duration_s=10.0, factor=6.0)
    setup = arm(count=1, policy=TOPOLOGY, faults=(leak,))
    _, _, decisions, devices = run(trace(np.arange(30) + 0.5, 100, 20), setup)
    free = devices.sort_values("time_s")["free_bytes"].to_numpy()
    assert free[3] > free[7] > free[12]
    assert free[-1] == free[0]
    seen = decisions.sort_values("time_s")["seen_free_bytes"].to_numpy()
    assert seen[3] > seen[8] > seen[13]
    assert seen[-1] == seen[0]


def test_a_process_that_dies_leaves_no_workspace_behind():
    lost = FaultConfig(kind="gpu_lost", at_s=0.01, duration_s=5.0)
    setup = arm(count=1, engine=ENGINES[1], faults=(lost,))
    rows = Sweep(setup, trace([0.0, 20.0], 6000, 5)).rows
    assert (rows["free_bytes"].iloc[[2, -1]] == rows["free_bytes"].max()).all()
