"""How hard the claims were tested: load per telemetry window, and how busy the door was."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reports.document import Paragraph, Section, Table
from reports.intervals import nearest_rank
from reports.metrics import missed, misses, thresholds
from reports.numbers import count, number, percent, seconds
from reports.tables import Requests, Run

ENOUGH_ARRIVALS: Final = 10.0
STORY_ARRIVALS: Final = 1500.0  # 30,000 requests/s x 50 ms


@dataclass(frozen=True, slots=True)
class Pressure:
    """Load figures of one arm, means over replicates."""

    rate_per_s: float
    window_s: float
    arrivals_per_window: float
    busiest_window: float
    """Arrivals in the busiest telemetry window of any replicate."""
    finished_per_s: float
    """Requests answered in full / span of arrivals; after a warm-up by their ends."""
    goodput_per_s: float
    """Requests that met every SLO / span of arrivals."""
    output_tokens_per_s: float
    """Tokens of finished requests / span of arrivals."""
    in_system: float
    """Time-mean of requests between planned arrival and end (sum of times / span)."""
    lag_p99_s: float
    """Send lag of a live run; 0 in simulation."""
    door_busy_ratio: float
    """Handled time / (workers x span); NaN where the number of workers is not known."""
    door_wait_p99_s: float

    def as_dict(self) -> dict[str, float | None]:
        """Return JSON-able figures."""
        names = self.__dataclass_fields__
        values = {n: float(getattr(self, n)) for n in names}
        return {n: v if math.isfinite(v) else None for n, v in values.items()}


def arm_config(run: Run, arm: str) -> Mapping[str, Any]:
    """Return the scenario's configuration of one *arm*; empty where there is none."""
    found: Mapping[str, Any] = next(
        (a for a in run.scenario.get("arms") or () if a["name"] == arm), {}
    )
    return found


def section_of(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return one section of an arm's configuration, never None."""
    found: Mapping[str, Any] = config.get(name) or {}
    return found


def analyse(run: Run) -> dict[str, Pressure]:
    """Return the load figures of every arm."""
    return {arm: _of(run, arm) for arm in run.arms}


def _of(run: Run, arm: str) -> Pressure:
    config = arm_config(run, arm)
    window = float(section_of(config, "telemetry").get("interval_ms", 50.0)) / 1000
    door = section_of(config, "door")
    workers = float(door.get("workers", 16)) if door.get("kind") == "legacy" else 1.0
    rows, peak = [], 0.0
    cells = run.of(arm)
    for cell in cells:
        arrival = cell["arrival_s"]
        span = max(float(arrival[-1]) - (run.warmup_s or float(arrival[0])), window)
        slots = ((arrival - arrival[0]) / window).astype(np.int64)
        edges = np.flatnonzero(np.diff(slots, prepend=-1))
        peak = max(peak, float(np.diff(edges, append=len(slots)).max()))
        ended = _ended(cell, run)
        stay = cell["end_s"] - arrival
        rows.append(
            [
                len(cell) / span,
                *(figure / span for figure in ended),
                float(np.nansum(stay)) / span,
                float(np.nansum(cell["door_service_s"])) / (workers * span),
            ]
        )
    rate, finished, goodput, tokens, inside, busy = np.mean(rows, axis=0).tolist()
    return Pressure(
        rate, window, rate * window, peak, finished, goodput, tokens, inside,
        _p99(cells, "lag_s"), busy, _p99(cells, "door_wait_s"),
    )  # fmt: skip


def _ended(cell: Requests, run: Run) -> tuple[float, float, float]:
    """Return requests answered, requests that met every SLO, and tokens, of what ends in time.

    Rates go by the end: what arrived in the warm-up and ended after it is of them.
    """
    done = cell.finished
    good = float((cell.servable & ~misses(cell, run)).sum())
    figures = float(done.sum()), good, float(cell["output_tokens"][done].sum())
    if cell.early is None:
        return figures
    early = cell.early
    after = early.finished & (early["end_s"] >= run.warmup_s)
    kept = float((after & ~missed(early, thresholds(run))).sum())
    more = float(after.sum()), kept, float(early["output_tokens"][after].sum())
    return figures[0] + more[0], figures[1] + more[1], figures[2] + more[2]


def _p99(cells: list[Requests], column: str) -> float:
    values = np.concatenate([c[column] for c in cells])
    return nearest_rank(np.sort(values[~np.isnan(values)]), 99.0)


def hard_enough(run: Run, data: dict[str, Pressure]) -> bool:
    """Return whether the candidate saw at least ten arrivals a telemetry window."""
    return data[run.candidate].arrivals_per_window >= ENOUGH_ARRIVALS


def section(run: Run, data: dict[str, Pressure]) -> Section:
    """Return the section on how hard the claims were tested."""
    made = Section("pressure", "How hard it was tested")
    load = data[run.candidate].arrivals_per_window
    verdict = "enough" if hard_enough(run, data) else "too few"
    made.add(
        Paragraph(
            f"**{number(load)} arrivals a telemetry window** on average, {verdict} to judge C4 "
            f"and C8 (they need {ENOUGH_ARRIVALS:g}; the account under test implies "
            f"{STORY_ARRIVALS:,.0f}). A layer that idles is cheap to keep and cheap to delete, so "
            "these figures stand beside every result."
        )
    )
    labels: dict[str, Callable[[str], str]] = {
        "requests offered, a replicate": lambda a: count(len(run.cells[a, run.replicates[0]])),
        "arrival rate, requests/s": lambda a: number(data[a].rate_per_s),
        "finished, requests/s": lambda a: number(data[a].finished_per_s),
        "goodput (every SLO met), requests/s": lambda a: number(data[a].goodput_per_s),
        "output tokens/s": lambda a: number(data[a].output_tokens_per_s),
        "requests in the system, time-mean": lambda a: number(data[a].in_system),
        "send lag p99 (0 in simulation)": lambda a: seconds(data[a].lag_p99_s),
        "telemetry window": lambda a: seconds(data[a].window_s),
        "arrivals a window, mean": lambda a: number(data[a].arrivals_per_window),
        "arrivals in the busiest window": lambda a: count(data[a].busiest_window),
        "door utilisation (handled time / worker time)": lambda a: percent(data[a].door_busy_ratio),
        "wait for a door worker, p99": lambda a: seconds(data[a].door_wait_p99_s),
        "replicas · GPUs": lambda a: _fleet(run, a),
        "price, $/h": lambda a: _price(run, a),
    }
    rows = [(title, *(show(a) for a in run.arms)) for title, show in labels.items()]
    return made.add(Table("Load and fleet by arm", ("Measure", *run.arms), rows))


def _fleet(run: Run, arm: str) -> str:
    devices = run.devices(arm)
    return f"{len(devices)} · {sum(int(d.get('gpus', 1)) for d in devices)}" if devices else "n/a"


def _price(run: Run, arm: str) -> str:
    prices = [d.get("price_usd_per_h") for d in run.devices(arm)]
    known = [float(p) for p in prices if p is not None]
    return number(sum(known), 4) if known and len(known) == len(prices) else "n/a"
