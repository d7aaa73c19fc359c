"""One arm on one replicate in the live world: a real door as a process, replayed against, noted.

Every replica of the arm's fleet becomes a logical device whose KV memory holds as many tokens of
the live model as the memory plan gives the modelled card. Memory, doors, decisions, queues and
clocks are real; a card's speed is not: all devices share this machine.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dispatch.errors import InputError, Problem
from dispatch.journal import Journal
from dispatch.outcomes import Outcome, RootCause
from live.config import LiveConfig
from live.replay.local import replay_local
from live.replay.run import Plan, Replay
from live.shapes import shape_of
from scenarios import arms
from scenarios.cell import Cell, Columns, PartSink, Replayer, part_name
from scenarios.schema import ArmConfig, Scenario
from sim.fleet import build_kinds

_ENGINE: Final = (
    "kv", "block_tokens", "admission", "max_num_seqs", "max_num_batched_tokens", "chunked_prefill",
    "preemption", "max_waiting",
)  # fmt: skip
NOTES: Final = (
    "live: every device is a slice of this machine; GPU kinds differ in memory, group and weight, "
    "not in speed",
    "live: kernel plans, and delays and losses of telemetry, are not laid over a live engine",
)


def config(
    scenario: Scenario, arm: ArmConfig, model: str = "tiny", kind: str = "cpu", gpus: int = 1
) -> LiveConfig:
    """Return the live set-up of *arm*: *model* served on devices of *kind*, shared by *gpus* cards.

    Raises InputError naming what a live world cannot do.
    """
    problems = []
    if scenario.faults:
        problems.append(
            Problem("faults", "cannot be injected into live devices", "--set faults=[]")
        )
    if scenario.transfer.enabled:
        problems.append(Problem("transfer", "the live engine moves no KV", "leave it out"))
    if arm.door.kind == "legacy" and arm.policy.name != "static_weights":
        found = f"{arm.policy.name}, but the legacy door picks by static weights"
        problems.append(Problem(f"arms.{arm.name}.policy", found, "name static_weights"))
    if problems:
        raise InputError(problems)
    setup = arms.setup(scenario, arm)
    shape, kinds = shape_of(model), build_kinds(setup)
    devices = []
    for at, pool, index in arms.replicas(setup.fleet):
        plan = next(k.plan for k in kinds if k.pool is pool)
        devices.append(
            {
                "name": f"{pool.name}-{index}",
                "kind": kind,
                "index": at % gpus if kind == "cuda" else 0,
                "kv_mib": plan.capacity_tokens * shape.kv_bytes_per_token / 2**20,
                "weight": pool.weight,
                "group": pool.group,
                "gpu": pool.gpu,
            }
        )
    engine = arm.engine.model_dump()
    return LiveConfig.model_validate(
        {
            "model": {"name": model},
            "devices": devices,
            "engine": {name: engine[name] for name in _ENGINE},
            "policy": arm.policy.model_dump(),
            "wait": scenario.wait.model_dump(),
            "sample_interval_ms": arm.telemetry.interval_ms,
            "seed": scenario.seed,
            "settings": {
                "timeout_s": arm.door.timeout_s,
                "retries": arm.door.retries,
                **arm.door.settings,
            }
            if arm.door.kind == "legacy"
            else {},
        }
    )


class LiveReplayer(Replayer):
    """Runs cells of one scenario live, one after the other; traces as in simulation."""

    def __init__(
        self,
        scenario: str,
        trace_folder: Path,
        parts: Path,
        model: str = "tiny",
        kind: str = "cpu",
        gpus: int = 1,
    ) -> None:
        super().__init__(scenario, trace_folder, parts)
        self._configs = [
            config(self._scenario, arm, model, kind, gpus) for arm in self._scenario.arms
        ]

    def __call__(self, cell: Cell, progress: Callable[[int], None]) -> dict[str, Any]:
        """Replay *cell* live, write its rows to its part file, and return its facts."""
        scenario = self._scenario
        arm = scenario.arms[cell.arm]
        plan = Plan(
            max_tokens_default=scenario.max_tokens_default,
            deadline_s=scenario.wait.deadline_s,
            drain_s=scenario.drain_s,
            lag_limit_s=math.inf,  # the report judges the lag, by the tightest objective
            seed=scenario.seed,
        )
        told = [0]

        def show(done: int, of: int) -> None:
            progress(done - told[0])
            told[0] = done

        trace = self._trace(cell.replicate)
        with PartSink(self._parts / part_name(cell)) as sink:
            counts = Counts(sink)
            journal = Journal(counts, arm.name, cell.replicate)
            run = replay_local(trace, self._configs[cell.arm], arm.door.kind, plan, journal, show)
            journal.close()
        progress(len(trace) - told[0])
        return facts(run, counts, self._configs[cell.arm], arm)


class Counts:
    """A sink before a sink, which counts what the manifest states."""

    def __init__(self, sink: Callable[[str, Columns], None]) -> None:
        self._sink = sink
        self.outcomes: Counter[int] = Counter()
        self.causes: Counter[int] = Counter()
        self.sums: Counter[str] = Counter()
        self.placed: Counter[int] = Counter()

    def __call__(self, table: str, columns: Mapping[str, Any]) -> None:
        """Count the requests of a chunk and hand it on."""
        if table == "requests":
            self.outcomes.update(map(int, columns["outcome"]))
            self.causes.update(map(int, columns["root_cause"]))
            self.placed.update(map(int, columns["device"]))
            for name in ("attempts", "oom_events", "preemptions"):
                self.sums[name] += int(sum(columns[name]))
        self._sink(table, columns)


def facts(run: Replay, counts: Counts, setup: LiveConfig, arm: ArmConfig) -> dict[str, Any]:
    """Return what the run says of itself, under the names that a simulated run uses."""
    told = run.summary()
    names = [device.name for device in setup.devices]
    interval_s = setup.sample_interval_ms / 1e3
    return {
        "offered": len(run.seen),
        "outcomes": {o.name: counts.outcomes[o] for o in Outcome},
        "causes": {c.name: counts.causes[c] for c in RootCause if c},
        **{name: counts.sums[name] for name in ("attempts", "oom_events", "preemptions")},
        "span_s": run.offered_s,
        "door": {"kind": arm.door.kind},
        "arrivals_per_window": len(run.seen) / run.offered_s * interval_s if run.offered_s else 0.0,
        "telemetry": {"interval_s": interval_s},
        "devices": [
            {"device": at, "name": name, "placed": counts.placed[at]}
            for at, name in enumerate(names)
        ],
        "idle_devices": [name for at, name in enumerate(names) if not counts.placed[at]],
        "achieved_rate_per_s": told["achieved_rate_per_s"],
        "lag_p99_ms": told["lag_p99_ms"],
        "lag_max_ms": told["lag_max_ms"],
        "notes": [*NOTES, *run.problems],
    }
