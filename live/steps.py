"""What each iteration of an engine did and took: the data that a calibration is fitted to."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from live.sequence import Run

COLUMNS = ("device", "begin_s", "end_s", "sequences", "new", "pairs", "decodes", "context")


@dataclass(slots=True)
class Step:
    """One iteration: sizes as the cost model counts them (see :class:`dispatch.hardware.Roofline`).

    ``new`` prompt tokens in chunks, ``pairs`` the (query, key) pairs of those chunks, ``decodes``
    sequences that added one token, ``context`` their tokens in sum. Times: monotonic seconds.
    """

    begin_s: float
    end_s: float
    sequences: int
    new: int
    pairs: float
    decodes: int
    context: int


def sizes(runs: Sequence[Run]) -> tuple[int, int, float, int, int]:
    """Return sequences, prompt tokens, their pairs, decodes and their context of one pass."""
    chunks = [run for run in runs if run.count > 1 or run.sequence.produced == 0]
    ones = [run for run in runs if run not in chunks]
    pairs = sum(run.count * (run.past + (run.count + 1) / 2) for run in chunks)
    context = sum(run.past + 1 for run in ones)
    return len(runs), sum(run.count for run in chunks), pairs, len(ones), context


def durations(steps: Any) -> Any:
    """Return *steps* (a frame of COLUMNS) with ``took_s``: from the last end while it kept busy.

    What lies between two iterations of a busy engine (events out, jobs in) is part of the next.
    """
    parts = []
    for _, one in steps.groupby("device", sort=True):
        ordered = one.sort_values("begin_s")
        before = ordered["end_s"].shift()
        gap = ordered["begin_s"] - before
        busy = gap < 0.2 * (ordered["end_s"] - ordered["begin_s"]).median()
        start = ordered["begin_s"].where(~busy, before)
        parts.append(ordered.assign(took_s=ordered["end_s"] - start))
    import pandas as pd

    return pd.concat(parts, ignore_index=True)
