"""What the other arm chose for the same request: agreement, and what disagreement cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dispatch.journal import BEST
from reports import gain
from reports import metrics as m
from reports.document import Paragraph, Section, Table
from reports.gain import Gain
from reports.intervals import Interval, paired_ratio, t_interval
from reports.numbers import change_span, count, number, span
from reports.pressure import arm_config, section_of
from reports.tables import Run, read_columns

STATELESS: Final = ("static_weights", "round_robin")
"""Policies whose choice does not hang on the fleet's state, so that a shadow is exact."""

Ints = NDArray[np.int64]
Choices = dict[tuple[str, int], tuple[Ints, Ints]]
"""(device, best five) of every request's first decision, by arm and replicate."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often two arms placed the first attempt of a request alike; shares over replicates."""

    decisions: int
    agree: Interval
    chance: Interval
    """Agreement that the two arms' own device shares give by chance."""
    same_kind: Interval
    in_best: Interval
    """Share of the first arm's choices among the second's best five."""
    when_same: Interval
    when_other: Interval
    """Ratio of mean e2e, second / first, finished in both: same device, another device."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        names = ("agree", "chance", "same_kind", "in_best", "when_same", "when_other")
        return {
            **{name: getattr(self, name).as_dict() for name in names},
            "decisions": self.decisions,
        }


@dataclass(frozen=True, slots=True)
class Shadow:
    """Baseline against candidate, and what every arm loses to the oracle."""

    pair: Agreement | None
    """None where the two arms have different devices."""
    gains: tuple[Gain, ...]
    oracle: str

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {
            "pair": self.pair.as_dict() if self.pair else None,
            "oracle": self.oracle,
            "gains": [g.as_dict() for g in self.gains],
        }


def analyse(run: Run) -> Shadow:
    """Return the agreement of baseline and candidate, and the regret of every arm."""
    pair = None
    if (run.folder / "decisions.parquet").is_file() and run.baseline != run.candidate:
        pair = agreement(run, first_choices(run), run.baseline, run.candidate)
    return Shadow(pair, gain.analyse(run), gain.oracle(run))


def agreement(run: Run, first: Choices, one: str, other: str) -> Agreement | None:
    """Compare the first placements of two arms; None where their devices differ."""
    kinds = [[str(d.get("gpu")) for d in run.devices(a)] for a in (one, other)]
    if kinds[0] != kinds[1]:
        return None
    kind = _kind_codes(kinds[0])
    rows: list[tuple[float, ...]] = []
    ratios: list[tuple[float, ...]] = []
    total = 0
    for rep in run.replicates:
        theirs, _ = first[one, rep]
        mine, best = first[other, rep]
        both = (mine >= 0) & (theirs >= 0)
        if not both.any():
            continue
        total += int(both.sum())
        same = mine == theirs
        size = int(max(mine.max(), theirs.max())) + 1
        shares = [np.bincount(x[both], minlength=size) / both.sum() for x in (mine, theirs)]
        alike = kind[mine] == kind[theirs] if len(kind) >= size else same
        in_best = (best == theirs[:, None]).any(axis=1)
        told = same[both].mean(), shares[0] @ shares[1], alike[both].mean(), in_best[both].mean()
        rows.append(tuple(map(float, told)))
        cells = run.cells[one, rep], run.cells[other, rep]
        ratios.append(_means(*cells, both & same) + _means(*cells, both & ~same))
    if not rows:
        return None
    agree, chance, alike_share, best_share = (
        _share(t_interval(x, run.confidence)) for x in np.array(rows).T
    )
    table = np.array(ratios)
    return Agreement(
        total, agree, chance, alike_share, best_share,
        paired_ratio(table[:, 1], table[:, 0], run.confidence),
        paired_ratio(table[:, 3], table[:, 2], run.confidence),
    )  # fmt: skip


def _share(interval: Interval) -> Interval:
    """Cut an interval of a share at 0 and 1; NaN stays what it is."""
    low, high = (min(1.0, max(0.0, x)) if x == x else x for x in (interval.low, interval.high))
    return Interval(interval.mean, low, high, interval.n, interval.sd)


def first_choices(run: Run) -> Choices:
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


def section(run: Run, data: Shadow) -> Section:
    """Return the section on shadow agreement and regret."""
    made = Section("shadow", "Shadow: what the other arm chose")
    if data.pair is None:
        made.add(
            Paragraph("The arms have different devices, so no choice can be set beside another.")
        )
    else:
        _pair(made, run, data.pair)
    gain.add_to(made, run, data.gains)
    return made


def _pair(made: Section, run: Run, data: Agreement) -> None:
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
    made.add(
        Paragraph(f"First placements of {count(data.decisions)} requests. {exact}"),
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
