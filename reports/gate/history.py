"""One CSV line a gate run, and a picture of it with change points."""

import csv
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dispatch.errors import InputError
from reports.gate.verdict import GateResult

METRICS = ("p50", "p99", "cpu")
FIELDS = (
    "time_utc",
    "commit",
    "base",
    "path",
    "verdict",
    *(f"{m}_{what}" for m in METRICS for what in ("base_ns", "head_ns", "ratio")),
)
Row = dict[str, str]


def append(path: Path, result: GateResult, when: datetime | None = None) -> None:
    """Append one line for this run; metrics that it did not take stay empty."""
    row = {
        "time_utc": (when or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": str(result.manifest.get("head", ""))[:12],
        "base": str(result.manifest.get("base", ""))[:12],
        "path": str(result.manifest.get("path", "")),
        "verdict": result.verdict.value,
    }
    for check in result.checks:
        metric = check.name.split()[-1].lower()
        if metric in METRICS and not math.isnan(check.head) and not math.isnan(check.estimate):
            row[f"{metric}_base_ns"] = f"{check.base:.1f}"
            row[f"{metric}_head_ns"] = f"{check.head:.1f}"
            row[f"{metric}_ratio"] = f"{check.estimate:.5f}"
    fresh = not path.exists()
    if not fresh:
        read(path)  # a foreign file is not appended to
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, restval="")
        if fresh:
            writer.writeheader()
        writer.writerow(row)


def read(path: Path) -> list[Row]:
    """Return the lines of a history, oldest first; a foreign or broken one is refused."""
    if not path.exists():
        raise InputError.at(str(path), "no such history", "run `zerolayer gate --history` first")
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in FIELDS if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError.at(f"{path}:1", f"no column {missing[0]}", "is it a gate history?")
        rows = list(reader)
    for number, row in enumerate(rows, 2):
        for name in (f"{metric}_ratio" for metric in METRICS):
            if row[name] and not _positive(row[name]):
                raise InputError.at(
                    f"{path}:{number}", f"{name} {row[name]!r} is no ratio", "mend or drop the line"
                )
    return rows


def _positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def series(rows: Sequence[Row]) -> dict[str, list[tuple[str, float]]]:
    """Return (commit, level) of each path and metric, run by run.

    A level is chained from the run that measured this run's base; a base that no run measured
    starts at 1. Pull requests off one base therefore stand beside each other, not on each other.
    """
    found: dict[str, list[tuple[str, float]]] = {}
    known: dict[tuple[str, str], float] = {}
    for row in rows:
        for metric in METRICS:
            if row[f"{metric}_ratio"]:
                name = f"{row['path'] or 'decisions'} {metric}"
                level = known.get((name, row["base"]), 1.0) * float(row[f"{metric}_ratio"])
                known[name, row["commit"]] = level
                found.setdefault(name, []).append((row["commit"], level))
    return found


def change_points(values: list[float]) -> list[int] | None:
    """Return where the level of *values* changes (PELT, ruptures); None without that library.

    The penalty is the BIC of a shift in mean, 3·σ²·ln n, with σ from first differences.
    """
    try:
        import ruptures
    except ImportError:
        return None
    if len(values) < 6:
        return []
    import numpy as np

    steps = np.abs(np.diff(np.asarray(values)))
    sigma = max(1e-4, float(np.median(steps)) / 0.9539)  # median |N(0, 2σ²)| = 0.9539 σ
    penalty = 3 * sigma**2 * math.log(len(values))
    found = ruptures.Pelt(model="l2", min_size=3, jump=1).fit(np.asarray(values))
    return [int(i) for i in found.predict(pen=penalty)[:-1]]


def draw(rows: Sequence[Row], path: Path) -> dict[str, list[int] | None]:
    """Draw each metric's level over the runs and return the change points by metric."""
    from matplotlib.figure import Figure

    lines = series(rows)
    if not lines:
        raise InputError.at("the history", "no run in it took times", "run the gate with tier 2")
    figure = Figure(figsize=(8, 2.2 * len(lines)), layout="constrained")
    axes: Any = figure.subplots(len(lines), 1, squeeze=False)[:, 0]
    found: dict[str, list[int] | None] = {}
    for axis, (metric, points) in zip(axes, sorted(lines.items()), strict=True):
        values = [level for _, level in points]
        axis.plot(range(len(values)), values, "o-", color="#0072B2", markersize=3)
        found[metric] = change_points(values)
        for at in found[metric] or []:
            axis.axvline(at - 0.5, color="#D55E00", linestyle="--")
            axis.annotate(points[at][0], (at, values[at]), fontsize=7)
        axis.set_title(f"{metric}: level relative to the first base", fontsize=9, loc="left")
        axis.set_ylabel("ratio")
        axis.set_xlabel("gate run")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return found
