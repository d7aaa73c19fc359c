"""Parameters that reproduce a trace, and how well they do."""

from typing import Any, Final

import numpy as np

from dispatch import keyed
from traces.describe import dispersion
from traces.goodness import Goodness, compare, ks
from traces.synth import of_model
from traces.synthetic import TraceModel, checked
from traces.trace import OUTPUT_ESTIMATED, PROMPT_ESTIMATED, Trace

# Every hundredth: what lies between knots is off by less than a sample of 10,000 is.
PROBS: Final = (
    0.0, 0.001, 0.002, 0.005, *(round(0.01 * i, 2) for i in range(1, 100)),
    0.995, 0.998, 0.999, 1.0,
)  # fmt: skip
GAP_PROBS: Final = (
    0.0, 0.02, 0.05, *(round(0.1 * i, 1) for i in range(1, 10)), 0.95, 0.97, 0.98, 0.985, 0.99,
    0.9925, 0.995, 0.9965, 0.998, 0.999, 0.9995, 1.0,
)  # fmt: skip
_GAMMA_KS: Final = 0.05  # a gamma that is further from the gaps than this is no description of them
_LEAST: Final = 200  # requests a window of lengths needs for its own quantiles


def fit(trace: Trace, *, step_s: float | None = None, window_s: float | None = None) -> TraceModel:
    """Return a model of *trace*: rate by steps, gamma burstiness, lengths by quantiles a window.

    Burstiness is fitted in operational time: the CV of the gaps once the fitted rate is divided
    out, so that rate and burstiness are not counted twice.
    """
    return checked(trace.name, document(trace, step_s=step_s, window_s=window_s))


def judged(
    trace: Trace, *, step_s: float | None, window_s: float | None, seed: int
) -> tuple[dict[str, Any], Trace, Goodness]:
    """Return the model as a document, a trace that it makes under *seed*, and how like it is."""
    about = {"about": f"like {trace.name}", "source": "zerolayer trace fit"}
    model = {**about, **document(trace, step_s=step_s, window_s=window_s)}
    made = of_model(checked(trace.name, model), seed)
    return model, made, compare(trace, made)


def document(trace: Trace, *, step_s: float | None, window_s: float | None) -> dict[str, Any]:
    """Return the model as a plain document, as it is written to TOML.

    Lengths drift by windows of *window_s*: ten minutes, or a 24th of a longer trace.
    """
    span = trace.span_s
    step_s = step_s or natural_step_s(trace)
    window_s = window_s or max(600.0, span / 24)
    steps = max(1, round(span / step_s))
    width = span / steps if span else step_s
    index = np.minimum(((trace.arrival_s - trace.arrival_s[0]) / width).astype(int), steps - 1)
    counts = np.bincount(index, minlength=steps)
    rate = (len(trace) - 1) / span if span else 1.0
    profile = counts / counts.mean()
    gaps = _operational_gaps(trace, profile, width, rate)
    bits = {"prompt": PROMPT_ESTIMATED, "output": OUTPUT_ESTIMATED}
    lengths = {name: _lengths(trace, name, bit, window_s) for name, bit in bits.items()}
    return {
        "requests": len(trace),
        "arrivals": {
            **_process(gaps),
            "rate_per_s": _round(rate, 6),
            "profile_step_s": _round(width, 3),
            "profile": [_round(share, 4) for share in profile],
        },
        "correlation": _round(_correlation(trace), 3),
        **lengths,
    }


def natural_step_s(trace: Trace) -> float:
    """Return steps just long enough to know the rate of each within a tenth, 10 to 300 s.

    A step of n requests knows its rate within sqrt(IoD / n), IoD the index of dispersion.
    """
    spread = max(1.0, dispersion(trace, 10.0) or 1.0)
    return float(np.clip(100.0 * spread * trace.span_s / len(trace), 10.0, 300.0))


def _operational_gaps(trace: Trace, profile: Any, width: float, rate: float) -> Any:
    """Return the gaps between arrivals in expected counts, the fitted rate divided out."""
    knots = np.concatenate([[0.0], np.cumsum(profile * width * rate)])
    times = np.arange(len(knots)) * width
    return np.diff(np.interp(trace.arrival_s - trace.arrival_s[0], times, knots))


def _process(gaps: Any) -> dict[str, Any]:
    """Return gamma gaps of the same CV, or quantiles of the gaps where no gamma is like them."""
    if len(gaps) < 2 or not gaps.mean() > 0:
        return {"process": "poisson"}
    cv = float(min(max(gaps.std() / gaps.mean(), 0.05), 50.0))
    shape = 1.0 / cv**2
    like = keyed.generator(0, "fit gamma").gamma(shape, gaps.mean() / shape, 20_000)
    if ks(gaps, like) <= _GAMMA_KS:
        return {"process": "gamma", "cv": _round(cv, 4)}
    values = np.quantile(gaps / gaps.mean(), GAP_PROBS)
    return {
        "process": "quantiles",
        "gap_probs": list(GAP_PROBS),
        "gap_values": [_round(value, 6) for value in values],
    }


def _lengths(trace: Trace, name: str, bit: int, window_s: float) -> dict[str, Any]:
    values = getattr(trace, f"{name}_tokens").astype(np.float64)
    known = np.ones(len(trace), bool)
    if trace.estimated is not None:
        known = (trace.estimated & bit) == 0
    if not known.any():
        known[:] = True
    whole = np.quantile(values[known], PROBS)
    window = ((trace.arrival_s - trace.arrival_s[0]) // window_s).astype(int)
    rows = []
    for number in range(int(window.max()) + 1 if len(trace) else 1):
        inside = values[known & (window == number)]
        rows.append(np.quantile(inside, PROBS) if len(inside) >= _LEAST else whole)
    return {
        "kind": "quantiles",
        "window_s": window_s,
        "longest": int(values[known].max()),
        "probs": list(PROBS),
        "values": [[_round(value, 0) for value in row] for row in rows],
    }


def _correlation(trace: Trace) -> float:
    """Return the correlation of normal scores that gives the rank correlation of the lengths."""
    if len(trace) < 3:
        return 0.0
    ranks = [
        np.argsort(np.argsort(column, kind="stable"), kind="stable")
        for column in (trace.prompt_tokens, trace.output_tokens)
    ]
    spearman = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    return float(np.clip(2 * np.sin(np.pi * spearman / 6), -0.99, 0.99))


def _round(value: float, digits: int) -> float:
    return round(float(value), digits)
