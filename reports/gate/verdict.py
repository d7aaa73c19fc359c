"""When a ratio of paired timings is a regression, and when the machine cannot tell.

The estimate is the median over pairs of fresh processes; the interval runs between two order
statistics, which is distribution-free: of 11 pairs from the second smallest to the second largest
ratio (98.8 %), of 21 from the fifth to the fifth (99.3 %).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

REGRESS_LOW = 1.02
REGRESS_ESTIMATE = 1.05
PASS_HIGH = 1.05
PASS_ESTIMATE = 1.03
FLOOR_NS = 200.0
CONTROL_RATIO = 0.03
COVERAGE = 0.988  # of the interval, at least


class Verdict(StrEnum):
    """What the gate says of one check, or of all."""

    passed = "pass"
    regression = "regression"
    inconclusive = "inconclusive"


@dataclass(frozen=True, slots=True)
class Check:
    """One row of the gate: what was compared, and what came of it.

    ``estimate``, ``low`` and ``high`` are ratios head/base (NaN for exact checks);
    ``detail`` is a sentence for a person.
    """

    tier: int
    name: str
    verdict: Verdict
    detail: str
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    base: float = math.nan
    head: float = math.nan
    unit: str = ""


@dataclass(slots=True)
class GateResult:
    """All checks of one gate, in tier order, with what a reader needs to trust them."""

    checks: list[Check] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def verdict(self) -> Verdict:
        """A regression anywhere wins over inconclusive, and that over a pass."""
        found = {check.verdict for check in self.checks}
        for verdict in (Verdict.regression, Verdict.inconclusive):
            if verdict in found:
                return verdict
        return Verdict.passed

    def exit_code(self, inconclusive: str = "pass") -> int:
        """0 pass, 1 regression, 3 inconclusive (0 where *inconclusive* is ``pass``)."""
        if self.verdict is Verdict.regression:
            return 1
        if self.verdict is Verdict.inconclusive:
            return 0 if inconclusive == "pass" else 3
        return 0


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """Return (estimate, low, high) of paired ratios; at least 6 pairs are needed."""
    if len(ratios) < 6:
        raise ValueError(f"{len(ratios)} pairs are too few for an interval; 6 is the least")
    ordered = sorted(ratios)
    cut = _cut(len(ordered))
    return statistics.median(ordered), ordered[cut], ordered[-1 - cut]


def _cut(count: int) -> int:
    """Return how many ratios to leave out at each end, at least one whatever the coverage.

    The median of what is sampled lies outside when at most so many fall on one side of it: of
    *count* fair coins, twice the chance of at most *cut* heads. More pairs must narrow it.
    """
    cut, outside = 1, 1 + count
    while 2 * (outside + math.comb(count, cut + 1)) <= (1 - COVERAGE) * 2**count:
        cut += 1
        outside += math.comb(count, cut)
    return cut


def judge(
    name: str,
    base: Sequence[float],
    head: Sequence[float],
    *,
    unit: str = "ns",
    floor: float = FLOOR_NS,
    ratios: Sequence[float] | None = None,
) -> Check:
    """Judge one metric from paired measurements, one value a pair and side.

    *ratios* overrides head/base where the pairing is finer than a pair. A median paired
    difference below *floor* (in *unit*) passes: it is below what the timer can tell.
    """
    if not base or len(base) != len(head):
        raise ValueError(f"{name}: {len(base)} base and {len(head)} head samples do not pair")
    estimate, low, high = interval(ratios or [h / b for h, b in zip(head, base, strict=True)])
    base_mid, head_mid = statistics.median(base), statistics.median(head)
    if low > REGRESS_LOW and estimate > REGRESS_ESTIMATE:
        verdict = Verdict.regression
    elif high < PASS_HIGH or estimate < PASS_ESTIMATE:
        verdict = Verdict.passed
    else:
        verdict = Verdict.inconclusive
    text = f"{change(estimate)} [{change(low)}, {change(high)}]"
    # Paired: what differs from pair to pair (a slower core) must not hide what differs within.
    difference = statistics.median(h - b for h, b in zip(head, base, strict=True))
    if verdict is not Verdict.passed and abs(difference) < floor:
        verdict = Verdict.passed
        text += f", below the floor of {floor:g} {unit}"
    return Check(2, name, verdict, text, estimate, low, high, base_mid, head_mid, unit)


def control(name: str, ratios: Sequence[float]) -> Check:
    """Judge the A/A arm: outside ±3 % the environment is unfit, which is never a pass."""
    estimate = statistics.median(ratios)
    fit = abs(estimate - 1) <= CONTROL_RATIO
    detail = f"base against itself {change(estimate)}" + ("" if fit else ": environment unfit")
    return Check(2, name, Verdict.passed if fit else Verdict.inconclusive, detail, estimate)


def change(ratio: float) -> str:
    """Return a ratio as a signed percentage."""
    return f"{(ratio - 1) * 100:+.1f} %"
