"""One cell of a sweep in figures: what a table of hundreds of cells can hold.

The definitions are those of the reports (failures are infinite samples, shares are of servable
requests), so that a sweep and a report of the same cell say the same.
"""

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from dispatch.outcomes import Outcome, RootCause
from reports import metrics
from reports.intervals import nearest_rank, sample_floor
from reports.tables import DeviceSeries, Requests, warmed_up
from reports.utilisation import matrix, measures
from scenarios.schema import SloConfig

LATENCIES: Final = ("ttft_s", "tpot_s", "e2e_s")
PERCENTS: Final = (50.0, 90.0, 99.0)
_EXCUSED: Final = (Outcome.rejected_context, Outcome.cancelled)


class Collector:
    """A journal sink that keeps the request rows and the busy series of one cell in memory."""

    _WANTED: Final[Mapping[str, tuple[str, ...]]] = {
        "requests": (
            "request", "arrival_s", "prompt_tokens", "output_tokens", "outcome", "root_cause",
            "attempts", "oom_events", "decision_start_s", "decision_end_s", "started_s",
            "first_token_s", "end_s", "door_wait_s", "door_service_s",
        ),
        "devices": ("device", "time_s", "window_s", "busy_ratio"),
    }  # fmt: skip

    def __init__(self) -> None:
        self._chunks: dict[str, dict[str, list[Any]]] = {
            table: {column: [] for column in columns} for table, columns in self._WANTED.items()
        }

    def __call__(self, table: str, columns: Mapping[str, Any]) -> None:
        """Take one chunk; what a summary does not read is dropped."""
        for column, chunks in self._chunks.get(table, {}).items():
            chunks.append(np.asarray(columns[column]))

    def table(self, name: str) -> dict[str, Any]:
        """Return one table whole."""
        return {
            column: np.concatenate(chunks) if chunks else np.empty(0)
            for column, chunks in self._chunks[name].items()
        }


class HopelessError(Exception):
    """Too many requests have failed for any p99 to be finite, whatever follows."""


class Hopeful(Collector):
    """A collector that ends a run of *offered* requests once its p99 latencies must be infinite.

    A failure is an infinite sample, and of n samples the p99 is the ceil(0.99 n)-th: more than
    n / 100 failures make it infinite. Not all that is offered need become a sample; that only makes
    n smaller, and so the figure infinite sooner.
    """

    def __init__(self, offered: int) -> None:
        super().__init__()
        self._allowed = offered // 100

    def __call__(self, table: str, columns: Mapping[str, Any]) -> None:
        """Take one chunk, or raise :class:`HopelessError`."""
        super().__call__(table, columns)
        if table == "requests":
            fine = np.isin(columns["outcome"], (Outcome.finished, *_EXCUSED))
            self._allowed -= int((~fine).sum())
            if self._allowed < 0:
                raise HopelessError


def cut_short(offered: int) -> dict[str, float]:
    """Return what is known of a cell that :class:`Hopeful` ended: no more than its p99s."""
    infinite = {f"{name.removesuffix('_s')}_p99_s": math.inf for name in LATENCIES}
    return {"offered": float(offered), "cut": 1.0, **infinite}


def summarise(
    rows: Collector, facts: Mapping[str, Any], slo: SloConfig, devices: int, warmup_s: float = 0.0
) -> dict[str, float]:
    """Return the figures of one cell; a percentile below its sample floor is NaN."""
    cell = warmed_up(Requests("", 0, rows.table("requests"), {}), warmup_s)
    columns = cell.columns
    cell.servable = ~np.isin(columns["outcome"], _EXCUSED)
    servable = int(cell.servable.sum())
    figures: dict[str, float] = {"offered": float(len(cell)), "servable": float(servable)}
    for outcome in Outcome:
        figures[outcome.name] = float((columns["outcome"] == outcome).sum())
    figures["oom_rate"] = _share(metrics.ooms(cell).sum(), servable)
    figures["error_rate"] = _share(metrics.errors(cell).sum(), servable)
    figures["unfinished_rate"] = _share(metrics.unfinished(cell).sum(), servable)
    figures |= _latencies(cell)
    figures |= _against(cell, slo, servable)
    figures |= _causes(columns)
    lost = metrics.unfinished(cell)
    figures["lost"] = float(lost.sum())
    misjudged = columns["root_cause"] == RootCause.memory_misjudged
    figures["lost_misjudged"] = float((lost & misjudged).sum())
    figures["output_tokens"] = float(columns["output_tokens"][cell.finished].sum())
    figures["span_s"] = float(np.ptp(columns["arrival_s"])) if len(cell) else math.nan
    until_s = float(columns["arrival_s"].max()) if len(cell) else 0.0
    figures |= _spread(rows.table("devices"), devices, until_s, warmup_s)
    figures |= _facts(facts)
    return figures


def _share(count: Any, of: int) -> float:
    return float(count) / of if of else math.nan


def _latencies(cell: Requests) -> dict[str, float]:
    figures: dict[str, float] = {}
    for name in LATENCIES:
        samples = metrics.ordered(cell, metrics.METRICS[name])
        short = name.removesuffix("_s")
        for percent in PERCENTS:
            known = len(samples) >= sample_floor(percent)
            value = nearest_rank(samples, percent) if known else math.nan
            figures[f"{short}_p{percent:g}_s"] = float(value)
        finished = samples[np.isfinite(samples)]
        figures[f"{short}_mean_s"] = float(finished.mean()) if len(finished) else math.nan
    return figures


def _against(cell: Requests, slo: SloConfig, servable: int) -> dict[str, float]:
    """Return the share of servable requests that meet every latency SLO (goodput's base)."""
    asked = {name: getattr(slo, f"{name.removesuffix('_s')}_p99_s") for name in LATENCIES}
    limits = {name: limit for name, limit in asked.items() if limit is not None}
    missed = int(metrics.missed(cell, limits).sum())
    return {"attainment": 1.0 - _share(missed, servable), "missed": float(missed)}


def _causes(columns: Mapping[str, Any]) -> dict[str, float]:
    timed_out = columns["outcome"] == Outcome.timed_out
    return {
        f"timed_out_{cause.name}": float((timed_out & (columns["root_cause"] == cause)).sum())
        for cause in RootCause
        if cause is not RootCause.none
    }


def _spread(
    series: Mapping[str, Any], devices: int, until_s: float, warmup_s: float
) -> dict[str, float]:
    """Return the utilisation measures of the reports, prefixed ``busy_``."""
    found = DeviceSeries(*(series[name] for name in ("device", "time_s", "window_s", "busy_ratio")))
    if not len(found.device):
        return {}
    busy, _ = matrix(found, devices, until_s, warmup_s)
    return {f"busy_{name}": float(value) for name, value in measures(busy).items()}


def _facts(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return the single figures among the facts of a run, prefixed ``fact_``."""
    return {
        f"fact_{name}": float(value)
        for name, value in facts.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def holds(figures: Mapping[str, float], slo: SloConfig) -> dict[str, bool]:
    """Return for each SLO that *slo* asks whether one cell meets it; unknown is not met."""
    asked = {key: limit for key, limit in slo.model_dump().items() if limit is not None}
    return {key: bool(figures.get(key, math.nan) <= limit) for key, limit in asked.items()}
