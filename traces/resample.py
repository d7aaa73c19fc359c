"""Replicates of a recorded trace: blocks of time drawn with replacement, order inside kept."""

from dataclasses import replace

import numpy as np

from dispatch import keyed
from dispatch.errors import InputError
from traces.trace import Trace


def blocks(trace: Trace, block_s: float, seed: int, replicate: int) -> Trace:
    """Return block-resampled replicate number *replicate*; 0 is the trace itself.

    The span is cut into blocks of *block_s*. A position of the day is filled by a block drawn from
    its neighbourhood: itself or one of the two on either side, each equally likely, so that slow
    drift over the day stays and what varies is what varied between near moments (a local block
    bootstrap: Paparoditis and Politis, 2002). Burstiness inside a block is kept as recorded. The
    last block may be shorter; it takes the part of the drawn block that fits. Keyed by
    (seed, replicate), so that every arm sees the same replicate.
    """
    if not block_s > 0:
        raise InputError.at("block_s", f"is {block_s}", "give a positive time in seconds")
    if replicate == 0 or len(trace) < 2:
        return trace
    count = int(trace.arrival_s[-1] // block_s) + 1
    last_s = float(trace.arrival_s[-1]) - (count - 1) * block_s
    draws = keyed.generator(seed, f"block resampling {replicate}").random(count)
    reach = 2
    low = np.maximum(np.arange(count) - reach, 0)
    high = np.minimum(np.arange(count) + reach, count - 1)
    # A short last block stays where it is: elsewhere it would leave a hole.
    if count > 1:
        high = np.minimum(high, count - 2)
        low = np.minimum(low, high)
    picks = low + np.floor(draws * (high - low + 1)).astype(np.int64)
    edges = np.searchsorted(trace.arrival_s, np.arange(count + 1) * block_s, side="left")
    sizes = edges[picks + 1] - edges[picks]
    starts = np.cumsum(sizes) - sizes
    rows = np.arange(int(sizes.sum())) + np.repeat(edges[picks] - starts, sizes)
    place = np.repeat(np.arange(count), sizes)
    inside = trace.arrival_s[rows] - np.repeat(picks * block_s, sizes)
    keep = (place < count - 1) | (inside <= last_s)
    arrival = np.maximum(place * block_s + inside, 0.0)[keep]
    session = trace.session
    taken = trace.take(rows[keep].astype(np.int64), np.maximum.accumulate(arrival))
    if session is not None and taken.session is not None:
        # A block that stands twice is two groups of users, not one that speaks twice.
        twice = _repeat_of(picks)[place[keep]]
        taken = replace(
            taken,
            session=np.where(
                taken.session >= 0, taken.session + twice * (np.int64(1) << 40), taken.session
            ),
        )
    return taken


def _repeat_of(
    picks: "np.ndarray[tuple[int], np.dtype[np.int64]]",
) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return for each pick how often that block stood before."""
    seen: dict[int, int] = {}
    times = np.empty(len(picks), np.int64)
    for i, pick in enumerate(picks.tolist()):
        times[i] = seen.get(pick, 0)
        seen[pick] = times[i] + 1
    return times
