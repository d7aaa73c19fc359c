"""A measured serving run against the same run in the simulator, request by request.

The run's own arrivals, lengths and engine limits go through the whole simulator on one replica.
TTFT counts from the engine's queue, TPOT from the first to the last token, latency is their span.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dispatch import hardware
from dispatch.config import PolicyConfig, WaitConfig
from dispatch.hardware import calibration, memory_plan
from dispatch.journal import Journal
from scenarios.measured import Measured
from scenarios.split import digest, halves
from sim.config import DoorConfig, EngineConfig, FleetConfig, ModelConfig, PoolConfig, Setup
from traces.trace import Trace

QUANTITIES: Final = ("ttft", "tpot", "latency")
MEAN_BAR: Final = 0.03
P99_BAR: Final = 0.06
FOREVER_S: Final = 1e5
Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Serving:
    """Errors of mean and p99 of a run, by quantity and by half of the run.

    *errors* maps half ("first", "second", "all") to quantity to (mean, p99) of model over measured,
    less one; *unfitted* is the same by the constants that a GPU without a fit would have.
    """

    file: str
    model: str
    gpu: str
    requests: int
    finished: int
    capacity_tokens: int
    measured_capacity_tokens: int
    errors: Mapping[str, Mapping[str, tuple[float, float]]]
    unfitted: Mapping[str, Mapping[str, tuple[float, float]]]
    measured_ms: Mapping[str, tuple[float, float]]
    modelled_ms: Mapping[str, tuple[float, float]]
    judged: str  # the half that the bar is put to

    @property
    def holds(self) -> bool:
        """Whether mean and p99 of every quantity stay within their bars, and capacity agrees."""
        fine = self.capacity_tokens == self.measured_capacity_tokens
        for mean, p99 in self.errors[self.judged].values():
            fine = fine and abs(mean) <= MEAN_BAR and abs(p99) <= P99_BAR
        return fine

    def as_dict(self) -> dict[str, Any]:
        """Return it for ``--json``."""
        return asdict(self) | {"holds": self.holds}


def setup_of(item: Measured) -> Setup:
    """Return the one-replica fleet that the engine of a measured run was."""
    facts, args = item.facts, item.facts["engine_kwargs"]
    card = hardware.gpu(facts["hardware"]["device_name"])
    shape = hardware.model(str(facts["model"]).split("/")[-1])
    width = {"bfloat16": "bf16", "float16": "fp16"}.get(str(args.get("dtype")), "bf16")
    return Setup(
        model=ModelConfig.model_validate({
            "name": shape.name, "precision": width, "context_tokens": min(
                int(args.get("max_model_len") or shape.context_tokens), shape.context_tokens),
        }),
        fleet=FleetConfig(pools=(PoolConfig(
            name="measured", gpu=card.name, count=1, tp=int(args.get("tensor_parallel_size", 1)),
        ),)),
        door=DoorConfig(kind="direct", decision_us=0.001),
        policy=PolicyConfig(name="round_robin"),
        wait=WaitConfig(deadline_s=FOREVER_S),
        engine=EngineConfig(
            kernel_plan="strong",
            memory_utilization_ratio=float(facts["kv_cache"]["gpu_memory_utilization"]),
            block_tokens=int(facts["kv_cache"]["block_size"]),
            max_num_seqs=int(args["max_num_seqs"]),
            max_num_batched_tokens=int(args["max_num_batched_tokens"]),
            max_waiting=len(item.table),
        ),
        drain_s=FOREVER_S, device_window_s=FOREVER_S,
    )  # fmt: skip


def trace_of(table: pd.DataFrame) -> tuple[Trace, pd.DataFrame]:
    """Return the run's arrivals and lengths as a trace, and its rows in the same order."""
    rows = table.sort_values("queued_ts", kind="stable").reset_index(drop=True)
    at = rows.queued_ts.to_numpy(dtype=float)
    prompt, output = (rows[c].to_numpy(dtype=np.int32) for c in ("input_toks", "output_toks"))
    return Trace(at - at[0], prompt, output, name="measured", max_tokens=output), rows


def times(arrival: Any, first: Any, last: Any, output: Any) -> dict[str, Column]:
    """Return TTFT, TPOT and latency of every request, in seconds; TPOT of one token is NaN."""
    gaps = np.where(np.asarray(output) > 1, np.asarray(output) - 1.0, np.nan)
    return {
        "ttft": np.asarray(first - arrival), "tpot": np.asarray((last - first) / gaps),
        "latency": np.asarray(last - arrival),
    }  # fmt: skip


def simulate(item: Measured, setup: Setup | None = None) -> tuple[pd.DataFrame, dict[str, Column]]:
    """Replay a measured run in the simulator; return its rows and the simulated times of each."""
    from sim.run import replay

    trace, rows = trace_of(item.table)
    journal = Journal(arm="measured")
    replay(trace, setup or setup_of(item), 0, journal)
    made = journal.to_pandas("requests").sort_values("request")
    return rows, times(
        made.arrival_s.to_numpy(), made.first_token_s.to_numpy(), made.end_s.to_numpy(),
        made.output_tokens.to_numpy(),
    )  # fmt: skip


def statistics(found: Mapping[str, Column], kept: Any) -> dict[str, tuple[float, float]]:
    """Return mean and p99 of every quantity over the *kept* requests."""
    return {
        name: (float(np.nanmean(values[kept])), float(np.nanquantile(values[kept], 0.99)))
        for name, values in found.items()
    }  # fmt: skip


def compare(
    rows: pd.DataFrame, made: Mapping[str, Column]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return errors of mean and p99, by half of the run and quantity."""
    first, second = halves(rows, "queued_ts")
    real = times(rows.queued_ts, rows.first_token_ts, rows.last_token_ts, rows.output_toks)
    out = {}
    for name, kept in (("first", first), ("second", second), ("all", first | second)):
        is_, was = statistics(made, kept), statistics(real, kept)
        out[name] = {
            q: (is_[q][0] / was[q][0] - 1.0, is_[q][1] / was[q][1] - 1.0) for q in QUANTITIES
        }
    return out


def serve(item: Measured) -> Serving:
    """Simulate one measured run by the bundled constants, and by those of a GPU without a fit."""
    setup = setup_of(item)
    pool, engine = setup.fleet.pools[0], setup.engine
    card, shape = hardware.gpu(pool.gpu), hardware.model(setup.model.name)
    cal = calibration(card, engine.kernel_plan)
    fit = cal.fits.get("host")
    read = bool(fit and digest(item.path) in fit.files)
    rows, made = simulate(item, setup)
    plan = memory_plan(
        card, shape, setup.model.precision, None, pool.tp, engine.memory_utilization_ratio,
        engine.kernel_plan, engine.max_num_batched_tokens, max_num_seqs=engine.max_num_seqs,
        block_tokens=engine.block_tokens,
    )  # fmt: skip
    real = times(rows.queued_ts, rows.first_token_ts, rows.last_token_ts, rows.output_toks)
    every = np.ones(len(rows), dtype=bool)
    return Serving(
        item.path.name, shape.name, card.name, len(rows), int(np.isfinite(made["latency"]).sum()),
        plan.capacity_tokens, int(item.facts["kv_cache"].get("num_kv_tokens", 0)),
        compare(rows, made), {}, _ms(statistics(real, every)),
        _ms(statistics(made, every)), "second" if read else "all",
    )  # fmt: skip


def _ms(found: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {name: (mean * 1e3, p99 * 1e3) for name, (mean, p99) in found.items()}
