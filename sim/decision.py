"""Decision times of the direct door, from a committed measurement: a simulation reads no clock."""

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from dispatch.errors import InputError

BUNDLED: Final = Path(__file__).parent / "calibration" / "decision.toml"


@dataclass(frozen=True, slots=True)
class DecisionTime:
    """Seconds a decision takes, and where the figure comes from."""

    seconds: float
    note: str


@cache
def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError.at(
            "door.decision_calibration", f"{path}: {error.strerror}",
            "name a file, or `bundled`; or set door.decision_us",
        ) from None  # fmt: skip
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError.at("door.decision_calibration", f"{path}: {error}") from None


def decision_time(calibration: str, policy: str, devices: int) -> DecisionTime:
    """Return the time of one decision of *policy* over *devices*.

    Between measured counts the logarithms are interpolated, outside the ends are held. A policy
    that was not measured takes the slowest of all that were, and the note says so.
    """
    path = BUNDLED if calibration == "bundled" else Path(calibration)
    table = _table(path)
    rows = table.get("policy", {})
    if not rows:
        raise InputError.at("door.decision_calibration", f"{path} has no [policy] table")
    machine = f"{table.get('machine', 'unknown machine')}, {table.get('date', 'undated')}"
    if policy in rows:
        seconds = _at(rows[policy], devices)
        note = f"decision time of {policy}: {seconds * 1e6:.1f} us ({machine})"
        return DecisionTime(seconds, note)
    seconds = max(_at(row, devices) for row in rows.values())
    return DecisionTime(
        seconds,
        f"policy {policy} is not in the decision calibration: the slowest measured, "
        f"{seconds * 1e6:.1f} us ({machine})",
    )


def _at(row: dict[str, Any], devices: int) -> float:
    counts, times = row["devices"], row["us"]
    x = math.log(max(1, devices))
    xs = [math.log(c) for c in counts]
    if x <= xs[0]:
        return float(times[0]) * 1e-6
    for left, right, low, high in zip(xs, xs[1:], times, times[1:], strict=False):
        if x <= right:
            share = (x - left) / (right - left)
            return math.exp(math.log(low) + share * (math.log(high) - math.log(low))) * 1e-6
    return float(times[-1]) * 1e-6
