"""Which part did what: arms that differ in one switch only, and a factorial where one was run."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final

from reports import factorial_report, gain
from reports import metrics as m
from reports.document import Paragraph, Section, Table
from reports.factorial import Effects
from reports.intervals import Interval, paired_ratio, rate_difference
from reports.latency import survivors_between
from reports.numbers import change_span, number, percent, signed, span
from reports.pressure import arm_config, section_of
from reports.tables import Run
from reports.verdict import Verdict, judge_arm

SWITCHES: Final = {
    "layer": "the layer (door)",
    "placement": "placement policy",
    "kernels": "kernel plan",
    "memory": "memory and admission",
    "fleet": "fleet",
    "telemetry": "telemetry",
}
NEW: Final = {
    "placement": "placement",
    "kernels": "kernels",
    "memory": "memory management",
    "fleet": "hardware",
    "telemetry": "telemetry",
}


@dataclass(frozen=True, slots=True)
class Step:
    """Two arms, the switches in which they differ, and what changed from *a* to *b*."""

    a: str
    b: str
    switches: tuple[str, ...]
    missed: Interval
    """Share that misses an SLO or fails, b - a, points."""
    e2e_mean: Interval
    """Ratio of the mean e2e on requests that finished in both."""
    e2e_p50: Interval
    """Ratio of the failure-aware median e2e."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {
            "from": self.a,
            "to": self.b,
            "switches": list(self.switches),
            "missed_points": self.missed.as_dict(),
            "survivors_mean_e2e_ratio": self.e2e_mean.as_dict(),
            "e2e_p50_ratio": self.e2e_p50.as_dict(),
        }


def switches_between(run: Run, a: str, b: str) -> tuple[str, ...]:
    """Return the switches in which the configurations of two arms differ."""
    first, second = (_settings(run, arm) for arm in (a, b))
    return tuple(s for s in SWITCHES if first[s] != second[s])


def _settings(run: Run, arm: str) -> dict[str, str]:
    config = arm_config(run, arm)
    engine = dict(section_of(config, "engine"))
    plan = engine.pop("kernel_plan", None)
    door = dict(section_of(config, "door"))
    door.pop("decision_us", None)  # how long a decision takes is the placement's business
    parts: Mapping[str, Any] = {
        "layer": door,
        "placement": section_of(config, "policy"),
        "kernels": plan,
        "memory": engine,
        "fleet": config.get("fleet"),
        "telemetry": section_of(config, "telemetry"),
    }
    return {k: json.dumps(v, sort_keys=True, default=str) for k, v in parts.items()}


def analyse(run: Run) -> tuple[Step, ...]:
    """Return every pair of arms but the oracle's, which nobody can deploy; one switch first."""
    aside = (run.baseline, run.candidate, gain.oracle(run))
    order = [run.baseline, *(a for a in run.arms if a not in aside)]
    order += [run.candidate] if run.candidate not in order else []
    steps = [_step(run, a, b) for a, b in combinations(order, 2)]
    return tuple(sorted(steps, key=lambda s: (len(s.switches), order.index(s.a))))


def _step(run: Run, a: str, b: str) -> Step:
    first, second = run.of(a), run.of(b)
    n = m.offered(first)
    missed = rate_difference(
        m.counts(second, lambda c: m.misses(c, run)),
        m.counts(first, lambda c: m.misses(c, run)),
        n,
        run.confidence,
    )
    metric = m.METRICS["e2e_s"]
    new, old = (m.percentiles(run, arm, metric, 50.0) for arm in (b, a))
    nothing = Interval(math.nan, math.nan, math.nan, len(n))
    finite = all(map(math.isfinite, [*new, *old]))
    median = paired_ratio(new, old, run.confidence) if finite else nothing
    mean, _ = survivors_between(run, a, b)
    return Step(a, b, switches_between(run, a, b), missed.scaled(100), mean, median)


def layer_alone(run: Run, steps: tuple[Step, ...]) -> Step | None:
    """Return the step from the baseline that deletes the layer and nothing else."""
    return next((s for s in steps if s.a == run.baseline and s.switches == ("layer",)), None)


def alone(run: Run, steps: tuple[Step, ...]) -> Verdict | None:
    """Return the verdict on deleting the layer and nothing else; None where no arm does that."""
    layer = layer_alone(run, steps)
    return None if layer is None or layer.b == run.candidate else judge_arm(run, layer.b)


def whats_new(run: Run, a: str, b: str) -> str:
    """Return what *b* renews besides the layer: ``new placement and kernels``; empty if nothing."""
    named = [NEW[s] for s in switches_between(run, a, b) if s in NEW]
    if not named:
        return ""
    return "new " + " and ".join(filter(None, [", ".join(named[:-1]), named[-1]]))


def sentence(run: Run, steps: tuple[Step, ...], cells: tuple[Effects, ...]) -> str:
    """Say how much of the change came from deleting the layer, or that it cannot be told."""
    if cells:
        return factorial_report.sentence(cells[0])
    total = next((s for s in steps if (s.a, s.b) == (run.baseline, run.candidate)), None)
    layer = layer_alone(run, steps)
    if total is None or not total.e2e_mean.known:
        return ""
    whole = signed((total.e2e_mean.mean - 1) * 100, "%")
    if layer is None:
        parts = ", ".join(SWITCHES[s] for s in total.switches)
        if total.switches == ("layer",):
            return f"The arms differ in the layer alone: all of the {whole} in mean e2e is its own."
        return (
            f"The {whole} in mean e2e comes from {len(total.switches)} switches at once ({parts}): "
            "how much is the layer's cannot be told from these arms."
        )
    return (
        f"Of the **{whole}** in mean e2e ({_finished_in_both(run)}), deleting the layer "
        f"alone gives **{change_span(layer.e2e_mean)}**, and {span(layer.missed, 'points')} of "
        f"missed SLOs (`{layer.a}` → `{layer.b}`); the rest comes from "
        f"{whats_new(run, layer.b, run.candidate) or 'nothing else'}."
    )


def _finished_in_both(run: Run) -> str:
    """Return whom the mean speaks of: the share of servable requests that finished in both arms."""
    both = sum(int((b.finished & c.finished).sum()) for b, c in run.pairs())
    total = int(m.offered(run.of(run.baseline)).sum())
    return f"the {percent(both / total if total else math.nan)} of requests that finished in both"


def section(run: Run, steps: tuple[Step, ...], cells: tuple[Effects, ...]) -> Section:
    """Return the section on which part did what."""
    made = Section("parts", "Which part did what")
    text = sentence(run, steps, cells)
    if text:
        made.add(Paragraph(text, "lead"))
    rows = []
    for s in steps:
        kind = "one switch" if len(s.switches) == 1 else f"{len(s.switches)} switches together"
        rows.append(
            (
                f"{s.a} → {s.b}",
                ", ".join(SWITCHES[x] for x in s.switches) or "none",
                kind,
                span(s.missed, "points"),
                change_span(s.e2e_mean),
                change_span(s.e2e_p50),
            )
        )
    head = (
        "From → to", "what differs", "attributable", "SLO missed [interval]",
        "mean e2e, finished in both", "e2e p50, failure-aware",
    )  # fmt: skip
    caption = "Arms against arms: only a difference of one switch is anybody's own"
    made.add(Table(caption, head, rows, frozenset({0, 1, 2})))
    made.add(_door_share(run))
    for number_of, design in enumerate(cells):
        factorial_report.add_to(made, design, number_of)
    return made


def _door_share(run: Run) -> Paragraph:
    shares = {}
    for arm in (run.baseline, run.candidate):
        door = total = 0.0
        for c in run.of(arm):
            ok = c.finished
            door += float((c["door_wait_s"] + c["door_service_s"])[ok].sum())
            total += float((c["end_s"] - c["arrival_s"])[ok].sum())
        shares[arm] = 100 * door / total if total else math.nan
    told = "; ".join(f"`{a}` {number(v)} %" for a, v in shares.items())
    return Paragraph(
        f"Time at the door as a share of all e2e time of finished requests: {told}. A change of "
        "latency far beyond the baseline's share cannot come from handling time: it comes from "
        "what the layer decides.",
        "note",
    )
