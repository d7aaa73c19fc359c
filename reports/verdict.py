"""The verdict: is deleting the layer safe on this evidence, what binds, and what would decide.

Safe is an intersection-union test: every endpoint must be no worse than its margin, each at full
level, and no correction is needed. Unsafe is a union: an endpoint counts as worse only when its p
value survives Holm's correction over all endpoints.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

from reports.intervals import Verdict3, holm
from reports.slo import Endpoint, endpoints_of
from reports.tables import Run

EXIT: Final = {Verdict3.safe: 0, Verdict3.unsafe: 1, Verdict3.unsure: 3}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of a run: exit code 0 safe, 1 unsafe, 3 not enough evidence."""

    answer: Verdict3
    exit_code: int
    endpoints: tuple[Endpoint, ...]
    binds: str
    more: str
    targets: str = ""
    flags: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    """The first screen of the report in plain sentences, the headline first."""

    def as_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-able figures."""
        return {
            "answer": str(self.answer),
            "exit_code": self.exit_code,
            "binds": self.binds,
            "more": self.more,
            "targets": self.targets,
            "flags": list(self.flags),
        }


def judge(run: Run, flags: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict on the candidate arm against the baseline arm of *run*.

    *flags* name what invalidates the run itself (late sending, books that do not balance): with
    any of them the answer is never safe.
    """
    endpoints = _holm_over(endpoints_of(run), 1.0 - run.confidence)
    answer = _overall(endpoints)
    if len(run.arms) < 2:
        answer, flags = Verdict3.unsure, (*flags, "one arm only: there is nothing to compare")
    elif flags and answer is Verdict3.safe:
        answer = Verdict3.unsure
    return Verdict(
        answer, EXIT[answer], endpoints, _binds(endpoints, answer), _more(endpoints, answer),
        _targets(endpoints), flags,
    )  # fmt: skip


def judge_arm(run: Run, arm: str) -> Verdict:
    """Return the verdict on another *arm* of *run* in the candidate's place."""
    scenario = {**run.scenario, "candidate": arm}
    return judge(replace(run, manifest={**run.manifest, "scenario": scenario}))


def _holm_over(endpoints: tuple[Endpoint, ...], alpha: float) -> tuple[Endpoint, ...]:
    adjusted = holm([e.p_worse for e in endpoints])
    result = []
    for e, p in zip(endpoints, adjusted, strict=True):
        survives = not math.isnan(p) and p <= alpha / 2
        verdict = e.verdict
        if (e.baseline.target_met, e.candidate.target_met) == ("met", "missed"):
            verdict = Verdict3.unsafe  # a kept promise would be broken, whatever the margin
        elif verdict is Verdict3.unsafe and not survives:
            verdict = Verdict3.unsure
        result.append(replace(e, p_holm=p, verdict=verdict))
    return tuple(result)


def _overall(endpoints: tuple[Endpoint, ...]) -> Verdict3:
    found = {e.verdict for e in endpoints}
    if Verdict3.unsafe in found:
        return Verdict3.unsafe
    return Verdict3.safe if found == {Verdict3.safe} else Verdict3.unsure


def _binds(endpoints: tuple[Endpoint, ...], answer: Verdict3) -> str:
    those = [e for e in endpoints if e.verdict is answer]
    if not those:
        return ""
    if answer is Verdict3.unsafe:
        return min(those, key=lambda e: e.p_holm).title
    if answer is Verdict3.safe:
        return min(those, key=lambda e: e.slack).title
    return max(those, key=lambda e: math.inf if e.seeds is None else e.seeds).title


def _more(endpoints: tuple[Endpoint, ...], answer: Verdict3) -> str:
    """Say how many more replicates or requests would decide what is open."""
    if answer is not Verdict3.unsure:
        return ""
    parts = []
    for e in (e for e in endpoints if e.verdict is Verdict3.unsure):
        if e.note.startswith("n/a"):
            parts.append(f"{e.title}: {e.note.removeprefix('n/a: ')}")
        elif e.seeds is None:
            parts.append(f"{e.title}: over 1,000 replicates; it sits at its margin")
        elif e.seeds > e.difference.n:
            parts.append(f"{e.title}: about {e.seeds - e.difference.n} more replicates")
    return "; ".join(parts)


def _targets(endpoints: tuple[Endpoint, ...]) -> str:
    """Say which targets are missed, and by whom: not the same question as "no worse"."""
    groups: dict[str, list[str]] = {
        "neither arm meets": [],
        "the candidate misses": [],
        "only the candidate meets": [],
    }
    for e in endpoints:
        both = (e.baseline.target_met, e.candidate.target_met)
        if e.target is None:
            continue
        limit = f"{e.title} ≤ {e.target:g} {e.unit}"
        if both == ("missed", "missed"):
            groups["neither arm meets"].append(limit)
        elif both[1] == "missed":
            groups["the candidate misses"].append(limit)
        elif both == ("missed", "met"):
            groups["only the candidate meets"].append(limit)
    return "; ".join(f"{who} {', '.join(limits)}" for who, limits in groups.items() if limits)
