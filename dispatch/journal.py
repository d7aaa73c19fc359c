"""The columnar record of a run: every decision, every outcome, and the device series.

Three tables. A run appends rows; full chunks of columns go to a sink that is handed in, so that
this module needs neither pandas nor Parquet. ``arm`` and ``replicate`` are columns of every table.
Times are seconds of the run's own clock; NaN says "did not happen"; device -1 says "none".
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

BEST = 5  # a decision row keeps the scores of this many best devices

REQUESTS: Final[Mapping[str, str]] = {
    "request": "int64",  # id, equal across arms of a replicate
    "source_row": "int64",  # row of the trace file, from 1
    "arrival_s": "float64",  # planned arrival (a)
    "lag_s": "float64",  # actual send - planned arrival; 0 in simulation
    "prompt_tokens": "int32",
    "output_tokens": "int32",  # tokens produced by the attempt that counts
    "max_tokens": "int32",
    "model": "str",
    "session": "int64",
    "kernel_hint": "str",
    "outcome": "int8",  # Outcome
    "root_cause": "int8",  # RootCause
    "attempts": "int16",
    "oom_events": "int16",
    "preemptions": "int16",
    "device": "int32",  # of the last attempt
    "fitting_device": "int32",  # a device that would have held it when it failed, else -1
    "decision_start_s": "float64",  # d, of the first attempt
    "decision_end_s": "float64",  # e, of the last attempt
    "started_s": "float64",  # s: first kernel of the last attempt
    "first_token_s": "float64",  # f
    "end_s": "float64",  # l: last token, or the moment of failure
    "door_wait_s": "float64",  # waiting for a door worker
    "door_service_s": "float64",  # handled by the door, decision included
    "wasted_s": "float64",  # spent in attempts that were thrown away
    "cached_tokens": "int32",  # prompt tokens found in the replica's prefix cache
}

DECISIONS: Final[Mapping[str, str]] = {
    "request": "int64",
    "attempt": "int16",
    "time_s": "float64",
    "duration_s": "float64",
    "device": "int32",  # -1: none
    "reason": "int8",  # Reason
    "need_bytes": "float64",
    "seen_block_bytes": "float64",  # largest contiguous room of the chosen device, reservations off
    "seen_free_bytes": "float64",
    "seen_ring_s": "float64",
    "seen_pcie_ratio": "float64",
    "seen_age_s": "float64",  # age of the oldest signal used
    "candidates": "int32",
    **{f"best{i}_device": "int32" for i in range(BEST)},
    **{f"best{i}_score": "float64" for i in range(BEST)},
}

DEVICES: Final[Mapping[str, str]] = {
    "device": "int32",
    "time_s": "float64",  # start of the window
    "window_s": "float64",
    "busy_ratio": "float64",
    "running": "float64",  # time-mean over the window
    "waiting": "float64",
    "kv_used_bytes": "float64",
    "free_bytes": "float64",
    "largest_block_bytes": "float64",
    "fragmentation": "float64",
}

SCHEMAS: Final[Mapping[str, Mapping[str, str]]] = {
    "requests": REQUESTS,
    "decisions": DECISIONS,
    "devices": DEVICES,
}

Sink = Callable[[str, Mapping[str, Any]], None]
"""Takes a table name and a chunk of equal-length columns (lists or arrays), once per chunk."""
