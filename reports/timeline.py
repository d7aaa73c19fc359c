"""A run in the Chrome trace format, which Perfetto opens: a track per GPU slot, and counters.

Slices of one track must nest, so requests that overlap on a replica go to slots of their own.
Times are microseconds. The file is capped, and says in its own metadata what it left out.
"""

import gzip
import heapq
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from dispatch.outcomes import Outcome, RootCause
from reports.tables import Requests, Run, read_columns, read_run

MAX_REQUESTS: Final = 12_000  # per arm; four slices at most each
MAX_COUNTERS: Final = 24_000  # per arm
_COUNTERS: Final = {
    "queue": "waiting",
    "running": "running",
    "KV cache bytes": "kv_used_bytes",
    "fragmentation": "fragmentation",
}

FILE: Final = "timeline.json.gz"

Event = dict[str, Any]


def write(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write timeline.json.gz into a run folder that gets no report, the warm-up included."""
    scenario = {**(manifest.get("scenario") or {}), "warmup_s": 0.0}
    run = read_run(folder, {**manifest, "scenario": scenario})
    (folder / FILE).write_bytes(render(run))


def render(run: Run) -> bytes:
    """Return the gzipped timeline of baseline and candidate, first replicate, without a date."""
    replicate = run.replicates[0]
    events: list[Event] = []
    notes: dict[str, Any] = {"replicate": replicate, "time_unit": "us", "left_out": []}
    offset = 0
    for arm in dict.fromkeys((run.baseline, run.candidate)):
        cell = run.cells[arm, replicate]
        devices = _names(run, arm, cell)
        for device, name in devices.items():
            events.append(_meta("process_name", offset + device, 0, {"name": f"{arm} {name}"}))
            events.append(_meta("process_sort_index", offset + device, 0, {"sort_index": offset}))
        shown = _slices(cell, offset, events)
        if shown < len(cell):
            notes["left_out"].append(f"{arm}: the first {shown:,} of {len(cell):,} requests")
        _counters(run, arm, offset, events, notes)
        offset += len(devices) + 1
    whole = {"displayTimeUnit": "ms", "otherData": notes, "traceEvents": events}
    text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False)
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def _names(run: Run, arm: str, cell: Requests) -> dict[int, str]:
    table = {int(d["device"]): f"{d['name']} ({d.get('gpu', '?')})" for d in run.devices(arm)}
    for device in np.unique(cell["device"]).tolist():
        if device >= 0:
            table.setdefault(device, f"device {device}")
    return dict(sorted(table.items()))


def _meta(name: str, pid: int, tid: int, args: dict[str, Any]) -> Event:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}


def _slices(cell: Requests, offset: int, events: list[Event]) -> int:
    """Append the slices of the first requests; return how many requests were taken."""
    order = np.argsort(cell["arrival_s"], kind="stable")[:MAX_REQUESTS]
    columns = {
        c: cell[c][order].tolist()
        for c in (
            "request", "device", "outcome", "root_cause", "prompt_tokens", "output_tokens",
            "arrival_s", "decision_end_s", "started_s", "first_token_s", "end_s",
        )
    }  # fmt: skip
    rows = [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
    placed = [r for r in rows if r["device"] >= 0 and r["started_s"] == r["started_s"]]
    placed.sort(key=lambda r: (r["started_s"], r["request"]))
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[float, int]]] = {}
    used: set[tuple[int, int]] = set()
    for r in placed:
        device, start = r["device"], _us(r["started_s"])
        end = max(start, _us(r["end_s"])) if r["end_s"] == r["end_s"] else start
        spare, running = free.setdefault(device, []), busy.setdefault(device, [])
        while running and running[0][0] <= start:
            heapq.heappush(spare, heapq.heappop(running)[1])
        slot = heapq.heappop(spare) if spare else len(running) + 1
        heapq.heappush(running, (end, slot))
        pid = offset + device
        if (pid, slot) not in used:
            used.add((pid, slot))
            events.append(_meta("thread_name", pid, slot, {"name": f"slot {slot}"}))
        events.extend(_request(r, pid, slot, start, end))
    return len(rows)


def _request(r: dict[str, Any], pid: int, slot: int, start: float, end: float) -> list[Event]:
    outcome = Outcome(r["outcome"]).name
    args: dict[str, Any] = {
        "prompt_tokens": r["prompt_tokens"],
        "output_tokens": r["output_tokens"],
        "outcome": outcome,
        "arrival_s": round(r["arrival_s"], 6),
    }
    if r["root_cause"]:
        args["root_cause"] = RootCause(r["root_cause"]).name
    title = f"request {r['request']}" + ("" if outcome == "finished" else f" ({outcome})")
    made = [_slice(title, "request", pid, slot, start, end, args)]
    first = r["first_token_s"]
    if first == first and start <= _us(first) <= end:
        middle = _us(first)
        made.append(_slice("prefill", "phase", pid, slot, start, middle))
        made.append(_slice("decode", "phase", pid, slot, middle, end))
    return made


def _slice(
    name: str,
    kind: str,
    pid: int,
    tid: int,
    start: float,
    end: float,
    args: dict[str, Any] | None = None,
) -> Event:
    event: Event = {"ph": "X", "name": name, "cat": kind, "pid": pid, "tid": tid, "ts": start}
    event["dur"] = round(end - start, 3)
    return event if args is None else event | {"args": args}


def _us(time_s: float) -> float:
    return round(time_s * 1e6, 3)


def _counters(run: Run, arm: str, offset: int, events: list[Event], notes: dict[str, Any]) -> None:
    path = run.folder / "devices.parquet"
    if not path.is_file():
        return
    wanted = ["arm", "replicate", "device", "time_s", *_COUNTERS.values()]
    raw = read_columns(path, wanted)
    codes, names = raw.pop("arm")
    code = names.index(arm) if arm in names else -2
    rows = np.flatnonzero((codes == code) & (raw["replicate"] == run.replicates[0]))
    rows = rows[np.lexsort((raw["device"][rows], raw["time_s"][rows]))]
    step = max(1, -(-len(rows) * len(_COUNTERS) // MAX_COUNTERS))
    if step > 1:
        times = np.unique(raw["time_s"][rows])
        rows = rows[np.isin(raw["time_s"][rows], times[::step])]
        notes["left_out"].append(f"{arm}: counters of one in {step} windows")
    for i in rows[: MAX_COUNTERS // len(_COUNTERS)].tolist():
        for title, column in _COUNTERS.items():
            value = float(raw[column][i])
            if value == value:
                events.append(
                    {
                        "ph": "C",
                        "name": title,
                        "pid": offset + int(raw["device"][i]),
                        "tid": 0,
                        "ts": _us(float(raw["time_s"][i])),
                        "args": {"value": round(value, 6)},
                    }
                )
