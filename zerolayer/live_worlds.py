"""One trace in both worlds: calibrate a live device for the simulator, then compare the two."""

import json
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from dispatch.errors import InputError
from dispatch.journal import Journal
from dispatch.outcomes import Outcome
from live.calibrate import StepLine, calibration_trace, fit, write
from live.config import LiveConfig
from live.replay.local import replay_local
from live.replay.run import Plan
from live.shapes import LlamaShape, shape_of
from live.tape import agreement
from traces.trace import Trace

_QUANTILES: Final = (0.5, 0.9, 0.99)
_ALLOWED: Final = {0.5: 0.10, 0.99: 0.25}
_STEADY: Final = 0.25  # live repeats further apart than this cannot judge a simulation
_RATIO: Final = 0.9  # the simulator's memory_utilization_ratio


def calibrate(config: LiveConfig, folder: Path, name: str, seconds: float) -> dict[str, Any]:
    """Replay a calibration trace on the first device of *config* and write *folder*."""
    import pandas as pd

    one = config.model_copy(update={"devices": config.devices[:1]})
    shape = shape_of(one.model.name)
    trace = calibration_trace(seconds, shape.context_tokens, config.seed)
    journal = Journal(arm="calibration")
    with TemporaryDirectory() as temporary:
        steps = Path(temporary) / "steps.parquet"
        run = replay_local(
            trace, one, "direct", Plan(drain_s=120, deadline_s=120), journal, steps=steps
        )
        line = fit(pd.read_parquet(steps))
    door_s = _door_s(journal.to_pandas("requests"), line)
    machine = f"{platform.machine()} {platform.system()}, {os.cpu_count()} cores"
    capacity = int(one.devices[0].kv_mib * 2**20) // shape.kv_bytes_per_token
    files = write(folder, name, shape, line, 1 << 40, machine)
    write(folder, name, shape, line, _memory_bytes(folder, name, capacity, config), machine)
    door = {"door_us": door_s * 1e6, "model": one.model.name, "kv": one.engine.kv}
    (folder / f"{name}.door.json").write_text(json.dumps(door, indent=1) + "\n")
    return {
        "iterations": line.rows,
        "base_us": line.base * 1e6,
        "per_sequence_us": line.sequence * 1e6,
        "per_token_us": line.token * 1e6,
        "per_pair_ns": line.pair * 1e9,
        "per_context_token_ns": line.context * 1e9,
        "median_error": line.median_error,
        "door_us": door["door_us"],
        "degraded": bool(run.problems),
        "files": [str(file) for file in files],
    }


def _door_s(frame: Any, line: StepLine) -> float:
    """Median time to first token of requests that came alone, less the iteration that made it.

    It covers the way in (client, HTTP, decision, hand-over) and the way out.
    """
    import pandas as pd

    good = frame[frame.outcome == Outcome.finished].sort_values("arrival_s")
    alone = good.arrival_s > good.end_s.shift().cummax().fillna(-1.0)
    lone = good[alone & (good.lag_s < 0.01)]
    new = lone.prompt_tokens
    sizes = {"sequences": 1, "new": new, "pairs": new * (new + 1) / 2, "decodes": 0, "context": 0}
    steps = line.predict(pd.DataFrame(sizes))
    outside = lone.first_token_s - lone.arrival_s - lone.lag_s - steps
    return float(max(0.0, np.median(outside))) if len(lone) else 0.0


def _memory_bytes(folder: Path, name: str, capacity_tokens: int, config: LiveConfig) -> int:
    """Return the memory of a card whose KV pool holds *capacity_tokens*."""
    from dispatch.hardware import gpu, memory_plan, model

    plan = memory_plan(
        gpu(str(folder / "gpus" / f"{name}.toml")),
        model(str(folder / "models" / f"{name}.toml")),
        "fp16",
        utilization_ratio=_RATIO,
        max_batched_tokens=config.engine.max_num_batched_tokens,
        max_num_seqs=config.engine.max_num_seqs,
        block_tokens=config.engine.block_tokens,
    )
    spare = plan.weights_bytes + plan.context_bytes + plan.workspace_bytes
    block = plan.kv_bytes_per_token * plan.block_tokens
    return int((spare + capacity_tokens * plan.kv_bytes_per_token + 0.5 * block) / _RATIO)


def simulated_setup(config: LiveConfig, folder: Path, name: str) -> Any:
    """Return the simulator's set-up of the first device of *config*."""
    from sim.config import Setup

    door = json.loads((folder / f"{name}.door.json").read_text())
    engine = config.engine.model_dump(exclude={"kernels"})
    return Setup.model_validate(
        {
            "model": {"name": name, "precision": "fp16"},
            "fleet": {"pools": [{"name": "live", "gpu": name, "count": 1}]},
            "door": {"kind": "direct", "decision_us": max(1.0, door["door_us"])},
            "policy": config.policy.model_dump(),
            "engine": {**engine, "kernel_plan": "strong", "memory_utilization_ratio": _RATIO},
            "telemetry": {"interval_ms": config.sample_interval_ms},
            "wait": config.wait.model_dump(),
        }
    )


def validate(
    config: LiveConfig,
    folder: Path,
    name: str,
    trace_name: str | None,
    format: str | None,
    limit: int,
    repeats: int,
    output: Path | None,
) -> dict[str, Any]:
    """Replay live *repeats* times and simulated once; return rows of errors and the verdict."""
    if not (folder / f"{name}.door.json").is_file():
        raise InputError.at("--hardware", f"{folder} holds no {name}", "run `live calibrate` first")
    one = config.model_copy(update={"devices": config.devices[:1]})
    same_model(folder / "models" / f"{name}.toml", shape_of(one.model.name))
    trace = _trace(trace_name, format, limit, shape_of(one.model.name))
    with TemporaryDirectory() as temporary:
        tape = Path(temporary) / "tape.json"
        live = [_live(trace, one, tape) for _ in range(max(2, repeats))]
        placement = agreement(tape, config.policy.params)
    simulated = _simulated(trace, one, folder, name)
    rows = compare([_times(frame) for frame in live], _times(simulated))
    if output is not None:
        from zerolayer.live_plot import draw

        draw([_times(frame) for frame in live], _times(simulated), output)
    judged = [row for row in rows if row["bar"] is not None]
    holds = all(row["holds"] for row in judged) and placement["share"] == 1.0
    steady = all(row["between_repeats"] <= _STEADY for row in judged)
    return {
        "rows": rows,
        "placement": placement,
        "holds": holds,
        "steady": steady,
        "requests": len(trace),
    }


def same_model(path: Path, served: LlamaShape) -> None:
    """Refuse a folder that was calibrated with a model of another shape than the one served."""
    from dispatch.hardware import model

    measured = model(str(path))
    keys = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "context_tokens")
    for key in keys:
        if getattr(measured, key) != getattr(served, key):
            raise InputError.at(
                "--hardware",
                f"{path} was measured with {key} = {getattr(measured, key)}; "
                f"--model {served.name} has {getattr(served, key)}",
                "give the --model it was calibrated with, or run `live calibrate` with this one",
            )


def _trace(name: str | None, format: str | None, limit: int, shape: LlamaShape) -> Trace:
    if name is None:
        return calibration_trace(20.0, shape.context_tokens, seed=1)
    from traces import read

    found = read(name, format=format)
    return found.take(np.arange(min(limit, len(found))))


def _live(trace: Trace, config: LiveConfig, tape: Path) -> Any:
    journal = Journal(arm="live")
    replay_local(trace, config, "direct", Plan(), journal, tape=tape)
    return journal.to_pandas("requests")


def _simulated(trace: Trace, config: LiveConfig, folder: Path, name: str) -> Any:
    import sim

    before = os.environ.get("ZEROLAYER_HARDWARE")
    os.environ["ZEROLAYER_HARDWARE"] = str(folder)
    try:
        journal = Journal(arm="simulated")
        sim.replay(trace, simulated_setup(config, folder, name), config.seed, journal)
    finally:
        if before is None:
            del os.environ["ZEROLAYER_HARDWARE"]
        else:
            os.environ["ZEROLAYER_HARDWARE"] = before
    return journal.to_pandas("requests")


def _times(frame: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return TTFT, TPOT and e2e of what finished (reference: docs on metrics)."""
    good = frame[frame.outcome == Outcome.finished]
    several = good[good.output_tokens > 1]
    return {
        "ttft": (good.first_token_s - good.arrival_s).to_numpy(),
        "tpot": ((several.end_s - several.first_token_s) / (several.output_tokens - 1)).to_numpy(),
        "e2e": (good.end_s - good.arrival_s).to_numpy(),
    }


def compare(live: list[dict[str, Any]], simulated: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row a metric and quantile: live, its own repeat error, simulated, and whether held.

    The simulation may miss by the larger of the fixed share and twice what two live runs differ.
    """
    rows = []
    for metric, simulated_times in simulated.items():
        for quantile in _QUANTILES:
            seen = [float(np.quantile(run[metric], quantile)) for run in live]
            mean = float(np.mean(seen))
            between = (max(seen) - min(seen)) / mean
            modelled = float(np.quantile(simulated_times, quantile))
            error = modelled / mean - 1.0
            allowed = _ALLOWED.get(quantile)
            bar = max(allowed, 2 * between) if allowed is not None else None
            rows.append(
                {
                    "metric": metric,
                    "quantile": quantile,
                    "live_ms": mean * 1e3,
                    "simulated_ms": modelled * 1e3,
                    "error": error,
                    "between_repeats": between,
                    "bar": bar,
                    "holds": None if bar is None else abs(error) <= bar,
                }
            )
    return rows


Say = Callable[[str], None]


def say(text: str) -> None:
    """Tell progress on stderr."""
    print(text, file=sys.stderr, flush=True)
