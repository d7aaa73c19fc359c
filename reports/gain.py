"""How much of what placement could gain each arm takes: the oracle as a bound, by pairs.

The oracle is greedy for one request at a time, so it bounds no whole plan: an arm may pass it.
"""

import math
from dataclasses import dataclass
from typing import Any

from reports import metrics as m
from reports.document import Paragraph, Section, Table
from reports.intervals import Interval, fieller, rate_difference
from reports.latency import survivors_between
from reports.numbers import change_span, number, span
from reports.pressure import arm_config, section_of
from reports.tables import Run


@dataclass(frozen=True, slots=True)
class Gain:
    """One arm against the oracle."""

    arm: str
    missed: Interval
    """Share that misses an SLO or fails, arm - oracle, points: the regret in what is promised."""
    e2e: Interval
    """Ratio of mean e2e, arm / oracle, finished in both: the regret in time."""
    taken: Interval
    """Part of the baseline's regret in missed SLOs that the arm does away with; 1 is all."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {
            "arm": self.arm,
            "missed_points": self.missed.as_dict(),
            "survivors_mean_e2e_ratio": self.e2e.as_dict(),
            "taken": self.taken.as_dict(),
        }


def oracle(run: Run) -> str:
    """Return the arm that an oracle places, other than the candidate; empty where there is none."""
    for arm in run.arms:
        name = str(section_of(arm_config(run, arm), "policy").get("name", ""))
        if "oracle" in name and arm != run.candidate:
            return arm
    return ""


def analyse(run: Run) -> tuple[Gain, ...]:
    """Return every other arm against the oracle; nothing where no oracle was run."""
    bound = oracle(run)
    if not bound:
        return ()
    n = m.offered(run.of(bound))
    missed = {arm: m.counts(run.of(arm), lambda c: m.misses(c, run)) for arm in run.arms}
    best, old = missed[bound], missed[run.baseline]
    found = []
    for arm in run.arms:
        if arm == bound:
            continue
        share = rate_difference(missed[arm], best, n, run.confidence).scaled(100)
        taken = Interval(math.nan, math.nan, math.nan, len(n))
        if n.all() and arm != run.baseline:
            taken = fieller((old - missed[arm]) / n, (old - best) / n, run.confidence)
        e2e = survivors_between(run, bound, arm)[0]
        found.append(Gain(arm, share, e2e, taken))
    return tuple(found)


def add_to(section: Section, run: Run, gains: tuple[Gain, ...]) -> None:
    """Append the sentence and the table on regret to *section*."""
    if not gains:
        section.add(Paragraph("No oracle arm was run, so regret is not measured here.", "note"))
        return
    section.add(Paragraph(sentence(run, gains), "lead"))
    rows = [
        (
            g.arm,
            "the baseline" if g.arm == run.baseline else _taken(g),
            span(g.missed, "points"),
            change_span(g.e2e),
        )
        for g in gains
    ]
    head = (
        "Arm",
        "part of the possible gain",
        "missed SLOs, arm − oracle",
        "mean e2e, arm ÷ oracle",
    )
    section.add(Table("Regret against the oracle", head, rows))
    section.add(
        Paragraph(
            "The oracle serves the candidate's traffic through the candidate's door and engine and "
            "knows true output lengths and the true state of every engine. It places each request "
            "where that one ends first, so it bounds placement one by one and no whole plan: an "
            "arm may pass it. The possible gain is what it misses less than the baseline (interval "
            "of a ratio of paired means: Fieller 1954); engine, kernels and door are in it where "
            "they differ.",
            "note",
        )
    )


def sentence(run: Run, gains: tuple[Gain, ...]) -> str:
    """Say what part of the possible gain the candidate takes."""
    by_arm = {g.arm: g for g in gains}
    possible, mine = by_arm[run.baseline].missed, by_arm[run.candidate]
    told = (
        f"**Possible gain**: an oracle in the candidate's place would save `{run.baseline}` "
        f"{span(possible, 'points')} of missed SLOs; "
    )
    if not math.isfinite(mine.taken.mean):
        return told + "that is no sure gain, so no part of it can be told."
    return told + f"`{run.candidate}` takes **{_taken(mine)}** of that."


def _taken(g: Gain) -> str:
    if math.isfinite(g.taken.mean) and not g.taken.known:
        return f"{number(100 * g.taken.mean)} % (no interval)"
    return span(g.taken.scaled(100), "%", plus=False)
