"""A policy sees the fleet as it was at the last tick that has arrived, and the journal says so."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

import itertools

from arms import arm, run, trace

from dispatch.config import PolicyConfig
from dispatch.journal import Journal
from sim.clock import S
from sim.config import SignalConfig, TelemetryConfig
from sim.run import _Run

TOPOLOGY = PolicyConfig(name="topology")


def ages(decisions):
    return decisions["seen_age_s"].to_numpy(), decisions["time_s"].to_numpy()


@settings(max_examples=40)
@given(
    interval=st.sampled_from([1.0, 50.0, 700.0]),
    delay=st.sampled_from([0.0, 5.0, 130.0]),
    gaps=st.lists(st.floats(0.001, 2), min_size=1, max_size=30),
    kv=st.sampled_from(["paged", "contiguous"]),
)
def test_samples_are_as_old_as_interval_and_delay_make_them(interval, delay, gaps, kv):
    telemetry = TelemetryConfig(interval_ms=interval, delay_ms=delay)
    setup = arm(count=3, policy=TOPOLOGY, telemetry=telemetry, engine={"kv": kv})
    _, _, decisions, _ = run(trace(np.cumsum(gaps), 300, 60), setup)
    age, at = ages(decisions)
    tick = np.floor((np.round(at * S) - delay * 1e6) / (interval * 1e6) + 1e-9)
    expected = at - np.maximum(tick, 0) * interval / 1e3
    assert age == pytest.approx(expected, abs=1e-8)


def test_each_signal_has_an_interval_and_delay_of_its_own():
    telemetry = TelemetryConfig(
        interval_ms=50, delay_ms=5, signals={"ring": SignalConfig(interval_ms=2000, delay_ms=300)}
    )
    setup = arm(count=2, policy=TOPOLOGY, telemetry=telemetry)
    _, _, decisions, _ = run(trace(np.arange(20) + 0.31), setup)
    age, at = ages(decisions)
    assert age == pytest.approx(at - 2.0 * np.floor((at - 0.3) / 2.0), abs=1e-6)


def test_lost_samples_leave_the_one_before_and_each_device_loses_its_own():
    telemetry = TelemetryConfig(interval_ms=100, delay_ms=0, loss_ratio=0.5)
    setup = arm(count=2, policy=TOPOLOGY, telemetry=telemetry)
    _, _, decisions, _ = run(trace(np.arange(400) * 0.37 + 0.1), setup)
    age, _ = ages(decisions)
    fresh = (age < 0.1).mean()
    assert 0.05 < fresh < 0.6  # all signals of one device at once: several coins
    assert age.max() > 0.3


class Spy:
    """What the telemetry told of one device, beside what was true at that tick."""

    def __init__(self, setup, offered):
        self.run = _Run(offered, setup, 1, Journal(), None)
        self.told, self.true = [], []
        world = self.run.world
        graph = world.graph

        def look(_):
            graph.source.refresh(world.env.now_s, world.policy.signals)
            source = graph.signals["kv"].source_s[0]
            self.told.append((round(source, 6), float(graph.kv_free_blocks[0])))

        def note(_):
            engine = world.engines[0]
            used = engine.kv_used_at(world.env.ns)
            free = engine.kv.blocks - round(used / engine.kv.bytes_per_block)
            self.true.append((round(world.env.now_s, 6), float(free)))

        interval = round(setup.telemetry.interval_ms * 1e6)
        for tick in range(1, 400):
            world.env.call_at(tick * interval, note, None, 3)
            if tick % 7 == 0:
                world.env.call_at(tick * interval + interval // 2 + tick, look, None, 3)
        self.run.go()


@pytest.mark.parametrize("delay_ms", [0.0, 5.0, 120.0])
def test_kv_told_is_what_was_true_at_the_tick_however_late_it_is_asked_for(delay_ms):
    """The lazy evaluation against an eager sweep at every tick."""
    telemetry = TelemetryConfig(interval_ms=50, delay_ms=delay_ms)
    rng = np.random.default_rng(5)
    offered = trace(np.cumsum(rng.exponential(0.05, 300)), rng.integers(1, 3000, 300),
                    rng.integers(1, 300, 300))  # fmt: skip
    spy = Spy(arm(count=1, policy=TOPOLOGY, telemetry=telemetry), offered)
    true = dict(spy.true)
    assert len(spy.told) > 50
    assert len({free for _, free in spy.told}) > 20
    for source, free in spy.told:
        if source > 0:
            assert free == true[source], source


def test_the_queue_is_averaged_over_its_window_where_one_is_given():
    telemetry = TelemetryConfig(signals={"queue": SignalConfig(window_ms=1000.0)})
    setup = arm(count=1, policy=PolicyConfig(name="llmd"), telemetry=telemetry,
                engine={"max_num_seqs": 1})  # fmt: skip
    run_ = _Run(trace([0.0, 0.0, 0.0], 100, 400), setup, 1, Journal(), None)
    seen = []

    def look(_):
        graph = run_.world.graph
        graph.source.refresh(run_.world.env.now_s, run_.world.policy.signals)
        seen.append(float(graph.waiting[0]))

    for ms in (100, 300, 600, 1060):
        run_.world.env.call_at(ms * 10**6, look)
    run_.go()
    assert seen[-1] == pytest.approx(2.0, abs=0.05)
    assert all(a <= b + 0.2 for a, b in itertools.pairwise(seen))
