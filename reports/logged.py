"""A router's own log beside every arm: where each would have placed otherwise, and what of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from reports import metrics as m
from reports.document import Paragraph, Section, Table
from reports.intervals import Interval, rate_difference
from reports.latency import survivors_between
from reports.numbers import change_span, count, percent, span
from reports.pressure import arm_config, section_of
from reports.shadow import Agreement, Choices, agreement, first_choices
from reports.tables import Bools, Run, read_columns
from traces import router_log

RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class Beside:
    """One arm beside the log's own placements, replayed."""

    arm: str
    choices: Agreement | None
    """None where the arm has other devices than the log."""
    as_logged: float
    """Share of alike first placements on the trace itself, not resampled."""
    missed: Interval
    """Share that misses an SLO or fails, arm - log, points."""
    e2e: Interval
    """Ratio of mean e2e, arm / log, finished in both."""


@dataclass(frozen=True, slots=True)
class Logged:
    """A log as it was replayed: how much of it could be, and every other arm beside it."""

    arm: str
    file: str
    coverage: float
    """Share of the trace's requests that the log has a decision for."""
    followed: float
    """Share of first placements that went where the log says."""
    decisions: int
    beside: tuple[Beside, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {
            "arm": self.arm,
            "file": self.file,
            "coverage_ratio": self.coverage,
            "followed_ratio": self.followed,
            "decisions": self.decisions,
            "beside": {
                b.arm: {
                    **(b.choices.as_dict() if b.choices else {}),
                    "agree_as_logged": b.as_logged,
                    "missed_points": b.missed.as_dict(),
                    "survivors_mean_e2e_ratio": b.e2e.as_dict(),
                }
                for b in self.beside
            },
        }


def analyse(run: Run) -> Logged | None:
    """Return the router's log beside every arm; None where no log was replayed."""
    named = ((a, section_of(arm_config(run, a), "policy")) for a in run.arms)
    arm, policy = next(((a, p) for a, p in named if p.get("name") == RECORDED), ("", {}))
    if not arm or not (run.folder / "decisions.parquet").is_file():
        return None
    params = section_of(policy, "params")
    first = first_choices(run)
    chosen = router_log.unpack(str(params.get("placements", "")))
    followed, placed = _followed(run, arm, first, chosen)
    n = m.offered(run.of(arm))
    own = m.counts(run.of(arm), lambda c: m.misses(c, run))
    beside = []
    for other in run.arms:
        if other != arm:
            missed = m.counts(run.of(other), lambda c: m.misses(c, run))
            beside.append(
                Beside(
                    other,
                    agreement(run, first, arm, other),
                    _alike(first[arm, run.replicates[0]][0], first[other, run.replicates[0]][0]),
                    rate_difference(missed, own, n, run.confidence).scaled(100),
                    survivors_between(run, arm, other)[0],
                )
            )
    share = followed / placed if placed else float("nan")
    coverage = float(params.get("coverage_ratio", float("nan")))
    return Logged(arm, str(params.get("log", "")), coverage, share, placed, tuple(beside))


def _alike(one: Any, other: Any) -> float:
    both = (one >= 0) & (other >= 0)
    return float((one == other)[both].mean()) if both.any() else float("nan")


def _followed(run: Run, arm: str, first: Choices, chosen: Any) -> tuple[int, int]:
    """Return how many first placements went where the log says, and how many there were."""
    wanted = ["arm", "replicate", "request", "source_row"]
    raw = read_columns(run.folder / "requests.parquet", wanted)
    codes, names = raw["arm"]
    code = names.index(arm)
    followed = placed = 0
    for rep in run.replicates:
        rows = np.flatnonzero((codes == code) & (raw["replicate"] == rep))
        order = rows[np.argsort(raw["request"][rows])]
        kept = np.searchsorted(raw["request"][order], run.cells[arm, rep]["request"])
        lines = raw["source_row"][order][kept]
        device = first[arm, rep][0]
        known: Bools = device >= 0
        said = np.where(lines < len(chosen), chosen[np.minimum(lines, len(chosen) - 1)], -1)
        followed += int((said[known] == device[known]).sum())
        placed += int(known.sum())
    return followed, placed


def section(run: Run, data: Logged | None) -> Section | None:
    """Return the section on a router's log; None where none was replayed."""
    if data is None:
        return None
    made = Section("router-log", "The router's own log, beside every arm")
    made.add(
        Paragraph(
            f"`{data.arm}` replays the decisions of `{data.file}` on the candidate's door and "
            f"engine. The log has a decision for {percent(data.coverage)} of the trace's requests; "
            f"{percent(data.followed)} of {count(data.decisions)} first placements went where it "
            "says. The others (not on record, or that device was down or barred to them) went to "
            "the device with the fewest requests in flight."
        )
    )
    rows = []
    for b in data.beside:
        c = b.choices
        shares = [c.agree, c.chance, c.same_kind, c.in_best] if c else []
        told = [span(x.scaled(100), "%", plus=False) for x in shares]
        told = [percent(b.as_logged), *told] if c else ["other devices"] * 5
        rows.append((b.arm, *told, span(b.missed, "points"), change_span(b.e2e)))
    head = (
        "Arm", "same device, trace as logged", "all replicates", "by chance alone", "same GPU kind",
        "log's device among its best 5", "missed SLOs, arm − log", "mean e2e, arm ÷ log",
    )  # fmt: skip
    return made.add(
        Table("Every arm beside the log", head, rows),
        Paragraph(
            "Each arm chose in its own fleet's state, so part of a difference is that state. What "
            "the log's own fleet did with those placements is not in it: its outcomes here are "
            "simulated, as those of all arms.",
            "note",
        ),
    )
