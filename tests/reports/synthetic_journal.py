"""An honest stand-in for a run: seeded random journals of known make, for the reports' tests."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dispatch.journal import SCHEMAS
from dispatch.outcomes import Outcome, RootCause

GPUS = ("V100-32G", "A100-40G", "A100-80G", "A100-80G")


@dataclass(frozen=True)
class Arm:
    """How one arm of the stand-in behaves."""

    name: str
    slower: float = 1.0
    door_s: float = 0.0002
    oom: float = 0.0
    late: float = 0.0
    noise: float = 0.02
    busy_sd: float = 0.2
    legacy: bool = False


LEGACY = Arm("legacy", 1.3, 0.0084, oom=0.03, late=0.004, legacy=True)
STATIC = Arm("direct-static", 1.29, 0.0002, oom=0.03, late=0.003)
DIRECT = Arm("direct", 1.0, 0.0002, oom=0.0, late=0.0, busy_sd=0.1)


def trace(n: int, seed: int, rep: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng([seed, rep, 1])
    prompt = np.minimum(rng.lognormal(7.0, 1.1, n), 9000).astype(np.int32) + 1
    output = np.minimum(rng.lognormal(4.9, 0.9, n), 1500).astype(np.int32) + 1
    return {
        "arrival_s": np.cumsum(rng.exponential(0.18, n)),
        "prompt_tokens": prompt,
        "output_tokens": output,
    }


def requests(arm: Arm, n: int, seed: int, rep: int) -> dict[str, Any]:
    t = trace(n, seed, rep)
    rng = np.random.default_rng([seed, rep, 2, sum(arm.name.encode())])
    shared = np.random.default_rng([seed, rep, 3])
    rep_factor = np.exp(rng.normal(0, arm.noise))
    slow = shared.lognormal(0, 0.5, n) * arm.slower * rep_factor
    door = np.full(n, arm.door_s)
    decision_start = t["arrival_s"] + 0.001
    decision_end = decision_start + door
    started = decision_end + shared.exponential(0.05, n) * arm.slower
    first = started + t["prompt_tokens"] * 1e-4 * slow
    end = first + (t["output_tokens"] - 1) * 0.03 * slow
    outcome = np.full(n, Outcome.finished, np.int8)
    cause = np.zeros(n, np.int8)
    output = t["output_tokens"].copy()
    context = t["prompt_tokens"] > 8000
    big = rng.random(n) < arm.oom * np.minimum(t["prompt_tokens"] / 1500, 5)
    late = rng.random(n) < arm.late
    for rows, what, why in (
        (late, Outcome.timed_out, RootCause.queue),
        (big, Outcome.oom, RootCause.memory_misjudged),
        (context, Outcome.rejected_context, RootCause.context),
    ):
        outcome[rows], cause[rows] = what, why
    cause[big & (rng.random(n) < 0.3)] = RootCause.fragmentation
    cause[context] = RootCause.context
    failed = outcome != Outcome.finished
    first[failed] = np.nan
    end[outcome == Outcome.timed_out] = t["arrival_s"][outcome == Outcome.timed_out] + 30
    end[outcome == Outcome.oom] = started[outcome == Outcome.oom] + 0.05
    output[failed] = 0
    device = rng.integers(0, len(GPUS), n).astype(np.int32)
    return {
        "request": np.arange(n),
        "source_row": np.arange(1, n + 1),
        "arrival_s": t["arrival_s"],
        "lag_s": np.zeros(n),
        "prompt_tokens": t["prompt_tokens"],
        "output_tokens": output,
        "max_tokens": np.full(n, 1024, np.int32),
        "model": np.array(["llama-2-13b"] * n, object),
        "session": shared.integers(0, 40, n),
        "kernel_hint": np.array([""] * n, object),
        "outcome": outcome,
        "root_cause": cause,
        "attempts": np.ones(n, np.int16),
        "oom_events": (outcome == Outcome.oom).astype(np.int16),
        "preemptions": np.zeros(n, np.int16),
        "device": device,
        "fitting_device": np.where(cause == RootCause.memory_misjudged, 2, -1).astype(np.int32),
        "decision_start_s": decision_start,
        "decision_end_s": decision_end,
        "started_s": np.where(outcome == Outcome.rejected_context, np.nan, started),
        "first_token_s": first,
        "end_s": end,
        "door_wait_s": np.full(n, 0.001),
        "door_service_s": door,
        "wasted_s": np.zeros(n),
        "cached_tokens": np.zeros(n, np.int32),
    }


def decisions(columns: Mapping[str, Any], seed: int) -> dict[str, Any]:
    n = len(columns["request"])
    rng = np.random.default_rng([seed, 5])
    made: dict[str, Any] = {
        "request": columns["request"],
        "attempt": np.zeros(n, np.int16),
        "time_s": columns["decision_start_s"],
        "duration_s": columns["door_service_s"],
        "device": columns["device"],
        "reason": np.zeros(n, np.int8),
        "need_bytes": columns["prompt_tokens"] * 8.2e5,
        "seen_block_bytes": rng.uniform(1e9, 3e10, n),
        "seen_free_bytes": rng.uniform(3e10, 4e10, n),
        "seen_ring_s": np.zeros(n),
        "seen_pcie_ratio": rng.uniform(0, 0.4, n),
        "seen_age_s": rng.uniform(0.005, 0.055, n),
        "candidates": np.full(n, len(GPUS), np.int32),
    }
    for i in range(5):
        made[f"best{i}_device"] = ((columns["device"] + i) % len(GPUS)).astype(np.int32)
        made[f"best{i}_score"] = 1.0 - 0.1 * i + rng.uniform(0, 0.05, n)
    return made


def devices(arm: Arm, span_s: float, seed: int, rep: int) -> dict[str, Any]:
    rng = np.random.default_rng([seed, rep, 4, sum(arm.name.encode())])
    windows = int(span_s) + 1
    n = windows * len(GPUS)
    busy = np.clip(rng.normal(0.6, arm.busy_sd, n), 0, 1)
    return {
        "device": np.tile(np.arange(len(GPUS), dtype=np.int32), windows),
        "time_s": np.repeat(np.arange(windows, dtype=float), len(GPUS)),
        "window_s": np.ones(n),
        "busy_ratio": busy,
        "running": busy * 8,
        "waiting": rng.poisson(1, n).astype(float),
        "kv_used_bytes": busy * 2e10,
        "free_bytes": (1 - busy) * 2e10,
        "largest_block_bytes": (1 - busy) * 1e10,
        "fragmentation": rng.uniform(0, 0.6, n),
    }


def write(
    folder: Path,
    arms: tuple[Arm, ...] = (LEGACY, STATIC, DIRECT),
    n: int = 1500,
    replicates: int = 5,
    seed: int = 7,
    **scenario: Any,
) -> dict[str, Any]:
    """Write the three tables of a run into *folder* and return its manifest."""
    folder.mkdir(parents=True, exist_ok=True)
    chunks: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}
    for arm in arms:
        for rep in range(replicates):
            made = requests(arm, n, seed, rep)
            tables = {
                "requests": made,
                "decisions": decisions(made, seed + rep),
                "devices": devices(arm, float(made["arrival_s"][-1]), seed, rep),
            }
            for name, columns in tables.items():
                assert set(columns) == set(SCHEMAS[name])
                rows = len(next(iter(columns.values())))
                table = pa.table({**columns, "replicate": np.full(rows, rep, np.int32)})
                chunks[name].append(table.append_column("arm", pa.array([arm.name] * rows)))
    for name, tables_of in chunks.items():
        pq.write_table(pa.concat_tables(tables_of), folder / f"{name}.parquet")
    return manifest(arms, replicates, n, **scenario)


def manifest(arms: tuple[Arm, ...], replicates: int, n: int, **scenario: Any) -> dict[str, Any]:
    configs = [
        {
            "name": arm.name,
            "title": "",
            "door": {"kind": "legacy" if arm.legacy else "direct"},
            "policy": {"name": "topology" if arm.name == "direct" else "static_weights"},
            "engine": {
                "kv": "contiguous",
                "admission": "optimistic",
                "kernel_plan": "three_stage",
            },
            "telemetry": {"interval_ms": 50.0},
            "fleet": None,
        }
        for arm in arms
    ]
    rows = [
        {
            "device": i,
            "name": f"{g.lower()}-{i}",
            "pool": g.lower(),
            "gpu": g,
            "gpus": 1,
            "price_usd_per_h": 2.0,
        }
        for i, g in enumerate(GPUS)
    ]
    facts = {"offered": n, "router_utilisation": 0.41, "arrivals_per_window": 0.28}
    return {
        "scenario": {
            "name": "stand-in",
            "title": "A stand-in for the tests",
            "seed": 7,
            "replicates": replicates,
            "confidence": 0.95,
            "baseline": arms[0].name,
            "candidate": arms[-1].name,
            "slo": {"ttft_p99_s": 2.0, "tpot_p99_s": 0.2, "e2e_p99_s": 30.0, "oom_rate": 0.001},
            "margins": {"p99_ratio": 1.02, "oom_rate_points": 0.01},
            "wait": {"deadline_s": 30.0},
            "story_inputs": ["arms.0.door.handling_mean_ms"],
            "reasoning": "A stand-in; its load means nothing.",
            "arms": configs,
            **scenario,
        },
        "trace": {
            "name": "synthetic",
            "requests": n,
            "quirks": [{"code": "made", "text": "made by a generator", "rows": n}],
            "cannot_tell": ["what the legacy layer dropped before it was logged"],
        },
        "arms": {a.name: {"devices": rows, "facts": [facts] * replicates} for a in arms},
        "argv": ["zerolayer", "evidence", "stand-in"],
    }
