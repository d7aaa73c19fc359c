"""The answer of one arm: the fleet, what it costs, how far it is from breaking, and how sure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scenarios.plan.fleets import Counts, scaled, slowed
from scenarios.plan.search import Fleets, Mix, Search, Trial, Tried, evaluate
from scenarios.plan.trust import trust
from scenarios.schema import Scenario

TORNADO: Final[Mapping[str, tuple[str, float, float]]] = {
    "rate": ("scale", 0.8, 1.2),
    "prompt length": ("prompt_scale", 0.8, 1.2),
    "output length": ("output_scale", 0.8, 1.2),
}
_HEADROOM_STEPS: Final = 2
_HEADROOM_MOST: Final = 4.0
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
    headroom: float | None = None
    headroom_open: bool = False
    n_minus_1: dict[str, Tried] = field(default_factory=dict)
    tornado: dict[str, tuple[Tried, Tried]] = field(default_factory=dict)
    tornado_base: Tried | None = None
    error: float = 0.0
    """By how much iterations may be slower or faster than modelled, a ratio; *trust* in words."""
    trust: str = ""
    calibration: dict[str, Counts | None] = field(default_factory=dict)

    @property
    def best(self) -> Tried | None:
        """The cheaper of the fleet in the scenario's mix and the cheapest mix."""
        found = [tried for tried in (self.mix.found, self.fleet) if tried is not None]
        return min(found, key=lambda t: self.search.kinds.cost(t.counts)) if found else None

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
    """Return the answer for one arm.

    *deep* adds headroom, N-1, the tornado and the fleets at plus and minus the calibration error.
    """
    kinds, most = search.kinds, search.most
    family = Fleets(kinds, None, most)
    fleet = search.smallest(family)
    alone = [_alone(search, kind) for kind in range(len(kinds.names))]
    known = trust(search.scenario, search.arm)
    found = Answer(
        search.arm.name, search, fleet, _mix(search, alone, fleet), error=known.error,
        trust=known.text,
    )  # fmt: skip
    if fleet is not None and sum(fleet.counts) > 1:
        found.mix_below = search.full(family(sum(fleet.counts) - 1))
    best = found.best
    if best is None:
        found.largest = search.full(family(most))
        found.binding = broken(found.largest, search.scenario)
        found.load = _share_of_load(search, found.largest.counts)
        return found
    size = sum(best.counts)
    like = Fleets(replace(kinds, written=best.counts), None, most)
    found.below = search.full(like(size - 1)) if size > 1 else None
    found.above = search.full(like(size + 1)) if size < most else None
    if deep:
        _sensitivity(found, search, best)
        _at_error(found, search, like, size, known.error)
    return found


def _share_of_load(search: Search, counts: Counts) -> float:
    """Return the largest of a few shares of the load at which *counts* hold, as scouting sees."""
    trials = [Trial(scaled(search.scout_scenario, scale=share), counts) for share in _SHARES]
    tried = evaluate(trials, search.arm, 1, search.sweep)
    return max((s for s, t in zip(_SHARES, tried, strict=True) if t.feasible), default=0.0)


def _alone(search: Search, kind: int) -> int | None:
    if len(search.kinds.names) == 1:
        return None
    family = Fleets(search.kinds, kind, search.most)
    return search.bisect(family)


def _mix(search: Search, alone: list[int | None], known: Tried | None) -> Mix:
    if len(search.kinds.names) == 1:
        return Mix(None, 0)
    return search.cheapest(alone, known)


def _sensitivity(found: Answer, search: Search, fleet: Tried) -> None:
    found.headroom, found.headroom_open = _headroom(search, fleet.counts)
    for kind, name in enumerate(search.kinds.names):
        if fleet.counts[kind] and sum(fleet.counts) > 1:
            lost = tuple(c - (k == kind) for k, c in enumerate(fleet.counts))
            found.n_minus_1[name] = search.full(lost)
    trials = [
        Trial(scaled(search.scout_scenario, **{key: factor}), fleet.counts)
        for key, low, high in TORNADO.values()
        for factor in (low, high)
    ]
    seen = iter(evaluate(trials, search.arm, 1, search.sweep))
    found.tornado = {title: (next(seen), next(seen)) for title in TORNADO}
    found.tornado_base = search.scout([fleet.counts])[0]


def _headroom(search: Search, counts: Counts) -> tuple[float, bool]:
    """Return the load factor up to which the SLOs hold as far as scouting sees.

    True beside it where they still hold at the largest factor tried.
    """

    def good(factors: list[float]) -> list[bool]:
        scout = search.scout_scenario
        trials = [Trial(scaled(scout, scale=factor), counts) for factor in factors]
        return [t.feasible for t in evaluate(trials, search.arm, 1, search.sweep)]

    low, high = 1.0, 1.5
    while all(good([(low + high) / 2, high])):
        low, high = high, high * 1.5
        if low >= _HEADROOM_MOST:
            return low, True
    for _ in range(_HEADROOM_STEPS):
        thirds = [low + (high - low) / 3, low + 2 * (high - low) / 3]
        first, second = good(thirds)
        low, high = (
            (thirds[1], high) if first and second else (thirds[0], thirds[1]) if first
            else (low, thirds[0])
        )  # fmt: skip
    return low, False


def _at_error(found: Answer, search: Search, family: Fleets, size: int, error: float) -> None:
    """Find the smallest fleet if iterations take *error* more, and less, than the model says."""
    for label, factor, step in (("slower", 1 + error, 1), ("faster", 1 / (1 + error), -1)):
        held: Counts | None = family(size) if step < 0 else None
        guess = size
        while 1 <= guess <= search.most:
            good = _stretched(search, family(guess), factor)
            held = family(guess) if good else held
            if good == (step > 0):
                break
            guess += step
        found.calibration[label] = held


def _stretched(search: Search, counts: Counts, factor: float) -> bool:
    scout = search.scout_scenario
    trial = Trial(scout, counts, tuple(slowed(scout, counts, search.arm, factor)))
    return evaluate([trial], search.arm, 1, search.sweep)[0].feasible


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
        "headroom_load_factor": found.headroom,
        "headroom_is_a_lower_bound": found.headroom_open,
        "n_minus_1": {name: fleet(tried) for name, tried in found.n_minus_1.items()},
        "tornado": {
            title: {"low": fleet(low), "high": fleet(high)}
            for title, (low, high) in found.tornado.items()
        },
        "calibration_error": found.error,
        "calibration": {
            label: None if counts is None else dict(zip(kinds.names, counts, strict=True))
            for label, counts in found.calibration.items()
        },
        "pareto": [
            {"usd_per_h": cost, "ttft_p99_s": value, "fleet": kinds.text(counts)}
            for cost, value, counts in pareto(search)
        ],
    }
