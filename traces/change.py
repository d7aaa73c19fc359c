"""What is done to whole traces: cut, scale and mix. Time is never squeezed unless asked."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dispatch import keyed
from dispatch.errors import InputError
from traces.trace import MOST_REQUESTS, Trace


def slice(
    trace: Trace,
    *,
    start_s: float = 0.0,
    duration_s: float | None = None,
    limit: int | None = None,
) -> Trace:
    """Return the requests that arrive in [start, start + duration), at most *limit* of them.

    Arrivals count from *start_s*, so that quiet time at the start of the cut is kept. An
    empty cut is an empty trace.
    """
    for name, value in (("start_s", start_s), ("duration_s", duration_s), ("limit", limit)):
        if value is not None and not 0 <= value < np.inf:
            raise InputError.at(f"slice: {name}", f"is {value}", "give a number of 0 or more")
    first = int(np.searchsorted(trace.arrival_s, start_s, side="left"))
    last = len(trace)
    if duration_s is not None:
        last = int(np.searchsorted(trace.arrival_s, start_s + duration_s, side="left"))
    if limit is not None:
        last = min(last, first + limit)
    rows = np.arange(first, max(first, last), dtype=np.int64)
    return trace.take(rows, trace.arrival_s[rows] - start_s)


def scale(trace: Trace, factor: float, seed: int, *, squeeze: bool = False) -> Trace:
    """Return *trace* at *factor* times its rate.

    Below 1 each request is kept with that probability. Above 1 whole copies of the trace, each
    turned round its span by a random offset, are laid over it, and a thinned copy for the rest: the
    day keeps its shape at the scale of the span only, and burstiness falls as that of merged
    independent streams does. With *squeeze* time itself is divided by *factor* instead, which keeps
    the order and the shape but shortens every pause.
    """
    if not factor > 0 or not np.isfinite(factor):
        raise InputError.at("scale", f"factor {factor} is no positive number", "try 0.5 or 2")
    if factor == 1.0 or not len(trace):
        return trace
    if squeeze:
        return replace(trace, arrival_s=trace.arrival_s / factor)
    if factor * len(trace) > MOST_REQUESTS:
        raise InputError.at(
            "scale",
            f"factor {factor:g} makes {factor * len(trace):,.0f} requests of {trace.name}",
            f"stay below {MOST_REQUESTS:,}",
        )
    whole, part = int(factor), factor - int(factor)
    copies = [_turned(trace, seed, copy) for copy in range(whole)]
    if part > 1e-12 or not copies:
        copies.append(_thinned(_turned(trace, seed, whole), part, seed))
    return _merge(copies)


def _turned(trace: Trace, seed: int, copy: int) -> Trace:
    """Return *trace* shifted round its own span; copy 0 stays as it is."""
    if copy == 0:
        return trace
    if len(trace) < 2:
        return replace(trace, session=_apart(trace.session, copy))
    # The period adds one mean gap, so that the last arrival does not fall on the first.
    period_s = trace.span_s * len(trace) / (len(trace) - 1) or 1.0
    offset_s = keyed.uniform(keyed.stream(seed, "superposition"), copy) * period_s
    start_s = trace.arrival_s[0]
    moved = start_s + np.mod(trace.arrival_s - start_s + offset_s, period_s)
    order = np.argsort(moved, kind="stable").astype(np.int64)
    turned = trace.take(order, moved[order])
    return replace(turned, session=_apart(turned.session, copy))


def _apart(session: NDArray[np.int64] | None, copy: int) -> NDArray[np.int64] | None:
    """Return *session* ids that no other copy shares."""
    if session is None:
        return None
    return np.where(session >= 0, session + np.int64(copy) * (np.int64(1) << 40), session)


def _thinned(trace: Trace, share: float, seed: int) -> Trace:
    draws = keyed.uniforms(keyed.stream(seed, "thinning"), np.arange(len(trace), dtype=np.int64))
    return trace.take(np.flatnonzero(draws < share).astype(np.int64))


def _merge(parts: Sequence[Trace]) -> Trace:
    """Return *parts* of one trace laid over each other, in arrival order."""
    if len(parts) == 1:
        return parts[0]
    joined = parts[0].joined(parts[1:])
    order = np.argsort(joined.arrival_s, kind="stable").astype(np.int64)
    return joined.take(order)


def mix(traces: Sequence[Trace]) -> Trace:
    """Return several traces laid over each other on one clock that starts with each of them.

    Models and sessions of different traces stay apart; a column that one of them lacks is filled
    with "not given". Prefix blocks stay only where all have blocks of the same size.
    """
    if not traces:
        raise InputError.at("mix", "no traces were given", "name at least one")
    sizes = {trace.block_tokens for trace in traces}
    if len(sizes) > 1:
        traces = [replace(t, block_hashes=None, block_offsets=None, block_tokens=0) for t in traces]
    apart = [
        replace(
            trace,
            session=_apart(trace.session, number),
            block_hashes=None if trace.block_hashes is None
            else trace.block_hashes ^ (np.int64(number) << np.int64(56)),
        )
        for number, trace in enumerate(traces)
    ]  # fmt: skip
    merged = _merge(apart)
    return replace(merged, name="+".join(trace.name for trace in traces), sha256="")
