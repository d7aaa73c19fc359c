"""What a schema cannot say: names that must be registered, and figures that must fit together."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dispatch import hardware, registry
from dispatch.errors import InputError, nearest
from dispatch.hardware import MemoryPlan
from dispatch.legacy import LegacyConfig
from dispatch.request import HINTS
from scenarios import arms, bounds
from scenarios.predict import uneven_heads
from scenarios.problems import Finding
from scenarios.schema import ArmConfig, Scenario
from sim import recorded
from sim.config import FleetConfig, ModelConfig, PoolConfig
from traces import router_log

Path = tuple[str | int, ...]
PRECISIONS = ("fp16", "bf16", "fp8", "int4")


def names(raw: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield every name of the merged document that nothing is registered under.

    Works on the raw document, so that a wrong name is told beside a wrong shape.
    """
    yield from _model_name(raw.get("model"), ("model",))
    yield from _fleet_names(raw.get("fleet"), ("fleet",))
    for number, arm in enumerate(_items(raw.get("arms"))):
        path: Path = ("arms", number)
        yield from _fleet_names(_get(arm, "fleet"), (*path, "fleet"))
        name = _get(arm, "policy", "name")
        if isinstance(name, str) and name not in (*registry.names(), recorded.NAME):
            hint = nearest(name, registry.names())
            yield (*path, "policy", "name"), f"unknown policy {name!r}", hint
        yield from _settings(_get(arm, "door", "settings"), (*path, "door", "settings"))
    for kind, known_names in (("kernel_hint", HINTS), ("precision", PRECISIONS)):
        for name in _get(raw, "traffic", kind) or ():
            if name and name not in known_names:
                hint = nearest(name, known_names)
                yield ("traffic", kind, name), f"unknown {kind} {name!r}", hint


def _get(node: Any, *keys: str) -> Any:
    for key in keys:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _items(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _settings(settings: Any, path: Path) -> Iterator[Finding]:
    if not isinstance(settings, Mapping):
        return
    try:
        LegacyConfig.from_settings(settings)
    except InputError as error:
        for problem in error.problems:
            yield (*path, problem.place.split(".")[-1]), problem.found, problem.way_out


def _fleet_names(fleet: Any, path: Path) -> Iterator[Finding]:
    for number, pool in enumerate(_items(_get(fleet, "pools"))):
        where: Path = (*path, "pools", number)
        name = _get(pool, "gpu")
        if isinstance(name, str) and (found := _unknown(hardware.gpu, name)):
            yield (*where, "gpu"), *found
        yield from _model_name(_get(pool, "model"), (*where, "model"))


def _model_name(model: Any, path: Path) -> Iterator[Finding]:
    name = _get(model, "name")
    if isinstance(name, str) and (found := _unknown(hardware.model, name)):
        yield (*path, "name"), *found


def _unknown(look_up: Any, name: str) -> tuple[str, str] | None:
    try:
        look_up(name)
    except InputError as error:
        return error.problems[0].found, error.problems[0].way_out
    return None


def figures(scenario: Scenario) -> Iterator[Finding]:
    """Yield what does not fit together in a scenario whose shape and names are right."""
    impossible = list(bounds.findings(scenario.model_dump()))
    yield from impossible
    if impossible:
        return
    yield from _story(scenario)
    yield from _traffic(scenario)
    for number, arm in enumerate(scenario.arms):
        path: Path = ("arms", number)
        yield from _policy(arm, (*path, "policy"))
        yield from _telemetry(arm, (*path, "telemetry"))
        own = arm.fleet is not None
        fleet_path: Path = (*path, "fleet") if own else ("fleet",)
        if own or number == 0:
            yield from _pools(arms.fleet(scenario, arm), scenario.model, fleet_path)
            yield from _faults(scenario, arms.fleet(scenario, arm))
        yield from _fits(scenario, arm, fleet_path)


def _story(scenario: Scenario) -> Iterator[Finding]:
    whole = scenario.model_dump()
    for number, key in enumerate(scenario.story_inputs):
        node: Any = whole
        for step in key.split("."):
            node = _step(node, step)
        if node is None:
            yield ("story_inputs", number), f"no key {key!r}", "expected a key of this scenario"


def _step(node: Any, step: str) -> Any:
    if isinstance(node, Mapping):
        return node.get(step)
    if isinstance(node, list | tuple):
        if step.isdigit() and int(step) < len(node):
            return node[int(step)]
        return next((i for i in node if isinstance(i, dict) and i.get("name") == step), None)
    return None


def _traffic(scenario: Scenario) -> Iterator[Finding]:
    for kind in ("precision", "kernel_hint", "model_hint"):
        shares: dict[str, float] = getattr(scenario.traffic, kind)
        for name, share in shares.items():
            if not 0 <= share < float("inf"):
                yield ("traffic", kind, name), f"found {share}", "expected a share of 0 or more"
        if shares and not sum(shares.values()) > 0:
            yield ("traffic", kind), "no share is above 0", "expected one share at least"


def _policy(arm: ArmConfig, path: Path) -> Iterator[Finding]:
    try:
        if arm.policy.name == recorded.NAME:
            router_log.unpack(arm.policy.params.get("placements", ""))
            return
        registry.policy(arm.policy.name, arm.policy.params, seed=0)
    except InputError as error:
        for problem in error.problems:
            quoted = re.search(r"unknown parameter '(.*)'", problem.found)
            key = quoted[1] if quoted else problem.place.rpartition(".")[2]
            where: Path = (*path, "params")
            if key in arm.policy.params:
                where = (*where, key)
            yield where, problem.found, problem.way_out


def _telemetry(arm: ArmConfig, path: Path) -> Iterator[Finding]:
    shared = arm.telemetry
    limit_ms = shared.stale_after_s * 1e3
    ages: dict[str, tuple[float, float]] = {"": (shared.interval_ms, shared.delay_ms)}
    for signal_name, signal in shared.signals.items():
        interval = shared.interval_ms if signal.interval_ms is None else signal.interval_ms
        delay = shared.delay_ms if signal.delay_ms is None else signal.delay_ms
        ages[str(signal_name)] = (interval, delay)
    for name, (interval_ms, delay_ms) in ages.items():
        if interval_ms + delay_ms > limit_ms:
            where: Path = (*path, "signals", name) if name else (*path, "stale_after_s")
            yield (
                where,
                f"samples are up to {interval_ms + delay_ms:g} ms old (interval + delay), "
                f"and count as stale after {limit_ms:g} ms",
                "raise telemetry.stale_after_s or sample more often",
            )


def _pools(fleet: FleetConfig, model: ModelConfig, path: Path) -> Iterator[Finding]:
    seen: dict[str, int] = {}
    for number, pool in enumerate(fleet.pools):
        where: Path = (*path, "pools", number)
        if pool.name in seen:
            yield (*where, "name"), f"pool name {pool.name!r} repeats", "expected a name of its own"
        seen[pool.name] = number
        if pool.tp > pool.gpus_per_node:
            yield (
                (*where, "tp"),
                f"a replica of {pool.tp} GPUs on nodes of {pool.gpus_per_node}",
                "expected tp <= gpus_per_node",
            )
        if uneven := uneven_heads(hardware.model((pool.model or model).name), pool.tp):
            yield (*where, "tp"), *uneven
    if not sum(pool.count for pool in fleet.pools):
        yield (*path, "pools"), "the fleet has no replica", "expected a count above 0"


def _faults(scenario: Scenario, fleet: FleetConfig) -> Iterator[Finding]:
    pools = {pool.name: pool for pool in fleet.pools}
    for number, fault in enumerate(scenario.faults):
        path: Path = ("faults", number)
        if (fault.at_s is None) == (fault.rate_per_h is None):
            yield path, "needs at_s or rate_per_h, and not both", "expected at_s = seconds"
        if fault.pool is not None and fault.pool not in pools:
            yield (*path, "pool"), f"unknown pool {fault.pool!r}", nearest(fault.pool, pools)
        elif fault.replica is not None:
            count = pools[fault.pool].count if fault.pool else sum(p.count for p in fleet.pools)
            if fault.replica >= count:
                where = (*path, "replica")
                yield where, f"found {fault.replica}", f"expected an index below {count}"


def _fits(scenario: Scenario, arm: ArmConfig, path: Path) -> Iterator[Finding]:
    """A pool whose GPUs cannot hold its model serves nothing: an error, with what would do."""
    for number, pool in enumerate(arms.fleet(scenario, arm).pools):
        if not pool.count:
            continue
        where: Path = (*path, "pools", number, "gpu")
        model = pool.model or scenario.model
        gpu, spec = hardware.gpu(pool.gpu), hardware.model(model.name)
        try:
            plan = hardware.memory_plan(
                gpu, spec, model.precision, model.kv_precision, pool.tp,
                arm.engine.memory_utilization_ratio, arm.engine.kernel_plan,
                arm.engine.max_num_batched_tokens, max_num_seqs=arm.engine.max_num_seqs,
                block_tokens=arm.engine.block_tokens,
            )  # fmt: skip
        except InputError as error:
            for problem in error.problems:
                yield where, problem.found, problem.way_out
            continue
        if not plan.fits:
            yield (
                where,
                _short(pool, model, plan),
                "raise tp, take a larger GPU, or lower engine.max_num_batched_tokens",
            )


def _short(pool: PoolConfig, model: ModelConfig, plan: MemoryPlan) -> str:
    fixed = plan.weights_bytes + plan.context_bytes + plan.workspace_bytes
    return (
        f"{model.name} in {model.precision} fits no replica of {pool.tp} x {pool.gpu}: it takes "
        f"{fixed / 1e9:.1f} GB (weights {plan.weights_bytes / 1e9:.1f}, workspace "
        f"{plan.workspace_bytes / 1e9:.1f}) of {plan.budget_bytes / 1e9:.1f} GB usable, and leaves "
        "no block of KV cache"
    )


def found_in(scenario: Scenario) -> Iterable[Finding]:
    """Return each finding once, in order."""
    return list(dict.fromkeys(figures(scenario)))
