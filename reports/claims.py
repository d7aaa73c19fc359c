"""The ten claims of the account under test: claimed, measured here, and whether they hold.

The claimed figures stand in the code to be compared with, never as a result. Intervals of this
table are simultaneous: each claim judged by one takes its share of the error (Bonferroni).
"""

from reports import claim_rules as rules
from reports import predicted
from reports.claim import (
    ABSENT,
    BUILT,
    BY_INTERVAL,
    FAILS,
    HOLDS,
    INPUT,
    OPEN,
    Claim,
    Evidence,
    both,
)
from reports.document import Paragraph, Section, Table
from reports.numbers import signed
from reports.tables import Run

__all__ = ["ABSENT", "BUILT", "FAILS", "HOLDS", "INPUT", "OPEN", "Claim", "Evidence", "both"]


def analyse(evidence: Evidence) -> tuple[Claim, ...]:
    """Return the ten rows, in order."""
    return (
        rules.latency(evidence), rules.spread(evidence), rules.errors(evidence),
        rules.handling(evidence), rules.misjudged(evidence), *rules.kernels(evidence.run),
        rules.freshness(evidence), rules.keys(evidence.run), rules.convergence(evidence.run),
    )  # fmt: skip


def _single(verb: str) -> str:
    changed = {"hold": "holds", "do not hold": "does not hold"}
    return changed.get(verb, verb.replace("are ", "is ", 1))


def section(run: Run, claims: tuple[Claim, ...]) -> Section:
    """Return the claims table."""
    made = Section("claims", "The ten claims")
    words = {HOLDS: "hold", FAILS: "do not hold", OPEN: "are open", ABSENT: "are not measured here"}
    parts = []
    for status, verb in words.items():
        ids = [c.id for c in claims if c.status == status]
        if ids:
            parts.append(f"{', '.join(ids)} {verb if len(ids) > 1 else _single(verb)}")
    made.add(Paragraph(f"On this traffic and fleet: {'; '.join(parts)}.", "lead"))
    rows = [(c.id, c.status, c.claim, c.claimed, c.measured) for c in claims]
    head = ("Claim", "status", "what is claimed", "claimed", "measured here")
    level = signed(100 * (1 - (1 - run.confidence) / BY_INTERVAL)).lstrip("+")
    caption = (
        f"Claims C1–C10; intervals of C1, C2 and C5 are {level} % each, so that together they "
        f"keep {100 * run.confidence:g} %"
    )
    made.add(Table(caption, head, rows, frozenset({0, 1, 2, 3, 4}), status=1))
    if not run.manifest.get("kernels"):
        predicted.add_to(made, predicted.predictions(run))
    rules = [(c.id, c.rule) for c in claims]
    made.add(Table("By which rule", ("Claim", "rule"), rules, frozenset({0, 1}), folded=True))
    return made
