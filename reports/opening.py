"""The first screen: the verdict, what binds it, four figures, and SLO by SLO both arms."""

import math
from collections.abc import Callable
from typing import Final

from reports import attribution, causes, latency, segments
from reports import metrics as m
from reports.attribution import Step
from reports.compare import ratio_at
from reports.document import Banner, Paragraph, Section, Table, Tile
from reports.factorial import Effects
from reports.intervals import Verdict3, nearest_rank
from reports.numbers import change, change_span, number, p_value, percent, seconds, signed, span
from reports.pressure import arm_config, section_of
from reports.segments import Segment
from reports.slo import Endpoint, Figure
from reports.tables import Bools, Requests, Run
from reports.verdict import Verdict

_ANSWER: Final = {Verdict3.safe: "safe", Verdict3.unsafe: "unsafe", Verdict3.unsure: "unsure"}

_NEW: Final = {
    "placement": "placement",
    "kernels": "kernels",
    "memory": "memory management",
    "fleet": "hardware",
    "telemetry": "telemetry",
}


def headline(run: Run, verdict: Verdict) -> str:
    """Return the verdict as one sentence a director can act on; it names all that changes."""
    kinds = [
        section_of(arm_config(run, a), "door").get("kind") for a in (run.baseline, run.candidate)
    ]
    act = f"Replacing {run.baseline} by {run.candidate}"
    if kinds == ["legacy", "direct"]:
        others = attribution.switches_between(run, run.baseline, run.candidate)[1:]
        named = [_NEW[s] for s in others]
        listed = " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]]))
        act = "Deleting the routing layer" + (f", with new {listed}," if named else "")
    match verdict.answer:
        case Verdict3.safe:
            return f"{act} is safe on this evidence."
        case Verdict3.unsafe:
            return f"{act} is not safe on this evidence."
        case _:
            return f"{act}: not enough evidence either way."


def banner(
    run: Run,
    verdict: Verdict,
    delays: latency.Latency,
    slices: tuple[Segment, ...],
    steps: tuple[Step, ...],
    cells: tuple[Effects, ...],
) -> Banner:
    """Return the verdict block."""
    told = [_binding(run, verdict)]
    if verdict.targets:
        told.append(f"Targets: {verdict.targets}.")
    told.append(latency.slower(run, delays))
    told.append(attribution.sentence(run, steps, cells))
    told.append(segments.sentence(slices))
    if verdict.more:
        told.append(f"What would decide: {verdict.more}.")
    told += [f"**Invalid as it stands**: {flag}." for flag in verdict.flags]
    return Banner(
        _ANSWER[verdict.answer], headline(run, verdict), [t for t in told if t], _tiles(run)
    )


def _binding(run: Run, verdict: Verdict) -> str:
    n = len(verdict.endpoints)
    arms = f"`{run.candidate}` against `{run.baseline}`"
    if not verdict.binds:
        return f"{arms}: nothing could be judged."
    bound = next(e for e in verdict.endpoints if e.title == verdict.binds)
    shown = difference(bound)
    match verdict.answer:
        case Verdict3.safe:
            return (
                f"{arms}: no worse on all {n} endpoints within the margins. The tightest is "
                f"**{bound.title}**: {shown}, margin {_margin(bound)}."
            )
        case Verdict3.unsafe:
            return f"{arms}: worse on **{bound.title}**: {shown}, margin {_margin(bound)}."
        case _:
            return f"{arms}: **{bound.title}** is open: {shown}, margin {_margin(bound)}."


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
        )
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
