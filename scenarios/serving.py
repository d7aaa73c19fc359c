"""A measured serving run against the same run in the simulator, request by request.

The run's own arrivals, lengths and engine limits go through the simulator's engine on one replica.
TTFT counts from the engine's queue, TPOT from the first to the last token, latency is their span.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dispatch import hardware
from dispatch.config import PolicyConfig, WaitConfig
from dispatch.hardware import Calibration, calibration, memory_plan
from scenarios.measured import Measured
from scenarios.split import digest, halves
from sim.clock import Clock, nanoseconds
from sim.config import DoorConfig, EngineConfig, FleetConfig, ModelConfig, PoolConfig, Setup
from sim.cost import StepCost
from sim.engine import Engine
from sim.fleet import Kind, build_kinds
from sim.rates import Rates
from sim.recall import Recall, RecallKv
from sim.sequence import Sequence
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


class _Watch:
    """Notes when sequences of one engine emit their first token and end."""

    def __init__(self, env: Clock, count: int) -> None:
        self.env = env
        self.first = np.full(count, np.nan)
        self.last = np.full(count, np.nan)

    def started(self, sequence: Sequence) -> None:
        """Nothing: TTFT counts from the queue."""

    def first_token(self, sequence: Sequence) -> None:
        self.first[sequence.owner] = self.env.now_s

    def finished(self, sequence: Sequence) -> None:
        self.last[sequence.owner] = self.env.now_s

    def out_of_memory(self, engine: Any, sequence: Sequence) -> None:
        """It stays without an end."""


def simulate(
    item: Measured, setup: Setup | None = None, constants: Calibration | None = None
) -> tuple[pd.DataFrame, dict[str, Column], Kind]:
    """Run a measured run's requests through the simulator's engine, by other *constants* if given.

    Returns its rows, the simulated times of each, and the replica. No door stands before the
    engine, as none stood before the measured one.
    """
    setup = setup or setup_of(item)
    kind = kind_of(setup, constants)
    trace, rows = trace_of(item.table)
    env = Clock()
    host = _Watch(env, len(trace))
    kv = kv_of(item, kind, setup)
    engine = Engine(env, host, 0, kv, kind.rates, setup.engine)
    engine.prefix = Recall(kv)
    for row in range(len(trace)):
        output = int(trace.output_tokens[row])
        sequence = Sequence(row, int(trace.prompt_tokens[row]), output, output, hashes=(row,))
        env.call_at(nanoseconds(float(trace.arrival_s[row])), engine.submit, sequence)
    env.run()
    made = times(trace.arrival_s, host.first, host.last, trace.output_tokens)
    return rows, made, kind


def kv_of(item: Measured, kind: Kind, setup: Setup) -> RecallKv:
    """Return the KV memory of the measured engine, by the rules that its configuration names."""
    facts = item.facts
    scheduler = (facts.get("resolved_config") or {}).get("scheduler_config") or {}
    return RecallKv(
        kind.plan.capacity_tokens, kind.plan.kv_bytes_per_token, setup.engine.block_tokens,
        reserve=bool(scheduler.get("scheduler_reserve_full_isl", False)),
        recall=bool(facts["kv_cache"].get("enable_prefix_caching", False)),
    )  # fmt: skip


def kind_of(setup: Setup, constants: Calibration | None = None) -> Kind:
    """Return the replica of *setup*, priced and sized by *constants* where they are given."""
    kind = build_kinds(setup)[0]
    if constants is None:
        return kind
    engine, pool = setup.engine, kind.pool
    cost = StepCost(
        kind.gpu, kind.model, kind.model_config.precision, pool.tp, engine.kernel_plan,
        kv_precision=kind.model_config.kv_precision, constants=constants,
    )  # fmt: skip
    plan = memory_plan(
        kind.gpu, kind.model, kind.model_config.precision, kind.model_config.kv_precision, pool.tp,
        engine.memory_utilization_ratio, engine.kernel_plan, engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs, block_tokens=engine.block_tokens,
        memory=constants.memory,
    )  # fmt: skip
    return replace(kind, cost=cost, rates=Rates(cost), plan=plan)


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
    """Simulate one measured run by the bundled constants, and by those of a GPU without a fit.

    The bar is put to the second half of a run that the constants were fitted to, else to all of it.
    """
    setup = setup_of(item)
    card = hardware.gpu(setup.fleet.pools[0].gpu)
    fit = calibration(card, setup.engine.kernel_plan).fits.get("host")
    read = bool(fit and digest(item.path) in fit.files)
    rows, made, kind = simulate(item, setup)
    bare = calibration(card, setup.engine.kernel_plan, bare=True)
    _, guess, _ = simulate(item, setup, bare)
    real = times(rows.queued_ts, rows.first_token_ts, rows.last_token_ts, rows.output_toks)
    every = np.ones(len(rows), dtype=bool)
    return Serving(
        item.path.name, kind.model.name, card.name, len(rows),
        int(np.isfinite(made["latency"]).sum()), kind.plan.capacity_tokens,
        int(item.facts["kv_cache"].get("num_kv_tokens", 0)), compare(rows, made),
        compare(rows, guess), _ms(statistics(real, every)), _ms(statistics(made, every)),
        "second" if read else "all",
    )  # fmt: skip


def _ms(found: Mapping[str, tuple[float, float]]) -> dict[str, tuple[float, float]]:
    return {name: (mean * 1e3, p99 * 1e3) for name, (mean, p99) in found.items()}
