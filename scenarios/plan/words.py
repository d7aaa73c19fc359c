"""A plan in sentences: the answer first, then what a planner asks next."""

import math
from collections.abc import Iterator

from reports.intervals import sample_floor
from reports.numbers import number
from reports.student import binomial_bounds
from scenarios.plan.answer import Answer, broken
from scenarios.plan.search import Tried
from scenarios.schema import Scenario


def sentence(found: Answer) -> str:
    """Say the answer of one arm in one sentence."""
    kinds, best = found.search.kinds, found.best
    asked = goal(found.search.scenario)
    if best is None:
        holds = "can be shown to hold" if found.unknown else "holds"
        return (
            f"With {found.arm}, no fleet of up to {found.search.most} replicas {holds} {asked}: "
            f"{_nearest(found)}"
        )
    price = number(kinds.cost(best.counts), 4)
    text = (
        f"With {found.arm}, {kinds.text(best.counts)} is the cheapest fleet found that holds "
        f"{asked}, at {price} $/h ({number(found.usd_per_million_tokens(best))} $ per million "
        f"output tokens)"
    )
    if found.fleet is not None and found.fleet is not best:
        text += f"; in the scenario's mix it takes {kinds.text(found.fleet.counts)}"
    return text + "."


def goal(scenario: Scenario) -> str:
    """Write the SLOs that are asked."""
    limits = {k: v for k, v in scenario.slo.model_dump().items() if v is not None}
    return ", ".join(f"{key} <= {limit:g}" for key, limit in limits.items())


def _nearest(found: Answer) -> str:
    """Name the binding SLO and the nearest point at which the largest fleet would do."""
    if not found.binding or found.largest is None:
        return "its cells failed."
    binds = found.binding[0].text()
    fleet = found.search.kinds.text(found.largest.counts)
    if any(math.isnan(b.value) for b in found.binding):
        offered = min(figures.get("offered", 0.0) for figures in found.largest.figures)
        floor = sample_floor(99.0)
        count = f"{offered:,.0f} are offered, {floor:,} are needed"
        return f"{binds}: {count}; replay a longer trace."
    if all(math.isfinite(b.value) for b in found.binding):
        point = ", ".join(f"{b.key} <= {b.value:.4g}" for b in found.binding)
        return f"{binds}; the nearest feasible point is {point} on {fleet}."
    if found.load:
        share = f"{100 * found.load:.0f} % of this load on {fleet}"
        return f"{binds}; the nearest feasible point is {share}."
    return (
        f"{binds}, and a tenth of this load on {fleet} does not help: not more replicas, but "
        "another policy, engine or GPU."
    )


def beside(found: Answer) -> Iterator[str]:
    """Yield what stands beside the answer, a sentence each."""
    kinds, best = found.search.kinds, found.best
    if best is None:
        return
    yield f"Holds in {chance(best)} replicates of the trace."
    if found.below is not None:
        yield f"One replica fewer, {kinds.text(found.below.counts)}: {verdict(found, found.below)}."
    if found.above is not None and not found.above.feasible:
        yield (
            f"One replica more, {kinds.text(found.above.counts)}, does not hold in every replicate "
            f"({verdict(found, found.above)}): near its border feasibility is no step."
        )
    if (headroom := found.around.headroom) is not None:
        more = " or more" if found.around.headroom_open else ""
        yield f"Headroom: up to x {headroom:.2f}{more} of this load, as far as scouting sees."
    for name, tried in found.around.n_minus_1.items():
        part = len(tried.held) < found.search.scenario.replicates
        seen = f", in replicate {len(tried.held)}, the first that breaks" if part else ""
        yield f"N-1, one {name} lost: {verdict(found, tried)}{seen}."
    for label, counts in found.around.calibration.items():
        fleet = kinds.text(counts) if counts else "no fleet within bounds"
        yield f"If iterations are {100 * found.error:.0f} % {label} than modelled: {fleet}."


def verdict(found: Answer, tried: Tried) -> str:
    """Say what a fleet breaks by how much, or that it holds."""
    return "; ".join(b.text() for b in broken(tried, found.search.scenario)) or "holds"


def chance(tried: Tried) -> str:
    """Write the share of replicates that hold, with its exact 95 % bounds."""
    n = len(tried.held)
    good = round(tried.probability * n)
    low, high = binomial_bounds(good, n, 0.95)
    return f"{good} of {n} ({100 * low:.0f} to {100 * high:.0f} %)"
