"""Who got worse: the comparison again by length, model, GPU kind, hour and session.

Both arms are compared on the same requests: a GPU kind means the requests that the *baseline* put
there. The family of all segments is corrected by Holm before any is called worse.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from reports import draw
from reports import metrics as m
from reports.document import Paragraph, Plot, Section, Table
from reports.intervals import (
    Interval,
    holm,
    nearest_rank,
    p_worse,
    paired_ratio,
    rate_difference,
    sample_floor,
)
from reports.numbers import change_span, count, p_value, percent, span
from reports.tables import Requests, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LENGTH_EDGES: Final = (0, 128, 512, 1024, 2048, 4096, 8192, 16384, 1 << 31)
TOP_SESSIONS: Final = 20
DIMENSIONS: Final = {
    "length": "prompt length, tokens",
    "model": "model",
    "gpu": "GPU kind that the baseline chose",
    "hour": "time of arrival",
    "session": "session (largest)",
    "hint": "kernel hint",
}
_WHO: Final = {
    "length": "prompts of {} tokens",
    "model": "model {}",
    "gpu": "requests that the baseline put on {}",
    "hour": "arrivals at {}",
    "session": "session {}",
    "hint": "kernel hint {}",
}


@dataclass(frozen=True, slots=True)
class Segment:
    """One slice of the requests, compared pair by pair."""

    dimension: str
    name: str
    requests: int
    missed_baseline: float
    missed_candidate: float
    difference: Interval
    """Share that failed or missed an SLO, candidate - baseline, points."""
    e2e_p50: Interval
    """Ratio of the failure-aware median."""
    p_holm: float = math.nan
    verdict: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {
            "dimension": self.dimension,
            "name": self.name,
            "requests": self.requests,
            "missed_baseline": self.missed_baseline,
            "missed_candidate": self.missed_candidate,
            "difference_points": self.difference.as_dict(),
            "e2e_p50_ratio": self.e2e_p50.as_dict(),
            "p_holm": None if math.isnan(self.p_holm) else self.p_holm,
            "verdict": self.verdict,
        }


def analyse(run: Run) -> tuple[Segment, ...]:
    """Return all segments with at least one servable request, worst first within a dimension."""
    found: list[Segment] = []
    for dimension in DIMENSIONS:
        codes, names = _codes(run, dimension)
        found += _compare(run, dimension, codes, names)
    adjusted = holm([p_worse(s.difference) for s in found])
    alpha = (1 - run.confidence) / 2
    return tuple(_judge(s, p, alpha) for s, p in zip(found, adjusted, strict=True))


def _judge(s: Segment, p: float, alpha: float) -> Segment:
    if not s.difference.known:
        verdict = "not enough evidence"
    elif s.difference.high <= 0 and s.difference.mean < 0:
        verdict = "better"
    elif p <= alpha:
        verdict = "worse"
    else:
        verdict = "no difference shown"
    return Segment(
        s.dimension, s.name, s.requests, s.missed_baseline, s.missed_candidate, s.difference,
        s.e2e_p50, p, verdict,
    )  # fmt: skip


def worst(segments: tuple[Segment, ...]) -> Segment | None:
    """Return the segment that fares worst: the largest lower limit, then the largest mean."""
    known = [s for s in segments if s.difference.known]
    return max(known, key=lambda s: (s.difference.low, s.difference.mean), default=None)


def _codes(run: Run, dimension: str) -> tuple[list[NDArray[np.int64]], list[str]]:
    cells = run.of(run.baseline)
    match dimension:
        case "length":
            edges = LENGTH_EDGES
            names = [f"{a + 1:,}–{b:,}" for a, b in pairwise(edges)]
            names[-1] = f"> {edges[-2]:,}"
            return [np.searchsorted(edges, c["prompt_tokens"]) - 1 for c in cells], names
        case "model":
            return [c["model"].astype(np.int64) for c in cells], list(cells[0].names["model"])
        case "hint":
            named = [name or "none" for name in cells[0].names["kernel_hint"]]
            return [c["kernel_hint"].astype(np.int64) for c in cells], named
        case "gpu":
            return _gpu_codes(run, cells)
        case "hour":
            return _time_codes(cells)
        case _:
            return _session_codes(cells)


def _gpu_codes(run: Run, cells: list[Requests]) -> tuple[list[NDArray[np.int64]], list[str]]:
    table = {int(d["device"]): str(d.get("gpu", "?")) for d in run.devices(run.baseline)}
    names = sorted(set(table.values()))
    size = max(table, default=-1) + 1
    kind = np.full(size + 1, len(names))  # the last entry catches device -1
    for device, name in table.items():
        kind[device] = names.index(name)
    codes = [kind[np.where(c["device"] < size, c["device"], -1)] for c in cells]
    return codes, [*names, "never placed"]


def _time_codes(cells: list[Requests]) -> tuple[list[NDArray[np.int64]], list[str]]:
    span_s = max(float(c["arrival_s"][-1]) for c in cells)
    step = 3600.0 if span_s > 7200 else 600.0
    step = max(step, span_s / 48)
    names = [
        f"hour {i + 1}" if step == 3600 else f"{i * step / 60:.0f}–{(i + 1) * step / 60:.0f} min"
        for i in range(int(span_s // step) + 1)
    ]
    return [(c["arrival_s"] // step).astype(np.int64) for c in cells], names


def _session_codes(cells: list[Requests]) -> tuple[list[NDArray[np.int64]], list[str]]:
    ids, sizes = np.unique(np.concatenate([c["session"] for c in cells]), return_counts=True)
    real = ids >= 0
    ids, sizes = ids[real], sizes[real]
    order = np.lexsort((ids, -sizes))[:TOP_SESSIONS]
    chosen = np.sort(ids[order])
    if len(chosen) < 2:
        return [np.full(len(c), -1, np.int64) for c in cells], []
    codes = []
    for c in cells:
        at = np.minimum(np.searchsorted(chosen, c["session"]), len(chosen) - 1)
        codes.append(np.where(chosen[at] == c["session"], at, -1))
    return codes, [f"session {i}" for i in chosen]


def _compare(
    run: Run, dimension: str, codes: list[NDArray[np.int64]], names: list[str]
) -> list[Segment]:
    size = len(names)
    if size < 2 and dimension != "length":
        return []
    count_of: dict[str, list[NDArray[np.int64]]] = {"n": [], "b": [], "c": []}
    for (b, c), code in zip(run.pairs(), codes, strict=True):
        inside = b.servable & (code >= 0) & (code < size)
        count_of["n"].append(np.bincount(code[inside], minlength=size))
        count_of["b"].append(np.bincount(code[inside & m.misses(b, run)], minlength=size))
        count_of["c"].append(np.bincount(code[inside & m.misses(c, run)], minlength=size))
    n, bad_b, bad_c = (np.array(count_of[k]) for k in "nbc")
    medians = _medians(run, codes, size)
    result = []
    for i in range(size):
        some = n[:, i] > 0
        if not some.any():
            continue
        total = int(n[:, i].sum())
        difference = rate_difference(bad_c[some, i], bad_b[some, i], n[some, i], run.confidence)
        base, cand = medians[0][some, i], medians[1][some, i]
        fine = np.isfinite(base) & np.isfinite(cand)
        nothing = Interval(math.nan, math.nan, math.nan, 0)
        ratio = paired_ratio(cand, base, run.confidence) if fine.all() else nothing
        shares = float(bad_b[:, i].sum() / total), float(bad_c[:, i].sum() / total)
        result.append(Segment(dimension, names[i], total, *shares, difference.scaled(100), ratio))
    return result


def _medians(
    run: Run, codes: list[NDArray[np.int64]], size: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return failure-aware e2e medians as (replicate, segment), NaN below the sample floor."""
    floor = sample_floor(50.0)
    tables = [np.full((len(codes), size), np.nan) for _ in range(2)]
    for row, (pair, code) in enumerate(zip(run.pairs(), codes, strict=True)):
        for table, cell in zip(tables, pair, strict=True):
            inside = cell.servable & (code >= 0) & (code < size)
            value = np.where(cell.finished, cell["end_s"] - cell["arrival_s"], np.inf)[inside]
            own = code[inside]
            order = np.lexsort((value, own))
            edges = np.searchsorted(own[order], np.arange(size + 1))
            for i in range(size):
                part = value[order[edges[i] : edges[i + 1]]]
                if len(part) >= floor:
                    table[row, i] = nearest_rank(part, 50.0)
    return tables[0], tables[1]


def sentence(segments: tuple[Segment, ...]) -> str:
    """Say in one sentence which segment fares worst."""
    s = worst(segments)
    if s is None:
        return "No segment has enough replicates to compare."
    place = _WHO[s.dimension].format(s.name)
    moved = f"missed SLOs {span(s.difference, 'points')}"
    if s.verdict == "worse":
        return f"**Worst off**: {place}: {moved} (p {p_value(s.p_holm)} after Holm's correction)."
    return (
        f"**Worst off**: no segment is shown to get worse. Least favoured of {len(segments)}: "
        f"{place}: {moved} (p {p_value(s.p_holm)} after Holm's correction)."
    )


def section(run: Run, segments: tuple[Segment, ...]) -> Section:
    """Return the section on who got worse."""
    made = Section("segments", "Who got worse")
    made.add(Paragraph(sentence(segments), "lead"))
    made.add(
        Paragraph(
            "Both arms on the same requests, slice by slice; a GPU kind means the requests that "
            f"`{run.baseline}` put there. A slice is called worse only if its p value survives "
            f"Holm's correction over all {len(segments)} slices."
        )
    )
    made.add(_forest(run, [s for s in segments if s.dimension in ("length", "gpu")]))
    for dimension, title in DIMENSIONS.items():
        rows = [_row(s) for s in segments if s.dimension == dimension]
        if rows:
            made.add(_table(run, title, rows, dimension not in ("length", "gpu")))
    return made


def _row(s: Segment) -> tuple[str, ...]:
    return (
        s.name,
        s.verdict,
        count(s.requests),
        percent(s.missed_baseline),
        percent(s.missed_candidate),
        span(s.difference, "points"),
        change_span(s.e2e_p50),
        p_value(s.p_holm),
    )


def _table(run: Run, title: str, rows: list[tuple[str, ...]], folded: bool) -> Table:
    head = (
        title[0].upper() + title[1:], "verdict", "requests", f"missed, {run.baseline}",
        f"missed, {run.candidate}", "difference [interval]", "e2e p50 change [interval]",
        "p (worse, Holm)",
    )  # fmt: skip
    return Table(f"By {title}", head, rows, frozenset({0}), status=1, folded=folded)


def _forest(run: Run, segments: list[Segment]) -> Plot:
    shown = [s for s in segments if s.difference.known][::-1]

    def paint(axes: "Axes") -> None:
        axes.axvline(0, color=draw.INK, lw=0.9)
        for y, s in enumerate(shown):
            colour = {"worse": draw.BAD, "better": draw.GOOD}.get(s.verdict, draw.SOFT)
            d = s.difference
            axes.plot([d.low, d.high], [y, y], color=colour, lw=1.4)
            axes.plot([d.mean], [y], "so"[s.dimension == "gpu"], color=colour, ms=4.5)
        names = [s.name + (" tokens" if s.dimension == "length" else "") for s in shown]
        axes.set_yticks(range(len(shown)), names)
        axes.set_ylim(-0.7, len(shown) - 0.3)
        axes.set_xlabel(f"requests that miss an SLO, {run.candidate} − {run.baseline}, points")

    return Plot(
        "forest",
        "Change by length and by GPU kind",
        "Left of zero the candidate misses fewer SLOs. Squares: prompt length; circles: GPU kind "
        "that the baseline chose; bars are intervals over replicates.",
        paint,
        height_in=0.9 + 0.27 * max(len(shown), 3),
        left_in=1.7,
        wide=True,
    )
