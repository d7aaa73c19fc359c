"""What-ifs by name: each turns a scenario into overrides, so that there is no second language."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dispatch import hardware
from dispatch.errors import InputError, nearest
from scenarios.schema import Scenario

_PRICE_CUT = 0.7
_SLOW_RING = 5.0


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One named change; *overrides* depend on the scenario it is asked of."""

    name: str
    title: str
    overrides: Callable[[Scenario], list[str]]


def _lose_node(scenario: Scenario) -> list[str]:
    """Take as many replicas of the largest pool as share one node; at least one stays."""
    sizes = [pool.count for pool in scenario.fleet.pools]
    number = sizes.index(max(sizes))
    pool = scenario.fleet.pools[number]
    lost = min(max(1, pool.gpus_per_node // pool.tp), pool.count)
    if lost == sum(sizes):
        raise _cannot("lose-node", "one node is the whole fleet")
    return [f"fleet.pools.{number}.count={pool.count - lost}"]


def _lose_pool(scenario: Scenario) -> list[str]:
    sizes = [pool.count for pool in scenario.fleet.pools]
    live = [number for number, count in enumerate(sizes) if count]
    if len(live) < 2:
        raise _cannot("lose-pool", "the fleet has one pool")
    smallest = min(live, key=lambda number: (sizes[number], number))
    return [f"fleet.pools.{smallest}.count=0"]


def _slow_telemetry(scenario: Scenario) -> list[str]:
    del scenario
    return ["arms.*.telemetry.interval_ms=5000", "arms.*.telemetry.stale_after_s=30"]


def _slow_ring(scenario: Scenario) -> list[str]:
    """Degrade the links of one replica of more than one GPU for the whole run."""
    pools = [pool for pool in scenario.fleet.pools if pool.count and pool.tp > 1]
    if not pools:
        raise _cannot("slow-ring", "no replica has more than one GPU, so there is no ring")
    fault = (
        f'{{kind="link_degraded", at_s=0.0, duration_s=1e6, pool="{pools[0].name}", '
        f"replica=0, factor={_SLOW_RING}}}"
    )
    return [f"faults.{len(scenario.faults)}={fault}"]


def _price_cut(scenario: Scenario) -> list[str]:
    found = []
    for number, pool in enumerate(scenario.fleet.pools):
        card = hardware.gpu(pool.gpu)
        if card.name.startswith("H100"):
            listed = card.price_usd_per_h
            price = pool.price_usd_per_gpu_h if pool.price_usd_per_gpu_h is not None else listed
            found.append(f"fleet.pools.{number}.price_usd_per_gpu_h={price * _PRICE_CUT:.6g}")
    if not found:
        raise _cannot("h100-price-cut", "the fleet has no H100")
    return found


def _fp8(scenario: Scenario) -> list[str]:
    if scenario.model.precision == "fp8":
        raise _cannot("fp16-to-fp8", "the model is served in FP8 already")
    return ["model.precision=fp8"]


def _long_prompts(scenario: Scenario) -> list[str]:
    return [f"trace.prompt_scale={scenario.trace.prompt_scale * 2:g}"]


def _fast_router(scenario: Scenario) -> list[str]:
    """Keep the router, at a fifth of its handling time."""
    found = []
    for number, arm in enumerate(scenario.arms):
        if arm.door.kind == "legacy":
            found.append(f"arms.{number}.door.handling_mean_ms={arm.door.handling_mean_ms / 5:g}")
    if not found:
        raise _cannot("faster-router", "no arm has a legacy door")
    return found


def _cannot(name: str, why: str) -> InputError:
    return InputError.at(f"what-if {name}", f"does not apply: {why}", "leave it out")


NAMED: Final = {
    w.name: w
    for w in (
        WhatIf("lose-node", "a node of the largest pool is gone", _lose_node),
        WhatIf("lose-pool", "the smallest pool is gone", _lose_pool),
        WhatIf(
            "load-x2",
            "twice the load, superposed",
            lambda s: [f"trace.scale={s.trace.scale * 2:g}"],
        ),
        WhatIf("slow-telemetry", "telemetry every 5 s instead of 50 ms", _slow_telemetry),
        WhatIf("slow-ring", "one replica's links degraded fivefold throughout", _slow_ring),
        WhatIf("h100-price-cut", "H100 at 70 % of its price", _price_cut),
        WhatIf("fp16-to-fp8", "weights and KV cache in FP8", _fp8),
        WhatIf("long-prompts-x2", "every prompt twice as long", _long_prompts),
        WhatIf("faster-router", "the router kept, five times as fast", _fast_router),
    )
}


def applicable(scenario: Scenario) -> list[str]:
    """Return the names of the what-ifs that make sense for *scenario*."""
    found = []
    for name, what_if in NAMED.items():
        try:
            what_if.overrides(scenario)
        except InputError:
            continue
        found.append(name)
    return found


def named(name: str) -> WhatIf:
    """Return the what-if called *name*; an InputError names near misses."""
    if name not in NAMED:
        raise InputError.at("--named", f"unknown what-if {name!r}", nearest(name, NAMED))
    return NAMED[name]
