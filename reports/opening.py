"""The first screen: the verdict, what binds it, four figures, and SLO by SLO both arms."""

import math
from collections.abc import Callable
from typing import Final

from reports import attribution, causes, gain, latency, segments, utilisation
from reports import metrics as m
from reports.attribution import Step
from reports.compare import ratio_at
from reports.document import Banner, Paragraph, Section, Table, Tile
from reports.factorial import Effects
from reports.gain import Gain
from reports.intervals import Verdict3, nearest_rank
from reports.numbers import change, change_span, number, p_value, percent, seconds, signed, span
from reports.pressure import arm_config, section_of
from reports.segments import Segment
from reports.slo import Endpoint, Figure
from reports.tables import Bools, Requests, Run
from reports.verdict import Verdict

_ANSWER: Final = {Verdict3.safe: "safe", Verdict3.unsafe: "unsafe", Verdict3.unsure: "unsure"}

_TOLD: Final = {
    ("safe", "safe"): "is safe on this evidence, by itself and with {new}.",
    ("safe", "unsafe"): "is safe with {new}, but not by itself.",
    ("safe", "unsure"): "is safe with {new}; by itself there is not enough evidence.",
    ("unsafe", "safe"): "is safe by itself, but not with {new}.",
    ("unsafe", "unsafe"): "is not safe, by itself or with {new}.",
    ("unsafe", "unsure"): "is not safe with {new}; by itself there is not enough evidence.",
    ("unsure", "safe"): "is safe by itself; with {new} there is not enough evidence.",
    ("unsure", "unsafe"): "is not safe by itself; with {new} there is not enough evidence.",
    ("unsure", "unsure"): "by itself or with {new}: not enough evidence either way.",
}
"""The headline, by the verdicts on the candidate and on deleting the layer alone."""


def headline(run: Run, verdict: Verdict, alone: Verdict | None = None) -> str:
    """Return the verdict as one sentence a director can act on; it names all that changes.

    *alone* is the verdict on deleting the layer and nothing else, where an arm does that: what
    holds of the whole must not be credited to the deletion.
    """
    if run.baseline == run.candidate:
        return f"Only {run.candidate} was run, so nothing is compared: not enough evidence."
    kinds = [
        section_of(arm_config(run, a), "door").get("kind") for a in (run.baseline, run.candidate)
    ]
    act = f"Replacing {run.baseline} by {run.candidate}"
    if kinds == ["legacy", "direct"]:
        act = "Deleting the routing layer"
        new = attribution.whats_new(run, run.baseline, run.candidate)
        if alone is not None and new:
            told = _TOLD[_ANSWER[verdict.answer], _ANSWER[alone.answer]]
            return f"{act} {told.format(new=new)}"
        act += f", with {new}," if new else ""
    match verdict.answer:
        case Verdict3.safe:
            return f"{act} is safe on this evidence."
        case Verdict3.unsafe:
            return f"{act} is not safe on this evidence."
        case _:
            return f"{act.removesuffix(',')}: not enough evidence either way."


def banner(
    run: Run,
    verdict: Verdict,
    alone: Verdict | None,
    delays: latency.Latency,
    slices: tuple[Segment, ...],
    steps: tuple[Step, ...],
    cells: tuple[Effects, ...],
    found: causes.Causes,
    gains: tuple[Gain, ...] = (),
) -> Banner:
    """Return the verdict block."""
    told = [_binding(run, verdict)]
    if verdict.answer is Verdict3.unsafe:
        why = causes.main_cause(run, found, run.candidate), utilisation.crowd(run, run.candidate)
        told.append("**Why**: " + " ".join(filter(None, why)) if any(why) else "")
    told.append(_by_itself(run, alone, steps))
    told.append(attribution.sentence(run, steps, cells))
    told.append(latency.slower(run, delays))
    if gains:
        told.append(gain.sentence(run, gains))
    told.append(segments.sentence(slices))
    if verdict.targets:
        told.append(f"**Targets**: {verdict.targets}.")
    if verdict.more:
        told.append(f"What would decide: {verdict.more}.")
    told += [f"**Invalid as it stands**: {flag}." for flag in verdict.flags]
    return Banner(
        _ANSWER[verdict.answer],
        headline(run, verdict, alone),
        [t for t in told if t],
        _tiles(run),
    )


def _by_itself(run: Run, alone: Verdict | None, steps: tuple[Step, ...]) -> str:
    """Return what binds where the layer is deleted and nothing else changes."""
    layer = attribution.layer_alone(run, steps)
    if alone is None or layer is None or not alone.binds:
        return ""
    bound = next(e for e in alone.endpoints if e.title == alone.binds)
    words = {Verdict3.safe: "safe", Verdict3.unsafe: "not safe"}
    answer = words.get(alone.answer, "not enough evidence")
    return (
        f"The layer deleted and **nothing else changed** (`{layer.b}`): {answer}, "
        f"{_named(bound)} {difference(bound)}, margin {_margin(bound)}."
    )


def _named(e: Endpoint) -> str:
    """Return an SLO's name, and what stands in for a percentile that has no ratio."""
    if e.kind == "ratio" or not e.title.endswith("p99"):
        return f"**{e.title}**"
    over = "" if e.target is None else f" or took over {e.target:g} {e.unit}"
    return f"**{e.title}** (share of requests that failed{over})"


def _binding(run: Run, verdict: Verdict) -> str:
    n = len(verdict.endpoints)
    arms = f"`{run.candidate}` against `{run.baseline}`"
    if not verdict.binds:
        return f"{arms}: nothing could be judged."
    bound = next(e for e in verdict.endpoints if e.title == verdict.binds)
    shown = difference(bound) if bound.difference.known else "too few samples for a difference"
    match verdict.answer:
        case Verdict3.safe:
            return (
                f"{arms}: safe: no worse on all {n} SLOs within the margins. The tightest is "
                f"{_named(bound)}: {shown}, margin {_margin(bound)}."
            )
        case Verdict3.unsafe:
            return f"{arms}: not safe: worse on {_named(bound)}: {shown}, margin {_margin(bound)}."
        case _:
            return (
                f"{arms}: not enough evidence: {_named(bound)} is open: {shown}, margin "
                f"{_margin(bound)}."
            )


def _tiles(run: Run) -> list[Tile]:
    pairs = run.of(run.baseline), run.of(run.candidate)
    n = [int(m.offered(cells).sum()) for cells in pairs]

    def share(of: Callable[[Requests], Bools]) -> list[float]:
        return [
            float(m.counts(cells, of).sum()) / total if total else math.nan
            for cells, total in zip(pairs, n, strict=True)
        ]

    attained = [1 - x for x in share(lambda c: m.misses(c, run))]
    oom = share(m.ooms)
    limit = causes.deadline_s(run)
    late = share(lambda c: causes.no_success_in_time(c, limit))
    e2e = m.METRICS["e2e_s"]
    ratio = ratio_at(run, e2e, 50.0)
    values = [nearest_rank(m.pooled(run, a, e2e), 50.0) for a in (run.baseline, run.candidate)]
    shift = change(ratio.mean) if math.isfinite(ratio.mean) else "n/a"
    lost = [math.isinf(v) for v in (*values, *m.percentiles(run, run.candidate, e2e, 50.0))]
    none = "; ∞ in some replicates" if any(lost) else ", no interval"
    limits = f"[{signed((ratio.low - 1) * 100)}, {signed((ratio.high - 1) * 100)}] %"
    return [
        Tile(
            "e2e latency, median",
            shift,
            f"{seconds(values[0])} → {seconds(values[1])}"
            + (f" {limits}" if ratio.known else none),
        ),
        Tile("SLO attainment", percent(attained[1]), f"was {percent(attained[0])}"),
        Tile("OOM rate", percent(oom[1]), f"was {percent(oom[0])}"),
        Tile(
            f"no success in {causes.deadline_s(run):g} s",
            percent(late[1]),
            f"was {percent(late[0])}",
        ),
    ]


def difference(e: Endpoint) -> str:
    """Return an endpoint's difference with its interval."""
    if e.kind == "ratio":
        return change_span(e.difference)
    return span(e.difference, "points")


def _margin(e: Endpoint) -> str:
    return f"{signed((e.margin - 1) * 100)} %" if e.kind == "ratio" else f"+{e.margin:g} points"


def _figure(e: Endpoint, figure: Figure) -> str:
    if figure.needs:
        return f"n/a (needs ≥ {figure.needs:,})"
    if math.isinf(figure.value):
        return f"∞ ({figure.failures:,} failed)"
    text = seconds(figure.value) if e.unit == "s" else f"{number(figure.value)} %"
    return f"{text} ({figure.target_met})" if figure.target_met else text


def slo_table(run: Run, verdict: Verdict) -> Table:
    """Return SLO by SLO: target, both arms, difference, margin, verdict."""
    rows = []
    for e in verdict.endpoints:
        target = "none" if e.target is None else f"≤ {e.target:g} {e.unit}"
        rows.append(
            (
                e.title,
                str(e.verdict),
                target,
                _figure(e, e.baseline),
                _figure(e, e.candidate),
                difference(e),
                _margin(e),
                p_value(e.p_holm),
            )
        )
    level = f"{100 * run.confidence:g} %"
    head = (
        "SLO", "no worse?", "target", run.baseline, run.candidate,
        f"difference [{level} interval]", "margin", "p (worse, Holm)",
    )  # fmt: skip
    caption = f"SLO by SLO, {len(run.replicates)} paired replicates"
    return Table(caption, head, rows, frozenset({0}), status=1)


def section(run: Run, verdict: Verdict, head: Banner) -> Section:
    """Return the opening section."""
    made = Section("verdict", "Verdict").add(head, slo_table(run, verdict))
    notes = sorted({e.note for e in verdict.endpoints if e.note})
    made.add(*(Paragraph(note[0].upper() + note[1:] + ".", "note") for note in notes))
    made.add(
        Paragraph(
            "Safe: every interval stays below its margin (each endpoint at full level; all must "
            "pass). Unsafe: an interval lies beyond its margin and survives Holm's correction. "
            "Met and missed say whether a target holds at all, which is another question than "
            "whether the candidate is worse.",
            "note",
        ),
        Paragraph(
            "TTFT: time to first token. TPOT: time per output token after the first. e2e: from "
            "planned arrival to last token. OOM: died of CUDA out-of-memory. p99: 99 % of requests "
            "are faster. Points: percentage points. [low, high]: "
            f"{100 * run.confidence:g} % interval over paired replicates. All formulas: "
            "Definitions, below.",
            "note",
        ),
    )
    return made


def subtitle(run: Run) -> str:
    """Return what was compared, on what, and whether the model is calibrated."""
    trace = run.manifest.get("trace") or {}
    total = sum(len(c) for c in run.of(run.baseline))
    world = "live" if run.world == "live" else "simulated"
    calibrated = run.manifest.get("calibration")
    state = f"calibrated: {calibrated}" if calibrated else "uncalibrated against a live run"
    if run.world == "live":
        state = "measured on devices"
    source = trace.get("name") or (run.scenario.get("trace") or {}).get("source") or "a trace"
    return (
        f"Scenario `{run.scenario.get('name', '?')}` · trace {source} · {total:,} requests in "
        f"{len(run.replicates)} replicates, each through {len(run.arms)} arms · {world}, {state}"
    )
