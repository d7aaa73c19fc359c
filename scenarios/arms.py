"""From a scenario to what one simulated run needs."""

from collections.abc import Iterator
from typing import Any

from dispatch import keyed
from dispatch.hardware import gpu
from scenarios.schema import ArmConfig, Scenario
from sim.config import FleetConfig, PoolConfig, Setup


def setup(scenario: Scenario, arm: ArmConfig) -> Setup:
    """Return *arm* ready to run; waiting, holding and drain limits are the scenario's in all."""
    return Setup(
        model=scenario.model,
        fleet=fleet(scenario, arm),
        door=arm.door,
        policy=arm.policy,
        engine=arm.engine,
        telemetry=arm.telemetry,
        wait=scenario.wait,
        faults=scenario.faults,
        transfer=scenario.transfer,
        max_tokens_default=scenario.max_tokens_default,
        drain_s=scenario.drain_s,
        device_window_s=scenario.utilisation_window_s,
    )


def fleet(scenario: Scenario, arm: ArmConfig) -> FleetConfig:
    """Return the fleet behind *arm*: its own or the scenario's."""
    return arm.fleet or scenario.fleet


def seed(scenario: Scenario, replicate: int) -> int:
    """Return the seed of one replicate, equal in all arms."""
    return keyed.stream(scenario.seed, f"replicate {replicate}") >> 1


def replicas(config: FleetConfig) -> Iterator[tuple[int, PoolConfig, int]]:
    """Yield (device, pool, index in the pool) in the order in which devices are numbered."""
    device = 0
    for pool in config.pools:
        for index in range(pool.count):
            yield device, pool, index
            device += 1


def devices(config: FleetConfig) -> list[dict[str, Any]]:
    """Return one row per replica: what it is and what it costs an hour."""
    return [
        {
            "device": device,
            "name": f"{pool.name}-{index}",
            "pool": pool.name,
            "gpu": pool.gpu,
            "gpus": pool.tp,
            "price_usd_per_h": price_usd_per_gpu_h(pool) * pool.tp,
        }
        for device, pool, index in replicas(config)
    ]


def price_usd_per_gpu_h(pool: PoolConfig) -> float:
    """Return the pool's price of one GPU for an hour: its own, else the catalogue's."""
    if pool.price_usd_per_gpu_h is not None:
        return pool.price_usd_per_gpu_h
    return float(gpu(pool.gpu).price_usd_per_h)


def cost_usd_per_h(config: FleetConfig) -> float:
    """Return what the whole fleet costs an hour."""
    return sum(pool.count * pool.tp * price_usd_per_gpu_h(pool) for pool in config.pools)
