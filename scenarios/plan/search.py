"""The search itself: bracket, bisect, then check the neighbours on every replicate.

Feasibility grows with the fleet only nearly: scouting finds where to look, and all replicates
decide. Every fleet that was tried is kept. All methods are steps of a search (``conduct``).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from scenarios.plan.conduct import Ask
from scenarios.plan.fleets import Counts, Kinds, equip, need_slos
from scenarios.plan.mixes import Columns
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
    """Searches fleets of one arm; *most* bounds the replicas of a fleet, *wide* is fleets at once.

    Scouting looks at the first replicate and its first ``SCOUT`` requests only; what is answered
    was run on every replicate in full.
    """

    scenario: Scenario
    arm: ArmConfig
    sweep: Sweep
    most: int
    wide: int = 2
    scouted: dict[Counts, Tried] = field(default_factory=dict)
    tried: dict[Counts, Tried] = field(default_factory=dict)
    failed: dict[Counts, Tried] = field(default_factory=dict)
    """Fleets that do not hold, on the replicates up to the first that broke."""
    kinds: Kinds = field(init=False)
    scout_scenario: Scenario = field(init=False)

    def __post_init__(self) -> None:
        need_slos(self.scenario)
        self.kinds = Kinds.of(self.scenario, self.arm)
        self.scout_scenario = self.scenario
        if self.sweep.requests(self.scenario) > 1.5 * SCOUT:
            trace = self.scenario.trace.model_copy(update={"limit": _scout_limit(self.scenario)})
            self.scout_scenario = self.scenario.model_copy(update={"trace": trace})

    async def scout(self, fleets: Sequence[Counts]) -> list[Tried]:
        """Return the figures of *fleets* on the part of the first replicate that scouting sees."""
        missing = [c for c in dict.fromkeys(fleets) if c not in self.scouted]
        trials = [Trial(self.scout_scenario, counts) for counts in missing]
        found = await evaluate(trials, self.arm, 1, brief=True)
        self.scouted |= {tried.counts: tried for tried in found}
        return [self.scouted[counts] for counts in fleets]

    async def full(self, counts: Counts) -> Tried:
        """Return a fleet's figures on every replicate in full."""
        if counts not in self.tried:
            trial = Trial(self.scenario, counts)
            self.tried[counts] = (await evaluate([trial], self.arm, self.scenario.replicates))[0]
        return self.tried[counts]

    async def judged(self, counts: Counts) -> Tried:
        """Return a fleet's figures on every replicate, or up to the first that breaks an SLO.

        One replicate that breaks is enough to know that a fleet does not hold.
        """
        if counts in self.tried or counts in self.failed:
            return self.tried.get(counts) or self.failed[counts]
        count = self.scenario.replicates
        found = Tried(counts, (), ())
        for first in range(0, count, self.wide):
            trial, part = Trial(self.scenario, counts), min(self.wide, count - first)
            more = (await evaluate([trial], self.arm, part, first, brief=True))[0]
            found = Tried(counts, found.figures + more.figures, found.held + more.held)
            if not more.feasible:
                break
        cut = any(figures.get("cut") for figures in found.figures)
        kept = self.tried if len(found.held) == count and not cut else self.failed
        kept[counts] = found
        return found

    async def shown(self, counts: Counts) -> Tried:
        """Return what :meth:`judged` does, with the figures of replicates that were cut short."""
        found = await self.judged(counts)
        figures, held = list(found.figures), list(found.held)
        for replicate in [r for r, known in enumerate(figures) if known.get("cut")]:
            whole = await evaluate([Trial(self.scenario, counts)], self.arm, 1, replicate)
            figures[replicate], held[replicate] = whole[0].figures[0], whole[0].held[0]
        return Tried(counts, tuple(figures), tuple(held))

    async def holds(self, counts: Counts) -> bool:
        """Whether a fleet holds on every replicate in full."""
        return (await self.judged(counts)).feasible

    async def smallest(self, fleet: "Fleets") -> Tried | None:
        """Return the smallest feasible fleet of a family, checked on all replicates, or None.

        The one below fails on one of them at least.
        """
        guess = await self.bisect(fleet)
        down = 1
        if guess is None:  # scouting may be too strict: the largest fleet has the last word
            guess, down = fleet.most, max(1, fleet.most // 2)
        bad, up = 0, 1
        while not await self.holds(fleet(guess)):
            if guess == fleet.most:
                return None
            bad, guess, up = guess, min(guess + up, fleet.most), 2 * up
        while guess - bad > 1:
            below = (bad + guess) // 2 if bad else max(1, guess - down)
            if await self.holds(fleet(below)):
                guess, down = below, 2 * down
            else:
                bad = below
        return await self.full(fleet(guess))

    async def bisect(self, fleet: "Fleets") -> int | None:
        """Return the smallest size that scouting finds feasible, *wide* sizes at a time."""
        low, high = 0, 0
        size = min(max(fleet.first, 1), fleet.most)
        while not high:
            probes = sorted({min(size * 2**k, fleet.most) for k in range(self.wide)})
            low, high = await self._narrowed(fleet, probes, low, high)
            if not high and low == fleet.most:
                return None
            size = 2 * low
        while high - low > 1:
            steps = min(self.wide, high - low - 1)
            probes = [low + (high - low) * k // (steps + 1) for k in range(1, steps + 1)]
            low, high = await self._narrowed(fleet, [max(n, low + 1) for n in probes], low, high)
        return high

    async def _narrowed(
        self, fleet: "Fleets", probes: Sequence[int], low: int, high: int
    ) -> tuple[int, int]:
        """Return the largest size seen to fail and the smallest above it seen to hold."""
        probes = sorted(set(probes))
        tried = await self.scout([fleet(size) for size in probes])
        for size, found in zip(probes, tried, strict=True):
            if found.feasible:
                return low, size
            low = size
        return low, high

    async def cheapest(self, alone: Sequence[int | None], known: Tried | None) -> "Mix":
        """Return the cheapest feasible mix of kinds, given the smallest fleet of each kind alone.

        *known* is a fleet that holds already. Of a kind that holds alone little more than that is
        taken; of one that does not, what costs less than *known*, or, where nothing is known to
        hold, what the scenario has.
        """

        async def look(fleets: Sequence[Counts]) -> list[bool]:
            return [tried.feasible for tried in await self.scout(fleets)]

        sizes = [size if size is not None else math.inf for size in alone]
        columns = Columns(
            self.kinds, sizes.index(min(sizes)), self.most, self._bounds(alone, known), look,
            self.holds, self.wide,
        )  # fmt: skip
        best = await columns.search(None if known is None else known.counts)
        found = None if best is None else await self.full(best)
        return Mix(found, columns.looked, columns.cut)

    def _bounds(self, alone: Sequence[int | None], known: Tried | None) -> list[int]:
        bounds = []
        for kind, (size, written) in enumerate(zip(alone, self.kinds.written, strict=True)):
            price = self.kinds.usd_per_h[kind]
            if size is not None:
                bounds.append(min(self.most, size + max(1, size // 4)))  # scouting may be too kind
            elif known is not None and price > 0:
                bounds.append(min(self.most, int(self.kinds.cost(known.counts) / price)))
            else:
                bounds.append(written)
        return bounds


def _scout_limit(scenario: Scenario) -> int:
    """Return the limit that leaves SCOUT requests after scaling."""
    return max(1, round(SCOUT / scenario.trace.scale))


SCOUT = 4000


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


@dataclass(frozen=True, slots=True)
class Trial:
    """A fleet to run: under which scenario, and with which faults (None: the scenario's)."""

    scenario: Scenario
    counts: Counts
    faults: tuple[FaultConfig, ...] | None = None


async def evaluate(
    trials: Sequence[Trial], arm: ArmConfig, replicates: int, first: int = 0, brief: bool = False
) -> list[Tried]:
    """Run all *trials* at once, each on *replicates* replicates from *first* on, and judge them.

    *brief* ends a run once a p99 that is asked for must be infinite, without its other figures.
    """
    cells = []
    for trial in trials:
        equipped = equip(trial.scenario, arm, trial.counts, trial.faults)
        slo = trial.scenario.slo
        asked = any(p99 is not None for p99 in (slo.ttft_p99_s, slo.tpot_p99_s, slo.e2e_p99_s))
        cells += [
            SweepCell(equipped, arm.name, first + r, brief=brief and asked)
            for r in range(replicates)
        ]
    outcomes = await Ask(cells)
    found = []
    for number, trial in enumerate(trials):
        part = outcomes[number * replicates : (number + 1) * replicates]
        figures = tuple(outcome.figures for outcome in part)
        held = tuple(holds(f, trial.scenario.slo) for f in figures)
        found.append(Tried(trial.counts, figures, held))
    return found
