"""How far a fleet is from breaking: headroom, N-1, what moves p99, and the cost model's error."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from scenarios.plan.conduct import Step, Together
from scenarios.plan.fleets import Counts, scaled, slowed
from scenarios.plan.search import Fleets, Search, Trial, Tried, evaluate

TORNADO: Final[Mapping[str, tuple[str, float, float]]] = {
    "rate": ("scale", 0.8, 1.2),
    "prompt length": ("prompt_scale", 0.8, 1.2),
    "output length": ("output_scale", 0.8, 1.2),
}
_HEADROOM_STEPS: Final = 2
_HEADROOM_MOST: Final = 4.0


@dataclass(slots=True)
class Around:
    """What is known of a fleet's surroundings."""

    headroom: float | None = None
    headroom_open: bool = False
    """The SLOs still held at the largest load tried."""
    n_minus_1: dict[str, Tried] = field(default_factory=dict)
    """By kind, a replica of it lost; judged up to the first replicate that breaks."""
    tornado: dict[str, tuple[Tried, Tried]] = field(default_factory=dict)
    tornado_base: Tried | None = None
    calibration: dict[str, Counts | None] = field(default_factory=dict)


async def around(search: Search, fleet: Counts, family: Fleets, error: float) -> Around:
    """Look at all that surrounds *fleet*, side by side; *error* is that of the cost model."""
    found = Around()
    parts: list[Step[Any]] = [
        _headroom(found, search, fleet), _tornado(found, search, fleet),
        _at_error(found, search, family, "slower", 1 + error, 1),
        _at_error(found, search, family, "faster", 1 / (1 + error), -1),
        _lose_one(found, search, fleet, family),
    ]  # fmt: skip
    await Together(parts)
    found.calibration = {label: found.calibration[label] for label in ("slower", "faster")}
    return found


async def _lose_one(found: Around, search: Search, fleet: Counts, family: Fleets) -> None:
    names, below = search.kinds.names, family(sum(fleet) - 1)
    lost = {
        name: tuple(c - (k == kind) for k, c in enumerate(fleet))
        for kind, name in enumerate(names)
        if fleet[kind] and sum(fleet) > 1
    }
    tried = await Together(
        [search.full(c) if c == below else search.shown(c) for c in lost.values()]
    )
    found.n_minus_1 = dict(zip(lost, tried, strict=True))


async def _tornado(found: Around, search: Search, fleet: Counts) -> None:
    trials = [
        Trial(scaled(search.scout_scenario, **{key: factor}), fleet)
        for key, low, high in TORNADO.values()
        for factor in (low, high)
    ]
    seen = iter(await evaluate(trials, search.arm, 1))
    found.tornado = {title: (next(seen), next(seen)) for title in TORNADO}
    found.tornado_base = (await search.scout([fleet]))[0]


async def _headroom(found: Around, search: Search, fleet: Counts) -> None:
    """Find the load factor up to which the SLOs hold as far as scouting sees."""

    async def good(factors: list[float]) -> list[bool]:
        scout = search.scout_scenario
        trials = [Trial(scaled(scout, scale=factor), fleet) for factor in factors]
        return [t.feasible for t in await evaluate(trials, search.arm, 1, brief=True)]

    low, high = 1.0, 1.5
    while all(await good([(low + high) / 2, high])):
        low, high = high, high * 1.5
        if low >= _HEADROOM_MOST:
            found.headroom, found.headroom_open = low, True
            return
    for _ in range(_HEADROOM_STEPS):
        thirds = [low + (high - low) / 3, low + 2 * (high - low) / 3]
        first, second = await good(thirds)
        low, high = (
            (thirds[1], high) if first and second else (thirds[0], thirds[1]) if first
            else (low, thirds[0])
        )  # fmt: skip
    found.headroom = low


async def _at_error(
    found: Around, search: Search, family: Fleets, label: str, factor: float, step: int
) -> None:
    """Find the smallest fleet, by *step* replicas, if iterations take *factor* times as long."""
    size = sum(family.kinds.written)
    held: Counts | None = family(size) if step < 0 else None
    guess = size
    while 1 <= guess <= search.most:
        good = await _stretched(search, family(guess), factor)
        held = family(guess) if good else held
        if good == (step > 0):
            break
        guess += step
    found.calibration[label] = held


async def _stretched(search: Search, counts: Counts, factor: float) -> bool:
    scout = search.scout_scenario
    trial = Trial(scout, counts, tuple(slowed(scout, counts, search.arm, factor)))
    return (await evaluate([trial], search.arm, 1, brief=True))[0].feasible
