"""From a set-up to replicas: cost models, memory plans, engines, and what the dispatcher knows."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dispatch.arena_caching import CachingAllocator
from dispatch.errors import InputError, Problem
from dispatch.graph import DeviceInfo
from dispatch.hardware import Gpu, MemoryPlan, Model, gpu, memory_plan, model
from sim.batch import Host
from sim.clock import Clock
from sim.config import EngineConfig, ModelConfig, PoolConfig, Setup
from sim.cost import StepCost
from sim.engine import Engine
from sim.memory import ContiguousKv, PagedKv
from sim.pace import Pace
from sim.prefixes import Prefixes
from sim.rates import Rates
from sim.sharing import SharedKv, SharedPrefixes
from sim.workspace import Segments, Workspace

_SPEED_BATCH: Final = 32
_SPEED_CONTEXT: Final = 1024  # tokens a sequence, where a replica's speed is stated


@dataclass(frozen=True, slots=True)
class Kind:
    """What replicas of one pool share."""

    pool: PoolConfig
    model_config: ModelConfig
    gpu: Gpu
    model: Model
    plan: MemoryPlan
    cost: StepCost
    rates: Rates
    context_tokens: int
    slack_bytes: float
    """Memory of the replica outside the engine's share."""


class Replica:
    """One device of the fleet: its kind, its engine, and what has befallen it."""

    __slots__ = (
        "_paces", "downs", "engine", "health", "index", "kind", "leaked_bytes", "name", "place",
        "slow",
    )  # fmt: skip

    def __init__(self, index: int, name: str, place: int, kind: Kind, engine: Engine) -> None:
        self.index = index
        self.name = name
        self.place = place  # index within its pool
        self.kind = kind
        self.engine = engine
        self.slow: list[float] = []  # factors of the faults that slow all of it, under way
        self.downs = 0  # faults and restarts that hold it down
        self.health: list[tuple[int, bool]] = [(0, True)]
        self.leaked_bytes = 0.0
        self._paces: dict[tuple[float, float], Rates] = {}

    def set_pace(self, ring_factor: float) -> None:
        """Price iterations to come with the ring *ring_factor* slower, and all by ``slow``."""
        slow = math.prod(self.slow)
        rates = self._paces.get((ring_factor, slow))
        if rates is None:
            cost = self.kind.cost if ring_factor == 1.0 else self.kind.cost.ring_scaled(ring_factor)
            rates = self._paces[ring_factor, slow] = Rates(Pace(cost), slow)
        self.engine.rates = rates
        self.engine.poke()

    def turn(self, up: bool, now: int) -> None:
        """Note that the replica is *up* or down from *now* on."""
        self.health.append((now, up))

    def was_up(self, when: int) -> bool:
        """Return whether the replica was up at *when*."""
        at = bisect_right(self.health, (when, True)) - 1
        return self.health[max(at, 0)][1]

    def collective_ratio(self, ring_factor: float) -> float:
        """Return the share of a decode iteration that collectives take."""
        parts = self.kind.cost.parts(
            decode_batch=_SPEED_BATCH, decode_context=float(_SPEED_BATCH * _SPEED_CONTEXT)
        )
        collective_s = parts.collectives_s * ring_factor
        return collective_s / (parts.total_s - parts.collectives_s + collective_s)


def build_kinds(setup: Setup) -> list[Kind]:
    """Return one kind a pool; raise InputError with every pool that cannot serve its model."""
    problems: list[Problem] = []
    kinds: list[Kind] = []
    if setup.engine.max_num_batched_tokens < setup.engine.max_num_seqs:
        problems.append(
            Problem(
                "engine.max_num_batched_tokens",
                f"{setup.engine.max_num_batched_tokens} is below max_num_seqs "
                f"({setup.engine.max_num_seqs})",
                "every sequence that decodes takes one token of an iteration: raise it",
            )
        )
    for pool in setup.fleet.pools:
        try:
            kinds.append(_kind(setup, pool))
        except InputError as error:
            problems += [Problem(f"pool {pool.name}", str(p)) for p in error.problems]
    if setup.transfer.enabled:
        problems += _roles(setup)
    else:
        problems += [
            Problem(
                f"pool {pool.name}", f"has role {pool.role!r}, and nothing moves KV to the others",
                "set transfer.enabled = true, or leave the role out",
            )
            for pool in setup.fleet.pools if pool.role != "both"
        ]  # fmt: skip
    if not any(pool.count for pool in setup.fleet.pools):
        problems.append(Problem("fleet.pools", "no pool has a replica", "give one a count >= 1"))
    if problems:
        raise InputError(problems)
    return kinds


def _roles(setup: Setup) -> list[Problem]:
    """Return what keeps *setup* from prefilling on some replicas and decoding on others."""
    where = "transfer.enabled"
    found = []
    if setup.door.kind != "direct":
        found.append(Problem(where, "the legacy door's rules choose groups", "take a direct door"))
    have = {pool.role for pool in setup.fleet.pools if pool.count}
    found += [
        Problem(where, f"no pool has role {role!r}", "give one that role")
        for role in ("prefill", "decode")
        if role not in have
    ]
    if "both" in have:
        found.append(Problem(where, "a pool has role 'both'", "role = 'prefill' or 'decode'"))
    return found


@lru_cache(maxsize=64)
def _pace(
    gpu_: Gpu, model_: Model, precision: str, tp: int, plan: str, kv_precision: str | None,
    gpus_per_node: int, host_overhead_us: float | None,
) -> Pace:  # fmt: skip
    """Return the times of a kind of replica, kept with their answers for the runs to come."""
    cost = StepCost(
        gpu_, model_, precision, tp, plan, kv_precision=kv_precision,
        gpus_per_node=gpus_per_node, host_overhead_us=host_overhead_us,
    )  # fmt: skip
    return Pace(cost)


def _kind(setup: Setup, pool: PoolConfig) -> Kind:
    config = pool.model or setup.model
    engine = setup.engine
    card, shape = gpu(pool.gpu), model(config.name)
    plan = memory_plan(
        card, shape, config.precision, config.kv_precision, pool.tp,
        engine.memory_utilization_ratio, engine.kernel_plan, engine.max_num_batched_tokens,
        max_num_seqs=engine.max_num_seqs, block_tokens=engine.block_tokens,
    )  # fmt: skip
    if not plan.fits:
        need = plan.weights_bytes + plan.context_bytes + plan.workspace_bytes
        raise InputError.at(
            "",
            f"{config.name} in {config.precision} needs {need / 1e9:.1f} GB without any KV cache, "
            f"{pool.tp} x {pool.gpu} give {plan.budget_bytes / 1e9:.1f} GB",
            "more GPUs a replica (tp), a lower precision, or another GPU",
        )
    pace = _pace(
        card, shape, config.precision, pool.tp, engine.kernel_plan, config.kv_precision,
        pool.gpus_per_node, engine.host_overhead_us,
    )  # fmt: skip
    total = float(card.memory_bytes) * pool.tp
    return Kind(
        pool, config, card, shape, plan, pace.cost, Rates(pace),
        min(config.context_tokens or shape.context_tokens, shape.context_tokens),
        total - plan.budget_bytes,
    )  # fmt: skip


def build_kv(kind: Kind, engine: EngineConfig) -> ContiguousKv | PagedKv:
    """Return the empty KV memory of a replica of *kind*."""
    if engine.kv == "contiguous":
        caching = engine.allocator == "caching"
        pool = kind.plan.kv_pool_bytes + (kind.plan.workspace_bytes if caching else 0.0)
        return ContiguousKv(pool, kind.plan.kv_bytes_per_token, caching=caching)
    whole = engine.admission == "guarded" and engine.preemption == "none"
    size = (kind.plan.capacity_tokens, kind.plan.kv_bytes_per_token, engine.block_tokens, whole)
    evict = engine.prefix_cache
    if evict == "off" or engine.prefix_cache_blocks is not None or not engine.prefix_sharing:
        return PagedKv(*size)
    return SharedKv(*size, evict)


def build_prefixes(kind: Kind, engine: EngineConfig, kv: ContiguousKv | PagedKv) -> Prefixes | None:
    """Return the prefix cache of a replica of *kind*; contiguous KV keeps nothing to share."""
    if engine.prefix_cache == "off":
        return None
    if isinstance(kv, SharedKv):
        return SharedPrefixes(kv)
    if engine.prefix_cache_blocks is not None:
        return Prefixes(engine.prefix_cache, engine.prefix_cache_blocks, None)
    if isinstance(kv, ContiguousKv):
        raise InputError.at(
            "engine.prefix_cache", f"{engine.prefix_cache} with contiguous KV",
            "set engine.kv = 'paged', or engine.prefix_cache_blocks for a store of its own",
        )  # fmt: skip
    return Prefixes(engine.prefix_cache, None, kv)


def build_segments(kind: Kind, engine: EngineConfig, kv: ContiguousKv | PagedKv) -> Segments | None:
    """Return what a replica has beside its paged pool; contiguous KV lives in the one arena."""
    if isinstance(kv, ContiguousKv):
        return None
    if engine.allocator != "caching":
        return Segments(kind.slack_bytes, None)
    return Segments(
        kind.slack_bytes, CachingAllocator(int(kind.plan.workspace_bytes + kind.slack_bytes))
    )


def build_workspace(
    kind: Kind, engine: EngineConfig, kv: ContiguousKv | PagedKv, segments: Segments | None
) -> Workspace | None:
    """Return the activation memory of a replica where it goes through the caching allocator."""
    if engine.allocator != "caching":
        return None
    arena = kv.arena if isinstance(kv, ContiguousKv) else segments.arena if segments else None
    assert isinstance(arena, CachingAllocator)
    return Workspace(arena, kind.model, engine.kernel_plan, kind.pool.tp, engine.max_num_seqs)


def build_replicas(setup: Setup, kinds: list[Kind], env: Clock, host: Host) -> list[Replica]:
    """Return the replicas, numbered pool after pool."""
    replicas: list[Replica] = []
    for kind in kinds:
        for place in range(kind.pool.count):
            index = len(replicas)
            kv = build_kv(kind, setup.engine)
            engine = Engine(env, host, index, kv, kind.rates, setup.engine)
            engine.prefix = build_prefixes(kind, setup.engine, kv)
            engine.segments = build_segments(kind, setup.engine, kv)
            engine.workspace = build_workspace(kind, setup.engine, kv, engine.segments)
            replicas.append(Replica(index, f"{kind.pool.name}-{place}", place, kind, engine))
    return replicas


def device_infos(setup: Setup, replicas: list[Replica]) -> list[DeviceInfo]:
    """Return what the dispatcher knows of each replica from the start."""
    named = any(pool.model is not None for pool in setup.fleet.pools)
    infos = []
    for replica in replicas:
        kind = replica.kind
        base_s, slope_s = kind.cost.decode_line(_SPEED_BATCH)
        speed = _SPEED_BATCH / (base_s + slope_s * _SPEED_BATCH * _SPEED_CONTEXT)
        infos.append(
            DeviceInfo(
                name=replica.name,
                pool=kind.pool.name,
                gpu=kind.gpu.name,
                gpus=kind.pool.tp,
                model=kind.model_config.name if named else "",
                weight=kind.pool.weight,
                group=kind.pool.role if setup.transfer.enabled else kind.pool.group,
                role=kind.pool.role if setup.transfer.enabled else "both",
                total_bytes=float(kind.gpu.memory_bytes) * kind.pool.tp,
                kv_bytes_per_token=kind.plan.kv_bytes_per_token,
                reserve_output=setup.engine.kv == "contiguous",
                block_tokens=setup.engine.block_tokens,
                capacity_tokens=kind.plan.capacity_tokens,
                speed_tokens_per_s=speed,
            )
        )
    return infos
