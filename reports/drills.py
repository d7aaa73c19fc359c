"""Faults under every arm: what they cost, how fast they were seen and over, when to roll back."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reports import metrics as m
from reports.document import Paragraph, Section, Table
from reports.intervals import nearest_rank
from reports.numbers import number, percent, seconds
from reports.tables import Bools, Floats, Requests, Run, read_columns

WINDOW_S: Final = 10.0  # recovery is judged in windows of this length
BATCH: Final = 500  # requests a look of the rollback rule
FALSE_ALARM: Final = 0.01
_NAMES: Final = {"router_crash": "door crash (router, or dispatcher where there is none)"}


@dataclass(frozen=True, slots=True)
class Drill:
    """One scheduled fault under one arm; means over replicates."""

    fault: str
    arm: str
    at_s: float
    missed_before: float
    missed_during: float
    missed_after: float
    detect_s: float
    """Last placement on the faulty device, counted from the fault; NaN where it has none."""
    recover_s: float
    """Until the missed share is back at its level before; inf where it never is."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        names = self.__dataclass_fields__
        values = {n: getattr(self, n) for n in names}
        return {n: "inf" if v == math.inf else None if v != v else v for n, v in values.items()}


@dataclass(frozen=True, slots=True)
class Rollback:
    """Roll back when more than *limit* of *BATCH* requests in a row miss an SLO."""

    limit: float
    batches: int
    alarms_baseline: int
    alarms_candidate: int

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {n: getattr(self, n) for n in self.__dataclass_fields__} | {"batch": BATCH}


def analyse(run: Run) -> tuple[tuple[Drill, ...], Rollback | None]:
    """Return every scheduled fault under every arm, and the rollback rule."""
    faults = [f for f in run.scenario.get("faults") or () if f.get("at_s") is not None]
    picks = _placements(run) if any(f.get("pool") for f in faults) else {}
    drills = [_drill(run, arm, fault, picks) for fault in faults for arm in run.arms]
    drills += [from_dict(row) for row in run.manifest.get("drills") or ()]
    return tuple(drills), rollback(run)


def from_dict(row: Mapping[str, Any]) -> Drill:
    """Return the drill that :meth:`Drill.as_dict` made *row* of."""
    special = {"inf": math.inf, None: math.nan}
    return Drill(**{n: special.get(row[n], row[n]) for n in Drill.__dataclass_fields__})


def rollback(run: Run) -> Rollback | None:
    """Return the smallest limit that the baseline itself exceeds in at most 1 % of its batches."""
    base, cand = ([_batches(c, m.misses(c, run)) for c in run.of(a)] for a in _both(run))
    shares, others = np.concatenate(base), np.concatenate(cand)
    if len(shares) < 2:
        return None
    limit = nearest_rank(np.sort(shares), 100 * (1 - FALSE_ALARM))
    alarms = int((shares > limit).sum()), int((others > limit).sum())
    return Rollback(limit, len(shares), *alarms)


def _both(run: Run) -> tuple[str, str]:
    return run.baseline, run.candidate


def _batches(cell: Requests, bad: Bools) -> Floats:
    """Return the missed share of successive batches of servable requests, by arrival."""
    order = np.argsort(cell["arrival_s"], kind="stable")
    order = order[cell.servable[order]]
    whole = len(order) // BATCH
    shares: Floats = bad[order][: whole * BATCH].reshape(whole, BATCH).mean(axis=1)
    return shares


def _drill(
    run: Run, arm: str, fault: Mapping[str, Any], picks: Mapping[tuple[str, int], Any]
) -> Drill:
    at, length = float(fault["at_s"]), float(fault.get("duration_s", 60.0))
    device = _device(run, arm, fault)
    before, during, after, detect, recover = [], [], [], [], []
    for cell in run.of(arm):
        bad = m.misses(cell, run)
        arrival = cell["arrival_s"]
        level = _share(cell, bad, (arrival >= at - 300) & (arrival < at))
        before.append(level)
        during.append(_share(cell, bad, (arrival >= at) & (arrival < at + length)))
        after.append(_share(cell, bad, (arrival >= at + length) & (arrival < at + length + 300)))
        recover.append(_recovery(cell, bad, at, level))
        if device >= 0 and (arm, cell.replicate) in picks:
            times, devices = picks[arm, cell.replicate]
            hit = times[(devices == device) & (times >= at) & (times < at + length)]
            detect.append(float(hit.max() - at) if len(hit) else 0.0)
    kind = str(fault["kind"])
    name = _NAMES.get(kind, kind.replace("_", " ")) + (
        f" ({fault['pool']})" if fault.get("pool") else ""
    )
    return Drill(
        name, arm, at, _mean(before), _mean(during), _mean(after), _mean(detect), _mean(recover)
    )


def _share(cell: Requests, bad: Bools, rows: Bools) -> float:
    rows = rows & cell.servable
    return float(bad[rows].mean()) if rows.any() else math.nan


def _mean(values: list[float]) -> float:
    known = [v for v in values if not math.isnan(v)]
    return sum(known) / len(known) if known else math.nan


def _recovery(cell: Requests, bad: Bools, at: float, level: float) -> float:
    """Return when the missed share, by windows of arrivals, comes back to *level* for good."""
    rows = cell.servable & (cell["arrival_s"] >= at)
    if not rows.any() or math.isnan(level):
        return math.nan
    slot = ((cell["arrival_s"][rows] - at) // WINDOW_S).astype(np.int64)
    n = np.bincount(slot)
    share = np.bincount(slot, weights=bad[rows]) / np.maximum(n, 1)
    # A window of n requests strays from its level by chance: three standard errors are forgiven.
    spread = 3 * np.sqrt(max(level, 1 / max(len(cell), 1)) / np.maximum(n, 1))
    above = np.flatnonzero(share > level + spread)
    first = above[above * WINDOW_S < 60]
    if not len(first):
        return 0.0
    gaps = np.flatnonzero(np.diff(above, append=len(n) + 10) > 3)  # calm for 3 windows
    end = above[gaps[0]] + 1
    return math.inf if end >= len(n) else float(end * WINDOW_S)


def _device(run: Run, arm: str, fault: Mapping[str, Any]) -> int:
    if fault.get("pool") is None or fault.get("replica") is None:
        return -1
    pool = [d for d in run.devices(arm) if d.get("pool") == fault["pool"]]
    at = int(fault["replica"])
    return int(pool[at]["device"]) if at < len(pool) else -1


def _placements(run: Run) -> dict[tuple[str, int], tuple[Floats, Any]]:
    path = run.folder / "decisions.parquet"
    if not path.is_file():
        return {}
    raw = read_columns(path, ["arm", "replicate", "time_s", "device"])
    codes, names = raw["arm"]
    found = {}
    for arm, rep in run.cells:
        code = names.index(arm) if arm in names else -2
        rows = (codes == code) & (raw["replicate"] == rep)
        found[arm, rep] = (raw["time_s"][rows], raw["device"][rows])
    return found


def section(run: Run, drills: tuple[Drill, ...], rule: Rollback | None) -> Section:
    """Return the section on failure drills and rollback."""
    made = Section("drills", "Failure drills and rollback")
    if not drills:
        made.add(
            Paragraph(
                "No fault was scheduled in this scenario, so neither arm's behaviour under faults "
                "is shown here. `--drills` runs each fault of the simulator under every arm."
            )
        )
    else:
        rows = [
            (
                d.fault,
                d.arm,
                seconds(d.at_s),
                percent(d.missed_before),
                percent(d.missed_during),
                percent(d.missed_after),
                "n/a" if math.isnan(d.detect_s) else seconds(d.detect_s),
                "never" if math.isinf(d.recover_s) else seconds(d.recover_s),
            )
            for d in drills
        ]
        head = (
            "Fault", "arm", "at", "missed before", "during", "after",
            "seen after", "over after",
        )  # fmt: skip
        made.add(Table("Faults, means over replicates", head, rows, frozenset({0, 1})))
        for skipped in run.manifest.get("drills_skipped") or ():
            name = str(skipped["fault"]).replace("_", " ")
            made.add(Paragraph(f"Not drilled: {name}: {skipped['why']}.", "note"))
        made.add(
            Paragraph(
                "Missed: share of servable requests that failed or missed an SLO; before, after: "
                "in 5 min at most on either side of the fault. Seen after: the "
                "last placement on the faulty device. Over after: the missed share, in windows of "
                f"{WINDOW_S:g} s, is back at its level before (three standard errors) for three "
                "windows.",
                "note",
            )
        )
    if rule is None:
        return made.add(
            Paragraph(f"Too few requests for a rollback rule (two batches of {BATCH}).", "note")
        )
    return made.add(
        Paragraph(
            f"**Proposed rollback rule**: go back when more than {number(100 * rule.limit)} % of "
            f"{BATCH} requests in a row miss an SLO. `{run.baseline}` itself exceeds that in "
            f"{rule.alarms_baseline} of {rule.batches} batches here, `{run.candidate}` in "
            f"{rule.alarms_candidate}."
        )
    )
