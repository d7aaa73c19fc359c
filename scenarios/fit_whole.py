"""Fits the stack of 2023 to prompt and token times of whole models, and leaves groups out."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Final

import numpy as np
import pandas as pd

from dispatch import hardware
from dispatch.hardware import Calibration, calibration
from scenarios.estimate import estimate
from scenarios.fit import Free, Rows, changed, fit, put, train_rows
from scenarios.fit_jobs import SPLITWISE
from scenarios.measured import Measured
from scenarios.split import digest

STACK: Final = "eager-2023"
# Launching an operator eagerly costs a host 16 to 40 us (vLLM's all-reduce, eager less graphed).
SHARED: Final = (
    Free("gemm", "memory_ratio", 0.3, 1.0), Free("launch", "eager_us", 16.0, 40.0),
    Free("host", "iteration_us", 1.0, 60000.0), Free("host", "sequence_us", 0.1, 2000.0),
    Free("host", "prefill_us", 0.1, 60000.0), Free("host", "blend", 1.0, 20.0),
    Free("collective", "port_ratio", 0.05, 1.0), Free("collective", "growth", 0.01, 1.5),
    Free("collective", "crowd_mib", 16.0, 64.0),
)  # fmt: skip
OWN: Final = (
    Free("gemm", "compute_ratio", 0.2, 1.3), Free("collective", "crowd_ratio", 0.01, 4.0),
)  # fmt: skip
START: Final = (
    ("host", "sequence_us", 300.0), ("host", "prefill_us", 18000.0), ("host", "blend", 6.0),
    ("collective", "port_ratio", 0.3), ("collective", "crowd_ratio", 0.1),
)  # fmt: skip
HOSTS: Final = ((18.0, 22000.0), (30.0, 8000.0))
"""Where a fit begins: us a launch and us an iteration; the better end is kept."""
POOL: Final = 1.0
"""How strongly the GPUs hold together: what the rows of one do not say, the other's do."""
SCALES: Final = (0.1, 0.02, 0.007)
"""Finer than for operators: so few rows, and their median is what is judged."""
SECTIONS: Final = ("gemm", "launch", "host", "collective")
BARRED: Final = "llama-2-70b"
OTHER_WEIGHT: Final = 0.1
"""Weight of rows of other models: they steady the fit, the bar is not theirs."""


def plausible(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose prompt time does not fall as the batch grows.

    Where it does, the batch did not fit in memory and ran in turns of which one was timed.
    """
    t = table.sort_values(["gpu", "model", "tp", "prompt", "batch"]).reset_index(drop=True)
    high = t.groupby(["gpu", "model", "tp", "prompt"]).prompt_us.cummax()
    return t[t.prompt_us >= high].reset_index(drop=True)


def rows_of(item: Measured, table: pd.DataFrame) -> list[Rows]:
    """Return what a fit looks at: prompt and token times, other models at less weight."""
    found = []
    for other in (False, True):
        part = table[(table.model != BARRED) == other].reset_index(drop=True)
        if len(part):
            weight = OTHER_WEIGHT if other else 1.0
            found += train_rows(replace(item, table=part), weight=weight)
    return found


def starts(names: Sequence[str]) -> list[dict[str, Calibration]]:
    """Return the constants that fits begin with: the generic ones of ``vllm``, eager hosts."""
    found = []
    for eager_us, iteration_us in HOSTS:
        values = {Free(s, k, 0.0, 0.0): v for s, k, v in START}
        values |= {Free("launch", "eager_us", 0.0, 0.0): eager_us}
        values |= {Free("host", "iteration_us", 0.0, 0.0): iteration_us}
        bare = {n: calibration(hardware.gpu(n), "eager", "vllm", bare=True) for n in names}
        found.append({n: put(replace(cal, stack=STACK), values) for n, cal in bare.items()})
    return found


def best(begin: Sequence[dict[str, Calibration]], item: Measured, table: pd.DataFrame,
         shared: Sequence[Free], own: Sequence[Free]) -> dict[str, Calibration]:  # fmt: skip
    """Return the best of the fits to *table* from every start, by the mean error it leaves."""
    ends = [
        fit(start, shared, rows_of(item, table), own, pool=POOL, scales=SCALES) for start in begin
    ]
    return min(ends, key=lambda end: float(sum(np.mean(v) for v in errors(table, end).values())))


def errors(table: pd.DataFrame, found: dict[str, Calibration]) -> dict[str, Any]:
    """Return the absolute errors of prompt and token time of the rows of :data:`BARRED`."""
    t = table[table.model == BARRED].reset_index(drop=True)
    return {
        "prompt": np.abs(estimate("whole", STACK, t, found) / t.prompt_us.to_numpy() - 1.0),
        "token": np.abs(estimate("tokens", STACK, t, found) / t.token_us.to_numpy() - 1.0),
    }


def left_out(item: Measured, begin: Sequence[dict[str, Calibration]]) -> dict[str, float]:
    """Return the median errors with each GPU-and-TP group predicted by a fit to the others."""
    kept = plausible(item.table)
    found: dict[str, list[Any]] = {"prompt": [], "token": []}
    barred = item.table[item.table.model == BARRED]
    for (gpu, tp), group in barred.groupby(["gpu", "tp"]):
        others = kept[(kept.gpu != gpu) | (kept.tp != tp)].reset_index(drop=True)
        made = best(begin, item, others, SHARED, OWN)
        for kind, values in errors(group.reset_index(drop=True), made).items():
            found[kind].append(values)
            print(f"  without {gpu} TP{tp}: {kind} {np.median(values):.2%}")
    return {kind: float(np.median(np.concatenate(values))) for kind, values in found.items()}


def fit_whole(
    items: Sequence[Measured],
) -> Iterator[tuple[str, str, str, dict[str, Any], dict[str, Any]]]:
    """Yield (GPU, stack, section, constants, record), then the same for GPUs without a fit."""
    item = next(i for i in items if i.kind == "whole")
    names = sorted(item.table.gpu.unique())
    begin = starts(names)
    kept = plausible(item.table)
    found = best(begin, item, kept, SHARED, OWN)
    seen = errors(kept, found)
    tokens = item.table.prompt * item.table.batch
    record = {
        "source": SPLITWISE, "card": ", ".join(names), "date": date.today().isoformat(),
        "rows": 2 * len(kept),
        "median_error": float(np.median(np.concatenate(list(seen.values())))),
        "files": [digest(item.path)],
        "range": {
            "tokens": [1.0, float(tokens.max())], "tp": [2.0, 8.0],
            "batch": [1.0, float(item.table.batch.max())],
        },
        "left_out": left_out(item, begin),
    }  # fmt: skip
    joint = best([found], item, kept, (*SHARED, *OWN), ())
    for name, cal in (*found.items(), ("generic", next(iter(joint.values())))):
        for section in SECTIONS:
            yield name, STACK, section, changed(cal, section), record
