"""Reported faults of the router's own cost: it is a server too, and saturates like one."""

import numpy as np
import pytest

from sim.config import DoorConfig, PolicyConfig, WaitConfig
from tests.sim.arms import arm, run, trace

CAPACITY_PER_S = 1000.0  # one worker, 1 ms a request


def _through_the_router(offered_per_s: float) -> tuple[float, float, float]:
    """Return (utilisation of the router, mean wait in s, requests let through a second)."""
    gaps = np.random.default_rng(5).exponential(1 / offered_per_s, 1500)
    setup = arm(
        count=4,
        wait=WaitConfig(deadline_s=1e9),
        policy=PolicyConfig(name="static_weights"),
        door=DoorConfig(
            kind="legacy",
            workers=1,
            queue_limit=10**6,
            timeout_s=1e9,
            handling_mean_ms=1e3 / CAPACITY_PER_S,
            handling_cv=0.0,
        ),
    )
    facts, requests, *_ = run(trace(np.cumsum(gaps), 1, 1), setup)
    decided = requests["decision_end_s"].to_numpy()
    rate = len(decided) / (decided.max() - decided.min())
    return float(facts.router_utilisation), float(requests["door_wait_s"].mean()), float(rate)


def test_offered_more_than_it_can_handle_a_router_queues_and_says_how_busy_it_is() -> None:
    light, heavy = _through_the_router(500.0), _through_the_router(2000.0)
    assert light[0] == pytest.approx(0.5, abs=0.05)
    assert light[1] < 1e-3
    assert heavy[0] > 0.95
    assert heavy[1] > 0.2  # the line grows all the while


def test_a_sweep_of_the_load_shows_the_knee_where_the_router_saturates() -> None:
    offered = (400.0, 800.0, 1200.0, 1600.0)
    through = [_through_the_router(rate)[2] for rate in offered]
    assert through[:2] == pytest.approx(offered[:2], rel=0.05)
    assert through[2:] == pytest.approx([CAPACITY_PER_S] * 2, rel=0.02)
