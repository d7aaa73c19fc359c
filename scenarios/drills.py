"""Failure drills: each fault of the simulator alone, under every arm, as the report shows them."""

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_args

from reports import drills
from reports.tables import read_run
from scenarios import reference
from scenarios.check import found_in
from scenarios.run import run
from scenarios.schema import Scenario
from sim.config import FaultConfig

AT_S: Final = 120.0
LASTS_S: Final = 60.0
SPAN_S: Final = 420.0
"""Of the trace: two minutes before the fault, one of it, four after."""
REPLICATES: Final = 3
MOST: Final = 40_000
"""Requests a drill replays at most; a scaled trace is cut before it is superposed."""
KINDS: Final = get_args(FaultConfig.model_fields["kind"].annotation)
_FACTOR: Final[Mapping[str, float]] = {
    "link_degraded": 3.0, "ecc_slow": 3.0, "memory_leak": 5.0, "arrival_surge": 3.0,
    "slow_client": 5.0,
}  # fmt: skip
_PLACED: Final = ("gpu_lost", "link_degraded", "ecc_slow", "memory_leak")


def faults(scenario: Scenario) -> Iterator[FaultConfig]:
    """Yield one fault of every kind, on the first replica of the largest pool where it has one."""
    pool = max(scenario.fleet.pools, key=lambda p: p.count)
    for kind in KINDS:
        place: dict[str, Any] = {"pool": pool.name, "replica": 0} if kind in _PLACED else {}
        if kind in ("slow_client", "cancel"):
            place["ratio"] = 0.2
        yield FaultConfig(
            kind=kind, at_s=AT_S, duration_s=LASTS_S, factor=_FACTOR.get(kind, 2.0), **place
        )


def short(scenario: Scenario, fault: FaultConfig) -> Scenario:
    """Return *scenario* cut to one drill of *fault*."""
    trace = scenario.trace
    span_s = min(SPAN_S, trace.duration_s or SPAN_S)
    limit = max(1, int(MOST / max(trace.scale, 1.0)))
    trace = trace.model_copy(
        update={
            "duration_s": span_s,
            "limit": min(limit, trace.limit or limit),
            "block_s": min(trace.block_s, 10.0),
        }
    )
    return scenario.model_copy(
        update={
            "trace": trace,
            "faults": (fault,),
            "factors": (),
            "replicates": min(REPLICATES, scenario.replicates),
        }
    )


def study(
    scenario: Scenario, *, jobs: int = 0, quiet: bool = False
) -> dict[str, list[dict[str, Any]]]:
    """Run every drill and return the manifest's ``drills``; a fault that cannot be is left out."""
    scenario = reference.without(scenario)
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, Any]] = []
    for fault in faults(scenario):
        made = short(scenario, fault)
        problems = list(found_in(made))
        if problems:
            skipped.append({"fault": fault.kind, "why": problems[0][1]})
            continue
        rows += _drill(made, jobs, quiet)
    return {"drills": rows, "drills_skipped": skipped}


def _drill(made: Scenario, jobs: int, quiet: bool) -> list[dict[str, Any]]:
    def judge(place: Path, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
        return [d.as_dict() for d in drills.analyse(read_run(place, manifest))[0]]

    with tempfile.TemporaryDirectory(prefix="zerolayer-drill-") as scratch:
        done = run(made, Path(scratch) / "run", jobs=jobs, quiet=quiet, finish=judge)
    found: list[dict[str, Any]] = done.outcome
    return found
