"""What was asked of the fleet: arrivals over time and lengths, from the journal itself."""

from typing import TYPE_CHECKING, Final

import numpy as np

from reports import draw
from reports.document import Plot
from reports.numbers import number
from reports.tables import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS: Final = 120


def plots(run: Run) -> list[Plot]:
    """Return the arrival rate over time and the distribution of lengths, first replicate."""
    return [_rate(run), _lengths(run)]


def _rate(run: Run) -> Plot:
    arrival = run.cells[run.baseline, run.replicates[0]]["arrival_s"]
    edges = np.linspace(0.0, max(float(arrival[-1]), 1e-9), BINS + 1)
    counts, _ = np.histogram(arrival, edges)
    step = edges[1]

    def paint(axes: "Axes") -> None:
        axes.stairs(counts / step, edges / 60, color=draw.SERIES[1], fill=True, alpha=0.25)
        axes.stairs(counts / step, edges / 60, color=draw.SERIES[1], lw=1.0)
        axes.set_xlabel("time, min")
        axes.set_ylabel("arrivals, requests/s")
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, float(edges[-1]) / 60)

    return Plot(
        "rate",
        "Arrivals over time",
        f"Replicate {run.replicates[0]}, means over {number(step)} s. Every arm was offered these "
        "same requests.",
        paint,
    )


def _lengths(run: Run) -> Plot:
    cell = run.cells[run.baseline, run.replicates[0]]
    answered = [run.cells[a, run.replicates[0]] for a in run.arms]
    output = np.concatenate([c["output_tokens"][c.finished] for c in answered])
    sets = [("prompt", cell["prompt_tokens"]), ("output (finished requests)", output)]
    shares = np.linspace(0.002, 0.998, 160)
    curves = [(name, np.quantile(x, shares, method="inverted_cdf")) for name, x in sets if len(x)]

    def paint(axes: "Axes") -> None:
        from matplotlib.ticker import FuncFormatter

        for k, (name, x) in enumerate(curves):
            axes.plot(
                np.maximum(x, 1), shares * 100, color=draw.SERIES[k + 1], ls=draw.DASHES[k],
                label=name,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
        axes.set_xlabel("tokens (log scale)")
        axes.set_ylabel("requests with at most x, %")
        axes.set_ylim(0, 100)
        axes.legend(loc="upper left")

    return Plot(
        "lengths",
        "Lengths of prompts and answers",
        "Empirical distributions. An answer's length is known only where a request finished.",
        paint,
    )
