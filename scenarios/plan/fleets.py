"""Fleets as counts of replicas by pool, and the scenario that runs an arm on one."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dispatch.errors import InputError
from scenarios import arms
from scenarios.schema import ArmConfig, Scenario
from sim.config import FaultConfig, FleetConfig

Counts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kinds:
    """The pools of an arm as kinds to buy: names, prices of a replica-hour, counts as written."""

    names: tuple[str, ...]
    usd_per_h: tuple[float, ...]
    written: Counts

    @classmethod
    def of(cls, scenario: Scenario, arm: ArmConfig) -> "Kinds":
        """Return the kinds of the fleet behind *arm*."""
        pools = arms.fleet(scenario, arm).pools
        return cls(
            tuple(pool.name for pool in pools),
            tuple(arms.price_usd_per_gpu_h(pool) * pool.tp for pool in pools),
            tuple(pool.count for pool in pools),
        )

    def cost(self, counts: Counts) -> float:
        """Return the price of a fleet in $/h."""
        return sum(price * count for price, count in zip(self.usd_per_h, counts, strict=True))

    def text(self, counts: Counts) -> str:
        """Write a fleet as ``2 x v100 + 4 x a100-40g``."""
        parts = [f"{n} x {name}" for name, n in zip(self.names, counts, strict=True) if n]
        return " + ".join(parts) or "no replica"

    def only(self, kind: int, count: int) -> Counts:
        """Return *count* replicas of one kind and none of the others."""
        return tuple(count if k == kind else 0 for k in range(len(self.names)))

    def in_mix(self, total: int) -> Counts:
        """Return *total* replicas shared out as the scenario mixes them (largest remainders)."""
        whole = sum(self.written)
        exact = [total * count / whole for count in self.written]
        counts = [int(share) for share in exact]
        by_rest = sorted(range(len(exact)), key=lambda k: (counts[k] - exact[k], k))
        for kind in by_rest[: total - sum(counts)]:
            counts[kind] += 1
        return tuple(counts)

    def mixes(self, most: Sequence[int]) -> Iterator[Counts]:
        """Yield every fleet of at most *most* of each kind, cheapest first."""
        grid = itertools.product(*(range(n + 1) for n in most))
        fleets = [counts for counts in grid if any(counts)]
        fleets.sort(key=lambda counts: (self.cost(counts), sum(counts), counts))
        yield from fleets


def equip(
    scenario: Scenario, arm: ArmConfig, counts: Counts, faults: Sequence[FaultConfig] | None = None
) -> Scenario:
    """Return *scenario* with *arm* alone, on a fleet of *counts*.

    Faults of replicas that this fleet does not have are left out.
    """
    written = arms.fleet(scenario, arm)
    pools = tuple(
        pool.model_copy(update={"count": count})
        for pool, count in zip(written.pools, counts, strict=True)
    )
    fleet: FleetConfig = written.model_copy(update={"pools": pools})
    sizes = {pool.name: pool.count for pool in pools}
    kept = tuple(
        fault
        for fault in (scenario.faults if faults is None else faults)
        if fault.pool is None or sizes.get(fault.pool, 0) > (fault.replica or 0)
    )
    alone = arm.model_copy(update={"fleet": fleet})
    changes = {"arms": (alone,), "faults": kept, "baseline": "", "candidate": ""}
    return scenario.model_copy(update=changes)


def scaled(scenario: Scenario, **factors: float) -> Scenario:
    """Return *scenario* with keys of its trace multiplied: ``scale=1.2``, ``prompt_scale=0.8``."""
    trace = scenario.trace
    changes = {key: getattr(trace, key) * factor for key, factor in factors.items()}
    return scenario.model_copy(update={"trace": trace.model_copy(update=changes)})


def slowed(scenario: Scenario, counts: Counts, arm: ArmConfig, factor: float) -> list[FaultConfig]:
    """Return the scenario's faults and one on every replica that stretches its work by *factor*."""
    pools = arms.fleet(scenario, arm).pools
    slow = [
        FaultConfig(
            kind="ecc_slow", at_s=0.0, duration_s=1e7, pool=pool.name, replica=replica,
            factor=factor,
        )
        for pool, count in zip(pools, counts, strict=True)
        for replica in range(count)
    ]  # fmt: skip
    return [*scenario.faults, *slow]


def need_slos(scenario: Scenario) -> None:
    """Refuse to plan without an objective."""
    if all(limit is None for limit in scenario.slo.model_dump().values()):
        raise InputError.at("--slo", "no objective is given", "expected e.g. --slo ttft_p99_s=0.5")
