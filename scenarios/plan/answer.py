"""The answer of one arm: the fleet, what it costs, how far it is from breaking, and how sure."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from scenarios.plan.around import Around, around
from scenarios.plan.conduct import Step, Together, conduct
from scenarios.plan.fleets import Counts, scaled
from scenarios.plan.search import Fleets, Mix, Search, Trial, Tried, evaluate
from scenarios.plan.trust import trust
from scenarios.schema import Scenario

T = TypeVar("T")
U = TypeVar("U")
_SHARES: Final = (0.9, 0.75, 0.5, 0.25, 0.1)


@dataclass(frozen=True, slots=True)
class Broken:
    """An SLO that a fleet breaks: its figure, its limit."""

    key: str
    value: float
    limit: float

    @property
    def ratio(self) -> float:
        """Figure over limit; infinite for a limit of 0 or a figure that is unknown."""
        if math.isnan(self.value) or not self.limit:
            return math.inf if not self.value <= self.limit else 0.0
        return self.value / self.limit

    def text(self) -> str:
        """Say what breaks by how much."""
        if math.isnan(self.value):
            return f"{self.key} is n/a (too few requests for a p99)"
        if math.isinf(self.value):
            return f"{self.key} is infinite (over 1 % of requests fail), limit {self.limit:g}"
        more = f", {100 * (self.ratio - 1):.0f} % over" if math.isfinite(self.ratio) else ""
        return f"{self.key} is {self.value:.4g}, limit {self.limit:g}{more}"


@dataclass(slots=True)
class Answer:
    """All that is said of one arm; None where there is no such fleet."""

    arm: str
    search: Search
    fleet: Tried | None
    mix: Mix
    mix_below: Tried | None = None
    """One replica fewer than *fleet*, in the scenario's mix."""
    below: Tried | None = None
    above: Tried | None = None
    """One replica fewer and one more than the best fleet, in its own proportions."""
    largest: Tried | None = None
    binding: tuple[Broken, ...] = ()
    load: float | None = None
    """Where no fleet holds: the share of the load that the largest fleet does hold; 0 is none."""
    around: Around = field(default_factory=Around)
    error: float = 0.0
    """By how much iterations may be slower or faster than modelled, a ratio; *trust* in words."""
    trust: str = ""

    @property
    def best(self) -> Tried | None:
        """The cheaper of the fleet in the scenario's mix and the cheapest mix."""
        found = [tried for tried in (self.mix.found, self.fleet) if tried is not None]
        return min(found, key=lambda t: self.search.kinds.cost(t.counts)) if found else None

    @property
    def unknown(self) -> bool:
        """Whether no fleet could be shown to hold, and none to break, an SLO: too few requests."""
        bound = self.best is None and bool(self.binding)
        return bound and all(math.isnan(b.value) for b in self.binding)

    def usd_per_million_tokens(self, tried: Tried) -> float:
        """Return the price of a million output tokens on a fleet at this trace's load."""
        tokens = tried.mean("output_tokens") / max(tried.mean("span_s"), 1e-9)
        return self.search.kinds.cost(tried.counts) / 3600 / tokens * 1e6 if tokens else math.inf


def broken(tried: Tried, scenario: Scenario) -> tuple[Broken, ...]:
    """Return the SLOs that *tried* breaks, the worst first."""
    limits = {k: v for k, v in scenario.slo.model_dump().items() if v is not None}
    found = [
        Broken(key, tried.worst(key), limit)
        for key, limit in limits.items()
        if not all(held[key] for held in tried.held)
    ]
    return tuple(sorted(found, key=lambda b: (-b.ratio, b.key)))


def answer(search: Search, *, deep: bool = True) -> Answer:
    """Return the answer for one arm, all by itself."""
    return conduct([answering(search, deep=deep)], search.sweep)[0]


async def answering(search: Search, *, deep: bool = True) -> Answer:
    """Find the answer for one arm.

    *deep* adds headroom, N-1, the tornado and the fleets at plus and minus the calibration error.
    """
    kinds, most = search.kinds, search.most
    family = Fleets(kinds, None, most)
    several = range(len(kinds.names)) if len(kinds.names) > 1 else ()
    alone = [Fleets(kinds, kind, most) for kind in several]
    fleet, *sizes = await Together[Any](
        [search.smallest(family), *(search.bisect(one) for one in alone)]
    )
    mix = await search.cheapest(sizes, fleet) if sizes else Mix(None, 0)
    found = Answer(search.arm.name, search, fleet, mix)
    known = trust(search.scenario, search.arm, found.best.counts if found.best else None)
    found.error, found.trust = known.error, known.text
    if fleet is not None and sum(fleet.counts) > 1:
        found.mix_below = await search.shown(family(sum(fleet.counts) - 1))
    best = found.best
    if best is None:
        found.largest = await search.full(family(most))
        found.binding = broken(found.largest, search.scenario)
        found.load = await _share_of_load(search, found.largest.counts)
        return found
    like = Fleets(replace(kinds, written=best.counts), None, most)
    beside = _neighbours(found, search, like)
    if deep:
        found.around, _ = await _both(around(search, best.counts, like, known.error), beside)
    else:
        await beside
    return found


async def _both(one: Step[T], other: Step[U]) -> tuple[T, U]:
    """Wait for two steps side by side."""
    first, second = await Together[Any]([one, other])
    return first, second


async def _neighbours(found: Answer, search: Search, family: Fleets) -> None:
    """Run one replica fewer and one more on all replicates."""
    size = sum(family.kinds.written)
    sizes = [n for n in (size - 1, size + 1) if 1 <= n <= search.most]
    tried = await Together([search.full(family(n)) for n in sizes])
    by_size = dict(zip(sizes, tried, strict=True))
    found.below, found.above = by_size.get(size - 1), by_size.get(size + 1)


async def _share_of_load(search: Search, counts: Counts) -> float:
    """Return the largest of a few shares of the load at which *counts* hold, as scouting sees."""
    trials = [Trial(scaled(search.scout_scenario, scale=share), counts) for share in _SHARES]
    tried = await evaluate(trials, search.arm, 1, brief=True)
    return max((s for s, t in zip(_SHARES, tried, strict=True) if t.feasible), default=0.0)


def pareto(search: Search, key: str = "ttft_p99_s") -> list[tuple[float, float, Counts]]:
    """Return (cost, p99, fleet) of every fleet that scouting saw and none dominates."""
    points = sorted(
        (search.kinds.cost(tried.counts), tried.figures[0].get(key, math.nan), tried.counts)
        for tried in search.scouted.values()
        if tried.figures[0]
    )
    front: list[tuple[float, float, Counts]] = []
    for cost, value, counts in points:
        if math.isfinite(value) and (not front or value < front[-1][1]):
            front.append((cost, value, counts))
    return front


def as_dict(found: Answer) -> dict[str, Any]:
    """Return the answer as JSON-able figures."""
    search = found.search
    scenario, kinds = search.scenario, search.kinds

    def fleet(tried: Tried | None) -> dict[str, Any] | None:
        if tried is None:
            return None
        return {
            "replicas": dict(zip(kinds.names, tried.counts, strict=True)),
            "usd_per_h": kinds.cost(tried.counts),
            "usd_per_million_output_tokens": found.usd_per_million_tokens(tried),
            "feasible": tried.feasible,
            "probability": tried.probability,
            "replicates": len(tried.held),
            "figures": {key: tried.worst(key) for key in scenario.slo.model_dump()},
            "broken": [b.text() for b in broken(tried, scenario)],
        }

    return {
        "arm": found.arm,
        "smallest_in_mix": fleet(found.fleet),
        "cheapest_mix": fleet(found.mix.found),
        "mixes_tried": found.mix.tried,
        "mix_search_cut": found.mix.cut,
        "smallest_in_mix_next_smaller": fleet(found.mix_below),
        "next_smaller": fleet(found.below),
        "next_larger": fleet(found.above),
        "largest_tried": fleet(found.largest),
        "binding": [b.text() for b in found.binding],
        "largest_holds_share_of_load": found.load,
        "headroom_load_factor": found.around.headroom,
        "headroom_is_a_lower_bound": found.around.headroom_open,
        "n_minus_1": {name: fleet(tried) for name, tried in found.around.n_minus_1.items()},
        "tornado": {
            title: {"low": fleet(low), "high": fleet(high)}
            for title, (low, high) in found.around.tornado.items()
        },
        "calibration_error": found.error,
        "calibration": {
            label: None if counts is None else dict(zip(kinds.names, counts, strict=True))
            for label, counts in found.around.calibration.items()
        },
        "pareto": [
            {"usd_per_h": cost, "ttft_p99_s": value, "fleet": kinds.text(counts)}
            for cost, value, counts in pareto(search)
        ],
    }
