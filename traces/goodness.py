"""How well a model reproduces a trace: distances, and a picture of both."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.describe import describe
from traces.trace import OUTPUT_ESTIMATED, PROMPT_ESTIMATED, Trace

INK: Final = {"trace": "#1f4e79", "model": "#d95f02"}


@dataclass(frozen=True, slots=True)
class Goodness:
    """Kolmogorov-Smirnov distances (largest gap between two ECDFs, 0 to 1) and figures of both.

    ``ks_threshold`` is what two samples of one distribution exceed once in a hundred times, were
    their values independent: 1.63 * sqrt(1/n + 1/m).
    """

    ks_gaps: float
    ks_prompt: float
    ks_output: float
    ks_threshold: float
    trace: dict[str, Any]
    model: dict[str, Any]


def compare(trace: Trace, made: Trace) -> Goodness:
    """Return how far *made* is from *trace*."""
    n, m = len(trace), len(made)
    keys = ("requests", "rate_per_s", "cv", "dispersion_1s", "dispersion_10s")
    lengths = ("prompt_tokens", "output_tokens")
    about = [{k: d[k] for k in (*keys, *lengths)} for d in (describe(trace), describe(made))]
    return Goodness(
        ks_gaps=ks(np.diff(trace.arrival_s), np.diff(made.arrival_s)),
        ks_prompt=ks(_known(trace, "prompt", PROMPT_ESTIMATED), made.prompt_tokens),
        ks_output=ks(_known(trace, "output", OUTPUT_ESTIMATED), made.output_tokens),
        ks_threshold=float(1.63 * np.sqrt(1 / n + 1 / m)),
        trace=about[0],
        model=about[1],
    )


def _known(trace: Trace, name: str, bit: int) -> NDArray[Any]:
    values: NDArray[Any] = getattr(trace, f"{name}_tokens")
    if trace.estimated is None:
        return values
    known = values[(trace.estimated & bit) == 0]
    return known if len(known) else values


def ks(one: NDArray[Any], other: NDArray[Any]) -> float:
    """Return the largest gap between the ECDFs of two samples."""
    if not len(one) or not len(other):
        return 1.0
    points = np.concatenate([one, other])
    left = np.searchsorted(np.sort(one), points, side="right") / len(one)
    right = np.searchsorted(np.sort(other), points, side="right") / len(other)
    return float(np.abs(left - right).max())


def picture(trace: Trace, made: Trace, found: Goodness, target: Path) -> None:
    """Draw rate over time, gaps and lengths of both to *target* (.png, .svg or .pdf)."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "zerolayer"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    _rate(axes[0, 0], trace, made)
    _ecdf(axes[0, 1], np.diff(trace.arrival_s), np.diff(made.arrival_s))
    axes[0, 1].set(xlabel="time between arrivals (s)", xscale="log")
    axes[0, 1].set_title(f"gaps, KS distance {found.ks_gaps:.3f}", fontsize=10)
    for axis, name, distance in (
        (axes[1, 0], "prompt", found.ks_prompt),
        (axes[1, 1], "output", found.ks_output),
    ):
        column = f"{name}_tokens"
        _ecdf(axis, getattr(trace, column), getattr(made, column))
        axis.set(xlabel=f"{name} length (tokens)", xscale="log")
        axis.set_title(f"{name} length, KS distance {distance:.3f}", fontsize=10)
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"{trace.name}: trace and fitted model", fontsize=11)
    figure.savefig(target, metadata=_undated(target), dpi=120)
    pyplot.close(figure)


def _undated(target: Path) -> dict[str, Any]:
    return {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(target.suffix.lower(), {})


def _rate(axis: Any, trace: Trace, made: Trace) -> None:
    width = max(trace.span_s / 60, 1e-9)
    for which, one in (("trace", trace), ("model", made)):
        counts = np.bincount((one.arrival_s / width).astype(np.int64))
        # The last window is cut short by the end of the trace.
        rate = counts[:-1] / width if len(counts) > 1 else counts / width
        line = "-" if which == "trace" else "--"
        axis.step(
            np.arange(len(rate)) * width, rate, line, where="post", color=INK[which], label=which
        )
    axis.set(xlabel="time (s)", ylabel="requests/s", ylim=(0, None))
    axis.set_title(f"rate in windows of {width:.3g} s", fontsize=10)


def _ecdf(axis: Any, one: NDArray[Any], other: NDArray[Any]) -> None:
    for which, values in (("trace", one), ("model", other)):
        ordered = np.sort(values[values > 0])
        if len(ordered) > 2000:  # what a picture can show
            ordered = ordered[np.linspace(0, len(ordered) - 1, 2000).astype(np.int64)]
        share = np.arange(1, len(ordered) + 1) / max(len(ordered), 1)
        axis.plot(ordered, share, color=INK[which], lw=1.4, ls="-" if which == "trace" else "--")
    axis.set(ylabel="share at or below", ylim=(0, 1))
