"""What a trace is like, in figures; percentiles interpolate linearly as published tables do."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from traces.trace import CACHED, FAILED, OUTPUT_ESTIMATED, PROMPT_ESTIMATED, Trace

_BITS: Final = {"prompt_tokens": PROMPT_ESTIMATED, "output_tokens": OUTPUT_ESTIMATED}


def describe(trace: Trace) -> dict[str, Any]:
    """Return rows, span, rate, burstiness and token quantiles of *trace*.

    ``rate_per_s`` = requests / span. ``cv`` = standard deviation / mean of the inter-arrival times.
    ``dispersion_1s`` and ``_10s`` = variance / mean of the arrivals per window. Lengths that were
    estimated do not count in ``prompt_tokens`` and ``output_tokens``; ``known`` says how many did.
    ``estimated`` has the same figures of those that were. What the source does not hold is None.
    """
    unknown = trace.source.get("unknown", ())
    timed = "arrival_s" not in unknown and trace.span_s > 0
    status = trace.status if trace.status is not None else np.zeros(len(trace), np.int8)
    about: dict[str, Any] = {
        "name": trace.name,
        "format": trace.format,
        "requests": len(trace),
        "span_s": trace.span_s if "arrival_s" not in unknown else None,
        "rate_per_s": len(trace) / trace.span_s if timed else None,
        "cv": _cv(trace) if timed else None,
        "dispersion_1s": dispersion(trace, 1.0) if timed else None,
        "dispersion_10s": dispersion(trace, 10.0) if timed else None,
        "prompt_tokens": _lengths(trace, trace.prompt_tokens, PROMPT_ESTIMATED),
        "output_tokens": _lengths(trace, trace.output_tokens, OUTPUT_ESTIMATED),
        "estimated": {
            name: found
            for name, bit in _BITS.items()
            if name not in unknown and (found := _estimated(trace, getattr(trace, name), bit))
        },
        "failed": int(np.count_nonzero(status == FAILED)),
        "cached": int(np.count_nonzero(status == CACHED)),
        "models": [name for i, name in enumerate(trace.names) if _used(trace, i)],
        "sessions": _sessions(trace),
        "block_tokens": trace.block_tokens or None,
        "quirks": [{"code": q.code, "text": q.text, "rows": q.rows} for q in trace.quirks],
        "cannot_tell": list(trace.cannot_tell),
        "sha256": trace.sha256,
    }
    for key in ("detected", "made_from", "recorded", "skipped_rows", "skipped_file"):
        if key in trace.source:
            about[key] = trace.source[key]
    return about


def _used(trace: Trace, index: int) -> bool:
    return trace.model is not None and bool(np.any(trace.model == index))


def _sessions(trace: Trace) -> int | None:
    if trace.session is None:
        return None
    return len(np.unique(trace.session[trace.session >= 0]))


def _cv(trace: Trace) -> float | None:
    gaps = np.diff(trace.arrival_s)
    return float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else None


def dispersion(trace: Trace, window_s: float) -> float | None:
    """Return variance / mean of arrivals per window; None with fewer than two windows.

    Windows are cut at multiples of *window_s* from the first arrival on; the last, which the trace
    may end in, counts too.
    """
    index = np.floor((trace.arrival_s - trace.arrival_s[0]) / window_s).astype(np.int64)
    windows = int(index[-1]) + 1
    if windows < 2:
        return None
    # Only windows with arrivals are counted one by one: a long quiet trace costs no memory.
    counts = np.unique(index, return_counts=True)[1].astype(np.float64)
    mean = len(trace) / windows
    return float((np.square(counts).sum() / windows - mean * mean) / mean)


def quantiles(values: NDArray[Any]) -> dict[str, float]:
    """Return mean, p50, p90, p99 and max of *values*."""
    p50, p90, p99 = np.percentile(values, [50, 90, 99])
    return {
        "mean": float(values.mean()),
        "p50": float(p50),
        "p90": float(p90),
        "p99": float(p99),
        "max": float(values.max()),
    }


def _lengths(trace: Trace, values: NDArray[np.int32], bit: int) -> dict[str, Any] | None:
    known = values
    if trace.estimated is not None:
        known = values[(trace.estimated & bit) == 0]
    if not len(known):
        return None
    return {**quantiles(known), "known": len(known)}


def _estimated(trace: Trace, values: NDArray[np.int32], bit: int) -> dict[str, Any] | None:
    if trace.estimated is None or not (trace.estimated & bit).any():
        return None
    guessed = values[(trace.estimated & bit) != 0]
    return {**quantiles(guessed), "rows": len(guessed)}
