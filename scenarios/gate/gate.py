"""The gate as a whole: which tiers run, on which trees, and what they say together."""

import contextlib
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dispatch.errors import InputError
from reports.gate.verdict import Check, GateResult, Verdict, control, judge
from scenarios.gate import exact, trees
from scenarios.gate.exact import COUNTERS
from scenarios.gate.pairs import (
    CONTROL_PAIRS,
    PAIRS,
    Pair,
    Profile,
    Side,
    Worker,
    control_ratios,
    run_pairs,
)

MORE_PAIRS = 10
BASELINE = Path(".zerolayer/gate.json")
WHAT = {"decisions": "decision", "door": "request", "gpu": "iteration"}
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What to gate and how; *tiers* of 0 exact, 1 counters, 2 wall clock."""

    repo: Path = Path()
    base: str | None = None
    policy: str = "topology"
    params: dict[str, Any] = field(default_factory=dict)
    path: str = "decisions"
    tiers: tuple[int, ...] = (0, 1, 2)
    scenarios: tuple[str, ...] = ("migration-2023q3", "h100-2024")
    limit: int = 1000
    baseline: Path | None = None
    allow_dirty: bool = False
    inject: str = "none"


def run(options: Options, say: Say = lambda text: None) -> GateResult:
    """Run the asked tiers and return their checks; bad input is an InputError, never a pass."""
    began = time.monotonic()
    head = trees.head_tree(options.repo, allow_dirty=options.allow_dirty)
    result = GateResult(manifest=manifest(options, head))
    trees.lend_policies(head)
    if {0, 1} & set(options.tiers):
        command = accept_command(options)
        baseline = exact.read_baseline(baseline_path(options, head), command)
        if 0 in options.tiers:
            wanted = {k: v for k, v in baseline.items() if k != COUNTERS}
            result.checks += exact.compare(wanted, simulate(options, say), command)
        if 1 in options.tiers:
            found = measure_counters(options, head)
            result.checks += compare_counters(baseline.get(COUNTERS, {}), found, command)
    if 2 in options.tiers:
        if options.path == "gpu":
            from live.gpus import gpus

            result.manifest["gpus"] = gpus()
        commit = trees.base_commit(head.folder, options.base)
        result.manifest["base"] = commit
        with trees.worktree(head.folder, commit) as base:
            sides = (side(options, base.folder), side(options, head.folder, options.inject))
            result.checks += wall_clock(*sides, say)
    result.seconds = time.monotonic() - began
    return result


def accept(options: Options, say: Say = lambda text: None) -> tuple[Path, list[Check]]:
    """Rewrite the baseline and return its path and, in words, what moved since the last one."""
    head = trees.head_tree(options.repo, allow_dirty=True)
    trees.lend_policies(head)
    path = baseline_path(options, head)
    before: dict[str, exact.Case] = {}
    with contextlib.suppress(InputError):  # absent or damaged: all is recorded for the first time
        before = exact.read_baseline(path)
    cases = simulate(options, say)
    known = {k: v for k, v in before.items() if k != COUNTERS}
    moved = [
        check if check.name in known else replace(check, detail="recorded for the first time")
        for check in exact.compare(known, cases)
        if check.verdict is not Verdict.passed
    ]
    exact.write_baseline(path, {**cases, COUNTERS: measure_counters(options, head)})
    return path, moved


def selftest(options: Options, say: Say = lambda text: None) -> GateResult:
    """Show on this machine that A/A passes and A/A with 10 % more work fails."""
    began = time.monotonic()
    if options.path == "gpu":
        raise InputError.at(
            "--selftest", "slows decisions and requests, not kernels", "leave --path gpu out"
        )
    head = trees.head_tree(options.repo, allow_dirty=True)
    result = GateResult(manifest=manifest(options, head))
    plain = side(options, head.folder)
    for inject, wanted in (("none", Verdict.passed), ("ten", Verdict.regression)):
        say(f"self-test: {inject}")
        found = GateResult(wall_clock(plain, replace(plain, inject=inject), say)).verdict
        name = "A/A passes" if inject == "none" else "A/A + 10 % fails"
        verdict = Verdict.passed if found is wanted else Verdict.regression
        result.checks.append(Check(2, name, verdict, f"the gate said {found.value}"))
    result.seconds = time.monotonic() - began
    return result


def side(options: Options, folder: Path, inject: str = "none") -> Side:
    """Return one side of the pairs."""
    return Side(folder, options.policy, options.params, inject, options.path)


def accept_command(options: Options) -> str:
    """Return the command that rewrites the baseline of this very gate."""
    usual = Options()
    words = [
        f"--{key} {shlex.quote(','.join(v) if isinstance(v, tuple) else str(v))}"
        for key in ("repo", "policy", "scenarios", "limit", "baseline")
        if (v := getattr(options, key)) != getattr(usual, key)
    ]
    return " ".join([exact.ACCEPT, *words])


def baseline_path(options: Options, head: trees.Tree) -> Path:
    """Return where the checked-in baseline lies."""
    return options.baseline or head.folder / BASELINE


def simulate(options: Options, say: Say) -> dict[str, exact.Case]:
    """Simulate the fixed scenarios of tier 0, the candidate arm under the gated policy."""
    from scenarios.load import load

    found: dict[str, exact.Case] = {}
    for name in options.scenarios:
        overrides = [f"trace.limit={options.limit}", "replicates=1"]
        scenario = load(name, overrides)
        if options.policy != "topology":
            candidate = scenario.candidate or scenario.arms[-1].name
            number = [arm.name for arm in scenario.arms].index(candidate)
            overrides.append(f"arms.{number}.policy.name={options.policy}")
            scenario = load(name, overrides)
        found |= exact.observe(scenario, options.limit, lambda case: say(f"simulated {case}"))
    return found


def measure_counters(options: Options, head: trees.Tree) -> exact.Case:
    """Count candidates and memory blocks per decision in a fresh process."""
    with Worker(side(options, head.folder), "head") as worker:
        worker.ask("warm")
        found = worker.ask("counters")
    return {**found, "python": platform.python_version_tuple()[:2], "policy": options.policy}


def compare_counters(
    base: exact.Case, head: exact.Case, command: str = exact.ACCEPT
) -> list[Check]:
    """Compare work per decision: candidates exactly, allocations to 1 % on the same Python."""
    if not base:
        detail = f"no counters in the baseline; run `{command}`"
        return [Check(1, "work per decision", Verdict.regression, detail)]
    if base["policy"] != head["policy"]:
        detail = f"the baseline counts {base['policy']}, not {head['policy']}; run `{command}`"
        return [Check(1, "work per decision", Verdict.regression, detail)]
    checks = [_count("candidates per decision", base, head, "candidates", 0.0)]
    if list(base["python"]) == list(head["python"]):
        checks.append(_count("allocations per decision", base, head, "blocks", 0.01))
    return checks


def _count(name: str, base: exact.Case, head: exact.Case, key: str, tolerance: float) -> Check:
    old, new = float(base[key]), float(head[key])
    # A tenth of a block a decision is the journal's growing columns, not work.
    equal = abs(new - old) <= max(tolerance * abs(old), 0.1 if tolerance else 0.0)
    verdict = Verdict.passed if equal else Verdict.regression
    detail = "equal" if equal else f"{old:g} → {new:g}"
    return Check(1, name, verdict, detail, base=old, head=new)


def wall_clock(base: Side, head: Side, say: Say) -> list[Check]:
    """Run the pairs, ten more where they do not tell, and the A/A control."""
    pairs = run_pairs(
        base, head, controls=CONTROL_PAIRS, progress=lambda done: say(f"pair {done}/{PAIRS}")
    )
    what = WHAT[head.path]
    checks = timed_checks(pairs, what)
    if any(check.verdict is Verdict.inconclusive for check in checks):
        say(f"unclear: {MORE_PAIRS} more pairs")
        pairs += run_pairs(base, head, MORE_PAIRS, start=len(pairs))
        checks = timed_checks(pairs, what)
    checks.append(control("control p50", control_ratios(pairs, p50)))
    return checks


def p50(profile: Profile) -> float:
    """Return the median of a min-profile."""
    return profile.quantile(0.50)


def p99(profile: Profile) -> float:
    """Return the 99th percentile of a min-profile."""
    return profile.quantile(0.99)


def timed_checks(pairs: Sequence[Pair], what: str = "decision") -> list[Check]:
    """Judge p50, p99 and CPU of the pairs; *what* names the thing timed."""
    checks = [
        judge(name, [metric(p.base) for p in pairs], [metric(p.head) for p in pairs])
        for name, metric in ((f"{what} p50", p50), (f"{what} p99", p99))
    ]
    count = len(pairs[0].base.least_ns)
    checks.append(
        judge(
            f"{what} CPU",
            [statistics.median(p.base.cpu_ns) / count for p in pairs],
            [statistics.median(p.head.cpu_ns) / count for p in pairs],
            ratios=[p.cpu_ratio for p in pairs],
        )
    )
    return checks


def manifest(options: Options, head: trees.Tree) -> dict[str, Any]:
    """Return what a reader needs to trust or repeat the result."""
    if not set(options.tiers) <= {0, 1, 2} or not options.tiers:
        raise InputError.at("--tier", f"{options.tiers}", "name some of 0, 1 and 2")
    return {
        "head": head.commit,
        "dirty": head.dirty,
        "policy": options.policy,
        "path": options.path,
        "tiers": list(options.tiers),
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_1min": round(os.getloadavg()[0], 2),
    }
