"""What a claim's row is, what it is judged by, and the words for how it came out."""

from dataclasses import dataclass
from typing import Final

from reports.causes import Causes
from reports.intervals import Interval
from reports.pressure import Pressure
from reports.tables import Run
from reports.utilisation import Utilisation

HOLDS: Final = "holds"
FAILS: Final = "does not hold"
OPEN: Final = "not enough evidence"
ABSENT: Final = "not measured here"
INPUT: Final = "input, not result"
BUILT: Final = "by construction"

BY_INTERVAL: Final = 3  # C1, C2 and C5 share the error
CLAIMED_RATIO: Final = 0.63  # C1: end-to-end latency -37 %
CLAIMED_SPREAD_POINTS: Final = 0.8  # C2
CLAIMED_SPEED_UP: Final = 4.9  # C4: 8.4 ms -> 1.7 ms
CLAIMED_SHARE: Final = 0.63  # C5
PRECISE_ENOUGH: Final = 0.10  # C5: half an interval's width
ZERO_NEEDS: Final = 4603  # C3: requests without one error before "zero" means anything


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the claims table."""

    id: str
    claim: str
    claimed: str
    measured: str
    status: str
    rule: str

    def as_dict(self) -> dict[str, str]:
        """Return the row as JSON-able text."""
        return {name: str(getattr(self, name)) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the claims are judged by."""

    run: Run
    causes: Causes
    utilisation: Utilisation
    pressure: dict[str, Pressure]
    age_p99_s: float
    """Age of what the candidate's decisions saw, p99; NaN where there are none."""

    @property
    def level(self) -> float:
        """Two-sided level of one claim's interval, so that all of them hold together."""
        return 1 - (1 - self.run.confidence) / BY_INTERVAL


def at_most(interval: Interval, figure: float) -> str:
    """Judge "is at most *figure*" by a two-sided interval."""
    if not interval.known:
        return OPEN
    if interval.high <= figure:
        return HOLDS
    return FAILS if interval.low > figure else OPEN


def both(first: str, second: str) -> str:
    """Return the status of a claim given twice: it holds only if both do."""
    if first == second == HOLDS:
        return HOLDS
    return FAILS if FAILS in (first, second) else OPEN
