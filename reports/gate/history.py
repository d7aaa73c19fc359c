"""One CSV line a gate run, and a picture of it with change points."""

import csv
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dispatch.errors import InputError
from reports.gate.verdict import GateResult

FIELDS = ("time_utc", "commit", "base", "verdict", "metric", "base_value", "head_value", "ratio")


def append(path: Path, result: GateResult, when: datetime | None = None) -> int:
    """Append a line for each timed check and return how many; the file is made where missing."""
    stamp = (when or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    rows = [
        {
            "time_utc": stamp,
            "commit": str(result.manifest.get("head", ""))[:12],
            "base": str(result.manifest.get("base", ""))[:12],
            "verdict": check.verdict.value,
            "metric": check.name,
            "base_value": f"{check.base:.1f}",
            "head_value": f"{check.head:.1f}",
            "ratio": f"{check.estimate:.5f}",
        }
        for check in result.checks
        if not math.isnan(check.estimate) and not math.isnan(check.head)
    ]
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if fresh:
            writer.writeheader()
        writer.writerows(rows)
    return len(rows)


def read(path: Path) -> dict[str, list[dict[str, str]]]:
    """Return the lines of a history by metric, oldest first."""
    if not path.exists():
        raise InputError.at(str(path), "no such history", "run `zerolayer gate --history` first")
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = set(FIELDS) - set(reader.fieldnames or ())
        if missing:
            raise InputError.at(
                f"{path}:1", f"no column {', '.join(sorted(missing))}", "is it a gate history?"
            )
        series: dict[str, list[dict[str, str]]] = {}
        for number, row in enumerate(reader, 2):
            try:
                float(row["ratio"])
            except (TypeError, ValueError):
                raise InputError.at(
                    f"{path}:{number}", f"ratio {row['ratio']!r} is no number", "mend or drop it"
                ) from None
            series.setdefault(row["metric"], []).append(row)
    if not series:
        raise InputError.at(str(path), "the history has no line yet", "run the gate once")
    return series


def levels(ratios: list[float]) -> list[float]:
    """Return the cumulated level of a metric from its ratios head/base; the first base is 1."""
    level, out = 1.0, []
    for ratio in ratios:
        level *= ratio
        out.append(level)
    return out


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


def draw(series: dict[str, list[dict[str, str]]], path: Path) -> dict[str, list[int] | None]:
    """Draw each metric's level over the runs and return the change points by metric."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2.2 * len(series)), layout="constrained")
    axes: Any = figure.subplots(len(series), 1, squeeze=False)[:, 0]
    found: dict[str, list[int] | None] = {}
    for axis, (metric, rows) in zip(axes, sorted(series.items()), strict=True):
        values = levels([float(r["ratio"]) for r in rows])
        axis.plot(range(len(values)), values, "o-", color="#0072B2", markersize=3)
        found[metric] = change_points(values)
        for point in found[metric] or []:
            axis.axvline(point - 0.5, color="#D55E00", linestyle="--")
            axis.annotate(rows[point]["commit"], (point, values[point]), fontsize=7)
        axis.set_title(f"{metric}: level relative to the first base", fontsize=9, loc="left")
        axis.set_ylabel("ratio")
        axis.set_xlabel("gate run")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    return found
