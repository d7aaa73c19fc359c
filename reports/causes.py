"""Why requests failed or came too late, from the journal alone; shares with intervals."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from dispatch.outcomes import Outcome, RootCause
from reports import draw, links
from reports import metrics as m
from reports.compare import series
from reports.document import Paragraph, Plot, Section, Table
from reports.intervals import Interval
from reports.numbers import count, percent, span
from reports.slo import share_interval
from reports.tables import Bools, Requests, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERVICE: Final = len(RootCause)  # finished too late, and most of it was prefill and decode
LABELS: Final = {
    RootCause.memory_misjudged: "memory misjudged (another device would have held it)",
    RootCause.fragmentation: "fragmentation (free bytes sufficed, the block did not)",
    RootCause.fleet_full: "fleet full",
    RootCause.queue: "queue before the engine",
    RootCause.slow_ring: "slow ring",
    RootCause.pcie: "PCIe congestion",
    RootCause.router: "router (door) saturation",
    RootCause.retry_storm: "retries that were thrown away",
    RootCause.fault: "device fault",
    RootCause.context: "beyond the model's context",
    RootCause.client: "the client left",
    RootCause.none: "no cause in the journal",
    SERVICE: "service itself too slow (prefill and decode)",
}
OUTCOMES: Final = {
    Outcome.finished: "finished",
    Outcome.oom: "CUDA out of memory (OOM)",
    Outcome.timed_out: "timed out",
    Outcome.rejected: "rejected",
    Outcome.failed: "failed (fault)",
    Outcome.cancelled: "cancelled by the client",
    Outcome.rejected_context: "beyond the context (counted apart)",
    Outcome.in_flight: "in flight at the end",
}


@dataclass(frozen=True, slots=True)
class Causes:
    """Counts by arm, one row a replicate: outcomes, and causes of what failed or came late."""

    outcomes: dict[str, NDArray[np.int64]]
    """arm -> (replicate, Outcome)"""
    bad: dict[str, NDArray[np.int64]]
    """arm -> (replicate, cause), requests that failed or missed an SLO"""
    timeouts: dict[str, NDArray[np.int64]]
    """arm -> (replicate, cause), requests without success within the deadline"""
    offered: NDArray[np.int64]

    def misjudged(self, arm: str, confidence: float) -> Interval:
        """Return the share of *arm*'s P0 time-outs that are rooted in misjudged memory."""
        table = self.timeouts[arm]
        some = table.sum(axis=1) > 0
        return share_interval(
            table[some, RootCause.memory_misjudged], table[some].sum(axis=1), confidence
        )

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able counts."""
        return {
            "outcomes": {
                a: {o.name: t[:, o].tolist() for o in Outcome} for a, t in self.outcomes.items()
            },
            "slo_missed_or_failed": {a: _named(t) for a, t in self.bad.items()},
            "p0_timeouts": {a: _named(t) for a, t in self.timeouts.items()},
        }


def _named(table: NDArray[np.int64]) -> dict[str, list[int]]:
    names: dict[int, str] = {**{int(c): c.name for c in RootCause}, SERVICE: "service"}
    return {names[c]: table[:, c].tolist() for c in LABELS if table[:, c].any()}


def deadline_s(run: Run) -> float:
    """Return how long after its arrival a request counts as a P0 time-out."""
    return float((run.scenario.get("wait") or {}).get("deadline_s", 30.0))


def no_success_in_time(cell: Requests, limit_s: float) -> Bools:
    """Return True for P0 time-outs: servable, and no success within *limit_s*, attempts and all."""
    with np.errstate(invalid="ignore"):
        late = cell["end_s"] - cell["arrival_s"] > limit_s
    result: Bools = cell.servable & (~cell.finished | late)
    return result


def cause(cell: Requests) -> NDArray[np.int64]:
    """Return the cause of every request: the journal's, else the largest part of its latency.

    A finished request has no failure on record; if it is late, its time is split into door
    (waiting and handling), attempts thrown away, queue before the engine, and service.
    """
    found = cell["root_cause"].astype(np.int64)
    queue = cell["started_s"] - cell["decision_end_s"]
    door = cell["door_wait_s"] + cell["door_service_s"]
    total = cell["end_s"] - cell["arrival_s"]
    wasted = cell["wasted_s"]
    parts = np.nan_to_num(np.stack([door, wasted, queue, total - door - wasted - queue]))
    names = np.array([RootCause.router, RootCause.retry_storm, RootCause.queue, SERVICE])
    late = cell.finished & (found == RootCause.none)
    found[late] = names[parts[:, late].argmax(axis=0)]
    result: NDArray[np.int64] = found
    return result


def analyse(run: Run) -> Causes:
    """Return the counts of every arm and replicate."""
    outcomes, bad, timeouts = {}, {}, {}
    limit = deadline_s(run)
    seen = links.read(run)
    for arm in run.arms:
        rows: list[list[NDArray[np.int64]]] = [[], [], []]
        for cell in run.of(arm):
            why = links.refine(cause(cell), cell, seen.get((arm, cell.replicate)), SERVICE)
            rows[0].append(np.bincount(cell["outcome"], minlength=len(Outcome)))
            for table, chosen in (
                (rows[1], m.misses(cell, run)),
                (rows[2], no_success_in_time(cell, limit)),
            ):
                table.append(np.bincount(why[chosen], minlength=SERVICE + 1))
        outcomes[arm], bad[arm], timeouts[arm] = (np.array(r) for r in rows)
    return Causes(outcomes, bad, timeouts, m.offered(run.of(run.baseline)))


def main_cause(run: Run, data: Causes, arm: str) -> str:
    """Say what costs *arm* most of the requests that failed or missed an SLO; empty if none."""
    table = data.bad[arm].sum(axis=0)
    total = int(table.sum())
    if not total:
        return ""
    top = max(LABELS, key=lambda c: int(table[c]))
    return (
        f"{percent(table[top] / total)} of the {count(total)} requests that failed or missed an "
        f"SLO under `{arm}`: {LABELS[top]}."
    )


def section(run: Run, data: Causes) -> Section:
    """Return the section on failures and their causes."""
    made = Section("failures", "OOM, time-outs and their root causes")
    made.add(_accounting(run, data))
    made.add(
        Paragraph(
            "Why each request failed or missed an SLO. The journal names the cause of a failure; a "
            "request that finished too late takes the largest part of its latency (door, attempts "
            "thrown away, queue, service), and where the policy saw a ring twice as slow as usual "
            "or PCIe 90 % busy, that. A timed-out request takes the cause of its first failed "
            "attempt."
        ),
        _cause_table(run, data),
        _plot(run, data),
    )
    held = _would_have_held(run)
    if held is not None:
        made.add(held)
    limit = deadline_s(run)
    for arm in (run.baseline, run.candidate):
        total = int(data.timeouts[arm].sum())
        if not total:
            made.add(Paragraph(f"`{arm}` has no P0 time-out (no success within {limit:g} s)."))
            continue
        share = data.misjudged(arm, run.confidence).scaled(100)
        made.add(
            Paragraph(
                f"Of the {count(total)} P0 time-outs of `{arm}` (no success within {limit:g} s, "
                f"all attempts included) **{span(share, '%', plus=False)}** are rooted in "
                "misjudged memory."
            )
        )
    return made


def _would_have_held(run: Run) -> Table | None:
    """Return where the baseline's misjudged requests died, and which GPU kind had room then."""
    kinds = {int(d["device"]): str(d.get("gpu", "?")) for d in run.devices(run.baseline)}
    found: dict[tuple[str, str], int] = {}
    for cell in run.of(run.baseline):
        rows = cell.servable & (cell["root_cause"] == RootCause.memory_misjudged)
        pair = np.stack([cell["device"][rows], cell["fitting_device"][rows]], axis=1)
        ids, times = np.unique(pair, axis=0, return_counts=True)
        for (died, fits), n in zip(ids.tolist(), times.tolist(), strict=True):
            key = kinds.get(died, "?"), kinds.get(fits, "unknown")
            found[key] = found.get(key, 0) + n
    if not found:
        return None
    total = sum(found.values())
    rows_of = [
        (died, fits, f"{n:,} ({percent(n / total)})")
        for (died, fits), n in sorted(found.items(), key=lambda x: (-x[1], x[0]))
    ]
    caption = f"Misjudged memory in {run.baseline}: where it died, and what would have held it"
    head = ("Died on", "had room at that moment", "requests")
    return Table(caption, head, rows_of, frozenset({0, 1}))


def _accounting(run: Run, data: Causes) -> Table:
    rows = []
    for outcome, label in OUTCOMES.items():
        cells = []
        for arm in run.arms:
            k, n = int(data.outcomes[arm][:, outcome].sum()), int(data.outcomes[arm].sum())
            cells.append(f"{k:,} ({percent(k / n)})")
        rows.append((label, *cells))
    totals = [count(data.outcomes[a].sum()) for a in run.arms]
    rows.append(("offered = sum of the above", *totals))
    for title, column in (
        ("OOM events (attempts)", "oom_events"),
        ("preemptions", "preemptions"),
        ("attempts beyond the first", "attempts"),
    ):
        sums = [
            sum(
                int((np.maximum(c[column] - 1, 0) if column == "attempts" else c[column]).sum())
                for c in run.of(a)
            )
            for a in run.arms
        ]
        rows.append((title, *map(count, sums)))
    n = len(run.replicates)
    return Table(f"Every request accounted for, {n} replicates", ("Outcome", *run.arms), rows)


def _cause_table(run: Run, data: Causes) -> Table:
    rows = []
    for code, label in LABELS.items():
        if not any(data.bad[a][:, code].any() for a in run.arms):
            continue
        cells = []
        for arm in run.arms:
            table = data.bad[arm]
            some = table.sum(axis=1) > 0
            share = share_interval(table[some, code], table[some].sum(axis=1), run.confidence)
            known = int(table[:, code].sum())
            shown = span(share.scaled(100), "%", plus=False) if some.any() else "none"
            cells.append(f"{known:,} · {shown}")
        rows.append((label, *cells))
    totals = [count(data.bad[a].sum()) for a in run.arms]
    rows.append(("all that failed or missed an SLO", *totals))
    head = ("Root cause", *(f"{a}: requests · share [interval]" for a in run.arms))
    return Table("Root causes of every failed or SLO-missing request", head, rows)


def _plot(run: Run, data: Causes) -> Plot:
    codes = [c for c in LABELS if any(data.bad[a][:, c].any() for a in run.arms)][::-1]
    names = [LABELS[c].split(" (")[0] for c in codes]
    points = []
    for style, arm in series(run):
        shares = [
            share_interval(data.bad[arm][:, c], data.offered, run.confidence).scaled(100)
            for c in codes
        ]
        points.append((style, arm, shares))

    def paint(axes: "Axes") -> None:
        for style, arm, shares in points:
            y = np.arange(len(codes)) + 0.18 * (len(points) / 2 - 0.5 - style)
            mean = np.array([s.mean for s in shares])
            reach = np.array([[s.mean - s.low, s.high - s.mean] for s in shares]).T
            axes.errorbar(
                mean,
                y,
                xerr=np.nan_to_num(np.maximum(reach, 0)).reshape(2, -1),
                fmt="osD^vP"[style % 6],
                ms=4,
                lw=1.2,
                capsize=2,
                color=draw.SERIES[style % 6],
                label=arm,
            )
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_xlim(left=0)
        axes.set_xlabel("share of servable requests, %")
        if points:
            axes.legend(loc="best")

    return Plot(
        "causes",
        "What costs requests their SLO, per arm",
        "Share of all servable requests that failed or missed an SLO, by root cause, with the "
        "interval over replicates.",
        paint,
        height_in=0.9 + 0.42 * max(len(codes), 2),
        left_in=2.6,
        wide=True,
    )
