"""The factorial in words and pictures: the waterfall from the old world to the new."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reports import draw
from reports.document import Paragraph, Plot, Section, Table
from reports.factorial import Effects, effects
from reports.numbers import number, p_value, signed, span
from reports.tables import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def designs(run: Run) -> tuple[Effects, ...]:
    """Return the effects of every design that the manifest carries, the one as written first.

    ``factorial`` is the design on SLO attainment; ``factorial_variants`` holds it again with
    another new side of one switch (a fleet at equal cost instead of equal count); mean e2e is
    added where every cell is stable, since an unstable queue has no latency to speak of.
    """
    table: Mapping[str, Any] = run.manifest.get("factorial") or {}
    if not table:
        return ()
    found = [_design(table, run.confidence, "")]
    latencies = [c.get("e2e_mean_s") for c in table["cells"]]
    if all(c.get("stable") for c in table["cells"]) and None not in latencies:
        cells = [{**c, "value": c["e2e_mean_s"]} for c in table["cells"]]
        about = {"metric": "mean e2e of finished requests", "unit": "s", "larger_is_better": False}
        found.append(_design({**table, **about, "cells": cells}, run.confidence, "on latency"))
    for name, other in sorted((run.manifest.get("factorial_variants") or {}).items()):
        found.append(_design(other, run.confidence, f"with {name.replace('=', ' at ')}"))
    return tuple(found)


def _design(table: Mapping[str, Any], confidence: float, heading: str) -> Effects:
    made = effects(
        table["switches"],
        table["cells"],
        metric=str(table.get("metric", "SLO attainment")),
        unit=str(table.get("unit", "points")),
        larger_is_better=bool(table.get("larger_is_better", True)),
        confidence=confidence,
    )
    unstable = sum(not c.get("stable", True) for c in table["cells"])
    told = list(made.flagged)
    still = [s for s, e in zip(made.switches, made.effects, strict=True) if e.known and not e.sd]
    if still:
        told.append(
            f"{', '.join(still)}: alike in every replicate, so no request's SLO hung on it here. "
            "That is no proof of no effect: the interval has no width for want of events."
        )
    ran = table.get("ran")
    if ran and ran < made.cells:
        told.append(
            f"{ran} of the {made.cells} combinations were run; the others are alike to one of them "
            "(kernels that fell back; telemetry that static weights do not read)."
        )
    if unstable:
        told.append(
            f"{unstable} of {len(table['cells'])} cells and replicates leave over 1 % of their "
            "requests unfinished: latency is not compared there."
        )
    told += [f"A combination that failed and is left out: {f}" for f in table.get("failures") or ()]
    titles = table.get("titles") or {}
    return replace(made, flagged=tuple(told), titles=titles, heading=heading)


def sentence(data: Effects) -> str:
    """Say how much of the whole change each part did, the layer first."""
    whole = span(data.total, data.unit)
    first = next((i for i, s in enumerate(data.switches) if s == "layer"), 0)
    rest = sorted(
        (i for i in range(len(data.switches)) if i != first),
        key=lambda i: -abs(data.effects[i].mean),
    )[:2]
    others = " and ".join(f"{signed(data.effects[i].mean)} from {data.switches[i]}" for i in rest)
    return (
        f"Of the **{whole}** in {data.metric}, **{span(data.effects[first])}** came from "
        f"{'deleting the layer' if data.switches[first] == 'layer' else data.switches[first]}"
        + (f"; {others}." if others else ".")
    )


def add_to(section: Section, data: Effects, number_of: int = 0) -> None:
    """Append the factorial's paragraph, waterfall and tables to *section*."""
    design = (
        f"the full design of {data.cells} cells"
        if data.orders == data.all_orders
        else f"a restricted design: {data.cells} of {1 << len(data.switches)} cells, so the "
        f"{data.orders} of {data.all_orders} orders that they complete"
    )
    if number_of:
        section.add(Paragraph(f"The same design {data.heading}: {sentence(data)}", "lead"))
    section.add(
        Paragraph(
            f"Shapley values over {design}, {data.total.n} replicates. They share out joint gains "
            "evenly, add up to the whole change, and do not hang on the order of the switches."
        ),
        waterfall(data, number_of),
    )
    rows = [
        (data.title(s), span(e, data.unit), p_value(p))
        for s, e, p in zip(data.switches, data.effects, data.p_holm, strict=True)
    ]
    rows.append(("whole change", span(data.total, data.unit), ""))
    section.add(Table("Effect of each switch", ("Switch", "effect [interval]", "p (Holm)"), rows))
    if data.interactions:
        pairs = sorted(data.interactions.items(), key=lambda p: -abs(p[1].mean))
        table = [(f"{a} × {b}", span(i, data.unit)) for (a, b), i in pairs]
        head = ("Pair", "interaction [interval]")
        section.add(Table("Pairwise Shapley interactions", head, table, folded=True))
    for flag in data.flagged:
        section.add(Paragraph(flag, "note"))


def waterfall(data: Effects, number_of: int = 0) -> Plot:
    """Return the waterfall from the old world to the new.

    Losses come first, then gains: so no level on the way passes the end (a share of 100 %).
    """
    sign = 1 if data.larger_is_better else -1
    order = sorted(range(len(data.switches)), key=lambda i: sign * data.effects[i].mean)

    def paint(axes: "Axes") -> None:
        names = ["all old", *(data.switches[i] for i in order), "all new"]
        level = data.old.mean
        for x, total in ((0, data.old.mean), (len(order) + 1, data.new.mean)):
            axes.plot([x - 0.3, x + 0.3], [total, total], color=draw.INK, lw=3)
            axes.annotate(
                number(total, 4), (x, total), xytext=(0, 6), textcoords="offset points",
                ha="center", fontsize=8.5, fontweight="bold",
            )  # fmt: skip
        axes.plot([0.3, 0.7], [level] * 2, color=draw.SOFT, lw=0.6)
        for x, i in enumerate(order, start=1):
            e = data.effects[i]
            good = (e.mean > 0) == data.larger_is_better
            axes.bar(x, e.mean, bottom=level, color=draw.GOOD if good else draw.BAD, width=0.6)
            if e.known:
                axes.plot([x, x], [level + e.low, level + e.high], color=draw.INK, lw=1.1)
            top = max(level, level + e.mean, level + (e.high if e.known else e.mean))
            axes.annotate(
                signed(e.mean), (x, top), xytext=(0, 4), textcoords="offset points",
                ha="center", fontsize=8.5,
            )  # fmt: skip
            axes.plot([x + 0.3, x + 0.7], [level + e.mean] * 2, color=draw.SOFT, lw=0.6)
            level += e.mean
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel(f"{data.metric}, {data.unit}")
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.18)

    return Plot(
        f"waterfall-{number_of}",
        f"From the old world to the new, part by part {data.heading}".strip(),
        f"{data.metric} with every switch old, what each switch adds (Shapley value, line: "
        "interval), and with every switch new; losses first, then gains. Levels on the way are "
        "sums of effects, and no state of any fleet. The axis does not start at zero.",
        paint,
        wide=True,
    )
