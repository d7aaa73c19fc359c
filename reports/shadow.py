"""What the other arm chose for the same request: agreement, and what disagreement cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dispatch.journal import BEST
from reports import metrics as m
from reports.document import Paragraph, Section, Table
from reports.intervals import Interval, paired_ratio, t_interval
from reports.latency import survivors_between
from reports.numbers import change_span, count, number, span
from reports.pressure import arm_config, section_of
from reports.tables import Run, read_columns

STATELESS: Final = ("static_weights", "round_robin")
"""Policies whose choice does not hang on the fleet's state, so that a shadow is exact."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shadow:
    """How often two arms placed the first attempt of a request alike; shares over replicates."""

    decisions: int
    agree: Interval
    chance: Interval
    """Agreement that the two arms' own device shares give by chance."""
    same_kind: Interval
    in_best: Interval
    """Share of the baseline's choices among the candidate's best five."""
    when_same: Interval
    when_other: Interval
    """Ratio of mean e2e, candidate / baseline, finished in both: same device, another device."""
    regret: Interval | None
    oracle: str

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        names = ("agree", "chance", "same_kind", "in_best", "when_same", "when_other")
        figures: dict[str, Any] = {name: getattr(self, name).as_dict() for name in names}
        figures["decisions"] = self.decisions
        figures["regret_to_oracle"] = self.regret.as_dict() if self.regret else None
        return figures


def analyse(run: Run) -> Shadow | None:
    """Return the agreement of baseline and candidate; None where their devices differ."""
    path = run.folder / "decisions.parquet"
    if not path.is_file() or run.baseline == run.candidate:
        return None
    kinds = [[str(d.get("gpu")) for d in run.devices(a)] for a in (run.baseline, run.candidate)]
    if kinds[0] != kinds[1]:
        return None
    first = first_choices(run)
    kind = _kind_codes(kinds[0])
    rows: list[tuple[float, ...]] = []
    ratios: list[tuple[float, float, float, float]] = []
    total = 0
    for b, c in run.pairs():
        mine, best = first[run.candidate, c.replicate]
        theirs, _ = first[run.baseline, b.replicate]
        both = (mine >= 0) & (theirs >= 0)
        if not both.any():
            continue
        total += int(both.sum())
        same = mine == theirs
        size = int(max(mine.max(), theirs.max())) + 1
        shares = [np.bincount(x[both], minlength=size) / both.sum() for x in (mine, theirs)]
        in_best = (best == theirs[:, None]).any(axis=1)
        alike = kind[mine] == kind[theirs] if len(kind) >= size else same
        rows.append(
            (
                float(same[both].mean()),
                float(shares[0] @ shares[1]),
                float(alike[both].mean()),
                float(in_best[both].mean()),
            )
        )
        ratios.append(_means(b, c, both & same) + _means(b, c, both & ~same))
    if not rows:
        return None
    agree, chance, alike_share, best_share = (
        t_interval(x, run.confidence) for x in np.array(rows).T
    )
    table = np.array(ratios)
    oracle = _oracle(run)
    return Shadow(
        total, agree, chance, alike_share, best_share,
        paired_ratio(table[:, 1], table[:, 0], run.confidence),
        paired_ratio(table[:, 3], table[:, 2], run.confidence),
        survivors_between(run, oracle, run.candidate)[0] if oracle else None, oracle,
    )  # fmt: skip


def first_choices(run: Run) -> dict[tuple[str, int], tuple[Ints, Ints]]:
    """Return (device, best five) of every request's first decision, rows as in the requests."""
    names = [f"best{i}_device" for i in range(BEST)]
    wanted = ["arm", "replicate", "request", "attempt", "time_s", "device", *names]
    raw = read_columns(run.folder / "decisions.parquet", wanted)
    codes, arms = raw["arm"]
    found = {}
    for (arm, rep), cell in run.cells.items():
        code = arms.index(arm) if arm in arms else -2
        rows = np.flatnonzero((codes == code) & (raw["replicate"] == rep))
        order = rows[np.lexsort((raw["time_s"][rows], raw["attempt"][rows], raw["request"][rows]))]
        ids, at = np.unique(raw["request"][order], return_index=True)
        picked = order[at]
        slot = np.searchsorted(cell["request"], ids)
        known = slot < len(cell)
        known[known] = cell["request"][slot[known]] == ids[known]
        device = np.full(len(cell), -1, np.int64)
        best = np.full((len(cell), BEST), -2, np.int64)
        device[slot[known]] = raw["device"][picked[known]]
        for i, name in enumerate(names):
            best[slot[known], i] = raw[name][picked[known]]
        found[arm, rep] = (device, best)
    return found


def _kind_codes(kinds: Sequence[str]) -> Ints:
    names = sorted(set(kinds))
    return np.array([names.index(k) for k in kinds], dtype=np.int64)


def _means(b: Any, c: Any, rows: Any) -> tuple[float, float]:
    compute = m.METRICS["e2e_s"].compute
    rows = rows & b.finished & c.finished
    if not rows.any():
        return float("nan"), float("nan")
    return float(compute(b)[rows].mean()), float(compute(c)[rows].mean())


def _oracle(run: Run) -> str:
    for arm in run.arms:
        policy = section_of(arm_config(run, arm), "policy").get("name", "")
        if "oracle" in str(policy) and arm != run.candidate:
            return arm
    return ""


def section(run: Run, data: Shadow | None) -> Section:
    """Return the section on shadow agreement."""
    made = Section("shadow", "Shadow: what the other arm chose")
    if data is None:
        return made.add(
            Paragraph("The arms have different devices, so no choice can be set beside another.")
        )
    policy = str(section_of(arm_config(run, run.baseline), "policy").get("name", ""))
    exact = (
        f"`{policy}` does not look at the fleet, so its choice here is what it would have chosen "
        "in the candidate's place."
        if policy in STATELESS
        else "Each arm chose in its own fleet's state, so part of the difference is that state."
    )
    percent = 100.0
    rows = [
        ("same device", span(data.agree.scaled(percent), "%", plus=False)),
        ("same device by chance alone", span(data.chance.scaled(percent), "%", plus=False)),
        ("same GPU kind", span(data.same_kind.scaled(percent), "%", plus=False)),
        (
            f"{run.baseline}'s device among {run.candidate}'s best {BEST}",
            span(data.in_best.scaled(percent), "%", plus=False),
        ),
        ("mean e2e change where both chose the same", change_span(data.when_same)),
        ("mean e2e change where they differ", change_span(data.when_other)),
    ]
    if data.regret is not None:
        rows.append((f"regret against {data.oracle} (mean e2e)", change_span(data.regret)))
    made.add(
        Paragraph(
            f"First placements of {count(data.decisions)} requests. {exact} "
            + ("" if data.regret else "No oracle arm was run, so regret is not measured here.")
        ),
        Table("Agreement of first placements", ("Measure", "value [interval]"), rows),
    )
    apart = data.when_other.mean - data.when_same.mean
    if data.when_other.known and data.when_same.known:
        made.add(
            Paragraph(
                f"Where the arms disagree the change differs by {number(100 * apart)} points from "
                "where they agree: what is left where they agree is not the placement's own.",
                "note",
            )
        )
    return made
