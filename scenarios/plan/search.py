"""The search itself: bracket, bisect, then check the neighbours on every replicate.

Feasibility grows with the fleet only nearly: a bisection on one replicate finds where to look, and
all replicates decide. Every fleet that was tried is kept; a fleet that failed rules out each fleet
that has no more of any kind.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scenarios.plan.fleets import Counts, Kinds, equip, need_slos
from scenarios.schema import ArmConfig, Scenario
from scenarios.summary import holds
from scenarios.sweep import Sweep, SweepCell
from sim.config import FaultConfig


@dataclass(frozen=True, slots=True)
class Tried:
    """One fleet on one or all replicates: its figures, and which SLOs held in each."""

    counts: Counts
    figures: tuple[Mapping[str, float], ...]
    held: tuple[Mapping[str, bool], ...]

    @property
    def feasible(self) -> bool:
        """Whether every SLO held in every replicate that was run."""
        return all(all(found.values()) for found in self.held)

    @property
    def probability(self) -> float:
        """Share of the replicates in which every SLO held."""
        return sum(all(found.values()) for found in self.held) / len(self.held)

    def worst(self, key: str) -> float:
        """Return the largest value of one SLO's figure over the replicates (NaN if unknown)."""
        values = [figures.get(key, math.nan) for figures in self.figures]
        return math.nan if any(math.isnan(v) for v in values) else max(values)

    def mean(self, key: str) -> float:
        """Return the mean of a figure over the replicates."""
        return sum(figures.get(key, math.nan) for figures in self.figures) / len(self.figures)


@dataclass(slots=True)
class Search:
    """Searches fleets of one arm; *most* bounds the replicas of a fleet."""

    scenario: Scenario
    arm: ArmConfig
    sweep: Sweep
    most: int
    tried: dict[tuple[Counts, int], Tried] = field(default_factory=dict)
    kinds: Kinds = field(init=False)

    def __post_init__(self) -> None:
        need_slos(self.scenario)
        self.kinds = Kinds.of(self.scenario, self.arm)

    def once(self, counts: Counts) -> Tried:
        """Return a fleet's figures on the first replicate."""
        return self.try_all([counts], 1)[0]

    def full(self, counts: Counts) -> Tried:
        """Return a fleet's figures on every replicate."""
        return self.try_all([counts], self.scenario.replicates)[0]

    def try_all(self, fleets: Sequence[Counts], replicates: int) -> list[Tried]:
        """Return the figures of several fleets at once, so that all cores have work."""
        missing = [c for c in dict.fromkeys(fleets) if (c, replicates) not in self.tried]
        found = evaluate(self.scenario, self.arm, missing, replicates, self.sweep)
        self.tried |= {(tried.counts, replicates): tried for tried in found}
        return [self.tried[counts, replicates] for counts in fleets]

    def smallest(self, fleet: "Fleets") -> Tried | None:
        """Return the smallest feasible fleet of a family, checked on all replicates, or None.

        The one below is tried on all replicates too; it is in ``tried`` afterwards.
        """
        guess = self.bisect(fleet)
        while guess is not None and guess <= fleet.most:
            here = self.full(fleet(guess))
            if not here.feasible:
                guess += 1
                continue
            if guess == 1 or not self.full(fleet(guess - 1)).feasible:
                return here
            guess -= 1
        return None

    def bisect(self, fleet: "Fleets") -> int | None:
        """Return the smallest feasible size on the first replicate, as far as bisection sees."""
        low, high = 0, min(max(fleet.first, 1), fleet.most)
        while not self.once(fleet(high)).feasible:
            if high == fleet.most:
                return None
            low, high = high, min(2 * high, fleet.most)
        while high - low > 1:
            middle = (low + high) // 2
            if self.once(fleet(middle)).feasible:
                high = middle
            else:
                low = middle
        return high

    def cheapest(self, alone: Sequence[int | None], budget: int = 200) -> "Mix":
        """Return the cheapest feasible mix of kinds, given the smallest fleet of each kind alone.

        Mixes are tried cheapest first. Bounds: of a kind that holds alone no more than that; of one
        that never does, no more than the scenario has; and a mix whose capacities, each kind at
        1/alone a replica, add up to less than ``_LEAST`` is not tried. *budget* caps the trials.
        """
        most = [
            size if size is not None else written
            for size, written in zip(alone, self.kinds.written, strict=True)
        ]
        failed = [tried.counts for (_, _), tried in self.tried.items() if not tried.feasible]
        spent = 0
        for counts in self.kinds.mixes(most):
            if sum(counts) > self.most or _capacity(counts, alone) < _LEAST:
                continue
            if any(all(c <= f for c, f in zip(counts, bad, strict=True)) for bad in failed):
                continue
            if spent >= budget:
                return Mix(None, spent, cut=True)
            spent += 1
            if self.once(counts).feasible and self.full(counts).feasible:
                return Mix(self.full(counts), spent)
            failed.append(counts)
        return Mix(None, spent)


_LEAST = 0.7


def _capacity(counts: Counts, alone: Sequence[int | None]) -> float:
    if all(size is None for size in alone):
        return math.inf  # nothing is known: try everything
    return sum(c / size for c, size in zip(counts, alone, strict=True) if size)


@dataclass(frozen=True, slots=True)
class Mix:
    """The cheapest mix, how many were tried, and whether the budget ended the search."""

    found: Tried | None
    tried: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Fleets:
    """A family of fleets by size: the scenario's mix (kind None), or one kind alone."""

    kinds: Kinds
    kind: int | None
    most: int

    def __call__(self, size: int) -> Counts:
        """Return the fleet of *size* replicas."""
        if self.kind is None:
            return self.kinds.in_mix(size)
        return self.kinds.only(self.kind, size)

    @property
    def first(self) -> int:
        """Where to start looking: the size that the scenario has."""
        return sum(self.kinds.written)


def evaluate(
    scenario: Scenario,
    arm: ArmConfig,
    fleets: Sequence[Counts],
    replicates: int,
    sweep: Sweep,
    faults: Sequence[FaultConfig] | None = None,
) -> list[Tried]:
    """Run *fleets* on the first *replicates* replicates and judge them by the scenario's SLOs."""
    cells = []
    for counts in fleets:
        equipped = equip(scenario, arm, counts, faults)
        cells += [SweepCell(equipped, arm.name, r, {"fleet": counts}) for r in range(replicates)]
    outcomes = sweep.run(cells, f"plan {arm.name}")
    found = []
    for number, counts in enumerate(fleets):
        part = outcomes[number * replicates : (number + 1) * replicates]
        figures = tuple(outcome.figures for outcome in part)
        found.append(Tried(counts, figures, tuple(holds(f, scenario.slo) for f in figures)))
    return found
