"""Arms beside those that a scenario compares: the oracle, and a router's own log replayed."""

from pathlib import Path
from typing import Any, Final

from dispatch.config import PolicyConfig
from dispatch.errors import InputError
from scenarios import arms, history
from scenarios.schema import ArmConfig, Scenario
from sim import recorded
from sim.decision import decision_time
from traces import router_log

ORACLE: Final = "oracle"
ROUTER: Final = "router-log"


def without(scenario: Scenario) -> Scenario:
    """Return *scenario* without its reference arms: studies beside the arms leave them out."""
    own = tuple(arm for arm in scenario.arms if arm.policy.name not in (ORACLE, recorded.NAME))
    return scenario.model_copy(update={"arms": own}) if own else scenario


def with_oracle(scenario: Scenario) -> Scenario:
    """Return *scenario* with the candidate again, placed by the oracle, where no arm has it.

    It bounds what placement could gain; nobody can deploy it.
    """
    if len(scenario.arms) < 2 or any(arm.policy.name == ORACLE for arm in scenario.arms):
        return scenario
    title = "the candidate, placed by an oracle: a bound, no arm to deploy"
    return _added(scenario, ORACLE, title, PolicyConfig(name=ORACLE))


def with_router_log(scenario: Scenario, path: Path) -> Scenario:
    """Return *scenario* with the candidate again, placed as the log at *path* says.

    The choices travel in the scenario itself, so that a run folder verifies without the log. Raises
    InputError where the log is unsound or does not go with the scenario's trace.
    """
    candidate = _candidate(scenario)
    names = [str(d["name"]) for d in arms.devices(arms.fleet(scenario, candidate))]
    log = router_log.read(path, names)
    trace = history.load(scenario)
    chosen = router_log.align(log, trace)
    share = router_log.coverage(chosen, router_log.source_rows(trace))
    policy = PolicyConfig(
        name=recorded.NAME,
        params={
            "log": path.name,
            "sha256": log.sha256,
            "coverage_ratio": share,
            "placements": router_log.pack(chosen),
        },
    )
    return _added(scenario, ROUTER, f"the candidate, placed as {path.name} says", policy)


def _candidate(scenario: Scenario) -> ArmConfig:
    by_name = {arm.name: arm for arm in scenario.arms}
    baseline = scenario.baseline or scenario.arms[0].name
    others = [arm for arm in scenario.arms if arm.name != baseline] or list(scenario.arms)
    return by_name[scenario.candidate] if scenario.candidate else others[0]


def _added(scenario: Scenario, name: str, title: str, policy: PolicyConfig) -> Scenario:
    if any(arm.name == name for arm in scenario.arms):
        raise InputError.at("arms", f"an arm is called {name!r} already", "give it another name")
    candidate = _candidate(scenario)
    changes: dict[str, Any] = {"name": name, "title": title, "policy": policy}
    if candidate.door.kind == "direct" and candidate.door.decision_us is None:
        devices = sum(pool.count for pool in arms.fleet(scenario, candidate).pools)
        calibration = candidate.door.decision_calibration
        took = decision_time(calibration, candidate.policy.name, devices)
        changes["door"] = candidate.door.model_copy(update={"decision_us": took.seconds * 1e6})
    alone = len(scenario.arms) == 1  # then the log is what the one arm is compared with
    named = {
        "baseline": name if alone else scenario.baseline or scenario.arms[0].name,
        "candidate": candidate.name,
    }
    arm = candidate.model_copy(update=changes)
    return scenario.model_copy(update={**named, "arms": (*scenario.arms, arm)})
