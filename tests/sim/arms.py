"""Small traces and arms for the tests of the simulator."""

import numpy as np

from dispatch.journal import Journal
from sim import replay
from sim.config import EngineConfig, FleetConfig, ModelConfig, PoolConfig, Setup
from traces.trace import Trace


def trace(arrival_s, prompt=200, output=50, **columns):
    """Return a trace of these arrivals; lengths are one number or one a row."""
    arrival = np.asarray(arrival_s, dtype=float)
    return Trace(
        arrival_s=arrival,
        prompt_tokens=np.broadcast_to(np.int32(prompt), arrival.shape).astype(np.int32)
        if np.isscalar(prompt) else np.asarray(prompt, dtype=np.int32),
        output_tokens=np.broadcast_to(np.int32(output), arrival.shape).astype(np.int32)
        if np.isscalar(output) else np.asarray(output, dtype=np.int32),
        **columns,
    )  # fmt: skip


def arm(count=2, gpu="A100-80G", model="llama-3.1-8b", pools=None, engine=None, **sections):
    """Return a set-up of one pool, or of *pools*."""
    if pools is None:
        pools = (PoolConfig(name="a", gpu=gpu, count=count),)
    return Setup(
        model=ModelConfig(name=model), fleet=FleetConfig(pools=tuple(pools)),
        engine=EngineConfig(**(engine or {})), **sections,
    )  # fmt: skip


def run(trace_, setup, seed=1):
    """Return (facts, requests, decisions, devices) of a run."""
    journal = Journal()
    facts = replay(trace_, setup, seed, journal)
    journal.close()
    tables = [journal.to_pandas(name) for name in ("requests", "decisions", "devices")]
    return facts, *tables
