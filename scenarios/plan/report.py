"""A plan in words and pictures: one sentence first, then what stands behind it."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reports import draw
from reports.document import Banner, Block, Document, Paragraph, Plot, Section, Table, Tile
from reports.numbers import number
from scenarios.plan.answer import Answer, pareto
from scenarios.plan.search import Tried
from scenarios.plan.words import beside, chance, goal, sentence, verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def document(answers: Sequence[Answer]) -> Document:
    """Return the report of a plan over one or more arms."""
    scenario = answers[0].search.scenario
    top = Section("plan", "The answer")
    top.add(_banner(answers), _summary(answers))
    sections = [top, *(_arm(found) for found in answers)]
    title = f"Plan: {scenario.title or scenario.name}"
    return Document(title, f"SLOs by offered requests: {goal(scenario)}", sections)


def _banner(answers: Sequence[Answer]) -> Banner:
    feasible = [found for found in answers if found.best is not None]
    if not feasible:
        return Banner("unsafe", "No arm holds the SLOs.", [sentence(f) for f in answers], [])
    cheapest = min(feasible, key=_price)
    tiles = [
        Tile(
            found.arm,
            f"{number(_price(found), 4)} $/h" if found.best else "none",
            found.search.kinds.text(found.best.counts) if found.best else "no fleet holds",
        )
        for found in answers
    ]
    others = [sentence(found) for found in answers if found is not cheapest]
    return Banner("safe", sentence(cheapest), others, tiles)


def _price(found: Answer) -> float:
    return found.search.kinds.cost(found.best.counts) if found.best else math.inf


def _summary(answers: Sequence[Answer]) -> Table:
    rows = []
    for found in answers:
        for what, tried in (
            ("smallest in the scenario's mix", found.fleet),
            ("cheapest mix", found.mix.found),
        ):
            if tried is not None:
                rows.append(_fleet_row(found, what, tried))
        for what, tried in (
            ("one fewer in the scenario's mix", found.mix_below),
            ("one fewer than the cheapest", found.below),
            ("one more than the cheapest", found.above),
            ("the largest tried", found.largest),
        ):
            if tried is not None and (what[-3:] != "mix" or found.fleet is not found.best):
                why = verdict(found, tried)
                rows.append(_fleet_row(found, f"{what}: {why}", tried))
    head = ("arm", "what", "fleet", "$/h", "$ per 1M output tokens", "holds in replicates")
    return Table("Fleets", head, rows, frozenset({0, 1, 2}))


def _fleet_row(found: Answer, what: str, tried: Tried) -> tuple[str, ...]:
    """Return arm, what, fleet, prices, and how surely the SLOs hold."""
    kinds = found.search.kinds
    return (
        found.arm,
        what,
        kinds.text(tried.counts),
        number(kinds.cost(tried.counts), 4),
        number(found.usd_per_million_tokens(tried)),
        chance(tried),
    )


def _arm(found: Answer) -> Section:
    section = Section(f"arm-{found.arm}", f"Arm {found.arm}")
    section.add(Paragraph(sentence(found), "lead"), *_notes(found))
    if found.around.n_minus_1:
        section.add(_failures(found))
    front = pareto(found.search)
    if len(front) > 1:
        section.add(_pareto_plot(found))
    if found.around.tornado:
        section.add(_tornado_plot(found), _tornado_table(found))
    return section


def _notes(found: Answer) -> list[Block]:
    notes: list[Block] = [Paragraph(text) for text in beside(found)]
    if found.mix.tried:
        cut = ", where the search was cut off" if found.mix.cut else ""
        notes.append(Paragraph(f"{found.mix.tried} mixes of kinds were run{cut}.", "note"))
    notes.append(Paragraph(found.trust, "note"))
    return notes


def _failures(found: Answer) -> Table:
    rows = []
    for name, tried in found.around.n_minus_1.items():
        rows.append((f"one {name} fewer", chance(tried), verdict(found, tried)))
    return Table("N−1", ("lost", "holds in replicates", "what breaks"), rows, frozenset({0, 2}))


def _pareto_plot(found: Answer) -> Plot:
    front = pareto(found.search)
    kinds = found.search.kinds
    every = [
        (kinds.cost(tried.counts), tried.figures[0].get("ttft_p99_s", math.nan))
        for tried in found.search.scouted.values()
        if tried.figures[0]
    ]
    every = [(x, y) for x, y in every if math.isfinite(y)]

    def paint(axes: "Axes") -> None:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        axes.scatter([x for x, _ in every], [y for _, y in every], s=12, color=draw.SOFT)
        axes.plot([p[0] for p in front], [p[1] for p in front], color=draw.SERIES[1], marker="o",
                  ms=4, drawstyle="steps-post")  # fmt: skip
        limit = found.search.scenario.slo.ttft_p99_s
        if limit is not None:
            axes.axhline(limit, color=draw.BAD, lw=1, ls="--")
            axes.annotate("SLO", (axes.get_xlim()[1], limit), ha="right", va="bottom")
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("$/h")
        axes.set_ylabel("TTFT p99, s")

    reading = "; ".join(f"{number(c, 4)} $/h: {number(v)} s ({kinds.text(f)})" for c, v, f in front)
    return Plot(f"pareto-{found.arm}", "Cost against TTFT p99, fleets tried", reading, paint)


def _tornado_rows(found: Answer) -> list[tuple[str, float, float, float]]:
    base = _value(found.around.tornado_base) if found.around.tornado_base else math.nan
    return [
        (title, _value(low), base, _value(high))
        for title, (low, high) in found.around.tornado.items()
    ]


def _value(tried: Tried) -> float:
    return tried.figures[0].get("ttft_p99_s", math.nan)


def _tornado_plot(found: Answer) -> Plot:
    rows = _tornado_rows(found)

    def paint(axes: "Axes") -> None:
        finite = [v for _, low, base, high in rows for v in (low, base, high) if math.isfinite(v)]
        most = 1.5 * max(finite) if finite else 1.0
        for at, (_, low, base, high) in enumerate(rows):
            for value, colour in ((low, draw.SERIES[1]), (high, draw.SERIES[0])):
                end = min(value, most) if not math.isnan(value) else base
                axes.barh(at, end - base, left=base, color=colour, height=0.55)
        axes.set_yticks(range(len(rows)), [title for title, *_ in rows])
        axes.set_xlabel("TTFT p99, s (blue: −20 %, orange: +20 %)")

    reading = "; ".join(
        f"{title}: {number(low)} to {number(high)} s, base {number(base)}"
        for title, low, base, high in rows
    )
    return Plot(
        f"tornado-{found.arm}", "Sensitivity of TTFT p99", reading, paint, height_in=2.2,
        left_in=1.15,
    )  # fmt: skip


def _tornado_table(found: Answer) -> Table:
    rows = []
    for title, (low, high) in found.around.tornado.items():
        rows.append(
            (
                title,
                number(_value(low)),
                "holds" if low.feasible else "breaks",
                number(_value(high)),
                "holds" if high.feasible else "breaks",
            )
        )
    head = ("input", "TTFT p99 at −20 %, s", "SLOs", "TTFT p99 at +20 %, s", "SLOs")
    return Table("Sensitivity", head, rows, frozenset({0, 2, 4}))
