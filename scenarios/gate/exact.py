"""Tier 0: fixed scenarios simulated, compared exactly with what is checked in.

The baseline keeps, for each arm, a few metrics, the digest of the decision sequence, and the
placements themselves (compressed, about a byte a request), so that a difference can be told in
words. Integers must be equal; figures may differ by 1e-9, the last bits of another CPU family.
"""

import base64
import hashlib
import json
import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dispatch.errors import InputError
from dispatch.journal import Journal
from dispatch.outcomes import Outcome
from reports.gate.verdict import Check, Verdict
from scenarios.schema import Scenario

SCHEMA = 1
TOLERANCE = 1e-9
Case = dict[str, Any]
COUNTERS = "counters"
"""The case of tier 1 in the same file."""
ACCEPT = "zerolayer gate --accept"
_FIELDS = {"metrics", "digest", "placements", "requests"}
_COUNTED = {"candidates", "blocks", "policy", "python"}


class Keep:
    """A journal sink that keeps the columns it is handed, by table."""

    def __init__(self, tables: Sequence[str]) -> None:
        self._chunks: dict[str, list[Mapping[str, Any]]] = {name: [] for name in tables}

    def __call__(self, table: str, columns: Mapping[str, Any]) -> None:
        if table in self._chunks:
            self._chunks[table].append({k: np.asarray(v) for k, v in columns.items()})

    def column(self, table: str, name: str) -> NDArray[Any]:
        """Return one whole column; empty where nothing was journalled."""
        parts = [chunk[name] for chunk in self._chunks[table]]
        return np.concatenate(parts) if parts else np.empty(0)


def observe(
    scenario: Scenario, limit: int, progress: Callable[[str], None] | None = None
) -> dict[str, Case]:
    """Simulate *limit* requests of every arm's first replicate; return what is compared, by arm.

    The history is made whole and then cut, since superposing sources multiplies ``trace.limit``.
    """
    import sim
    from scenarios import arms, history

    trace = history.load(scenario)
    trace = trace.take(np.arange(min(limit, len(trace))))
    found: dict[str, Case] = {}
    for arm in scenario.arms:
        keep = Keep(("requests", "decisions"))
        journal = Journal(keep, arm.name, 0)
        sim.replay(trace, arms.setup(scenario, arm), arms.seed(scenario, 0), journal)
        journal.close()
        found[f"{scenario.name}/{arm.name}"] = summarise(keep)
        if progress:
            progress(f"{scenario.name}/{arm.name}")
    return found


def summarise(keep: Keep) -> Case:
    """Return metrics, decision digest and placements of one run."""
    decisions = np.stack(
        [keep.column("decisions", n).astype(np.int64) for n in ("request", "attempt", "device")]
    )
    request = keep.column("requests", "request").astype(np.int64)
    order = np.argsort(request, kind="stable")
    outcome = keep.column("requests", "outcome")[order]
    device = keep.column("requests", "device")[order].astype(np.int16)
    arrival = keep.column("requests", "arrival_s")[order]
    first = keep.column("requests", "first_token_s")[order]
    end = keep.column("requests", "end_s")[order]
    done = outcome == Outcome.finished
    return {
        "requests": len(request),
        "decisions": int(decisions.shape[1]),
        "digest": hashlib.sha256(np.ascontiguousarray(decisions).tobytes()).hexdigest(),
        "placements": pack(device),
        "metrics": {
            **{o.name: int((outcome == o).sum()) for o in Outcome},
            "p50 TTFT": rank((first - arrival)[done], 0.50),
            "p99 TTFT": rank((first - arrival)[done], 0.99),
            "mean e2e": float((end - arrival)[done].mean()) if done.any() else None,
            "p99 e2e": rank((end - arrival)[done], 0.99),
        },
    }


def rank(values: NDArray[np.float64], q: float) -> float | None:
    """Return the nearest-rank quantile, None where nothing finished."""
    if not len(values):
        return None
    return float(np.sort(values)[math.ceil(q * len(values)) - 1])


def pack(devices: NDArray[np.int16]) -> str:
    """Return placements as text: zlib of little-endian int16, base64."""
    return base64.b64encode(zlib.compress(devices.astype("<i2").tobytes(), 9)).decode()


def unpack(text: str) -> NDArray[np.int16]:
    """Return the placements that :func:`pack` wrote."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype="<i2")


def read_baseline(path: Path, command: str = ACCEPT) -> dict[str, Case]:
    """Return the checked-in cases; a foreign file is refused by name.

    *command* is the one that would write the file anew, for the way out.
    """
    if not path.exists():
        raise InputError.at(str(path), "no checked-in baseline", f"run `{command}` and commit it")
    try:
        data = json.loads(path.read_text())
        if data["schema"] != SCHEMA:
            raise InputError.at(
                str(path), f"schema {data['schema']}, this gate reads {SCHEMA}", f"run `{command}`"
            )
        cases: dict[str, Case] = data["cases"]
        for name, case in cases.items():
            if lacking := (_COUNTED if name == COUNTERS else _FIELDS) - case.keys():
                raise KeyError(f"{name} lacks {', '.join(sorted(lacking))}")
            if name != COUNTERS:
                unpack(case["placements"])
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error) as error:
        raise InputError.at(
            str(path), f"is no gate baseline ({error})", f"run `{command}`"
        ) from None
    return cases


def write_baseline(path: Path, cases: Mapping[str, Case]) -> None:
    """Write the cases as the new baseline, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": SCHEMA, "cases": cases}, indent=1, sort_keys=True) + "\n"
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


def compare(
    base: Mapping[str, Case], head: Mapping[str, Case], command: str = ACCEPT
) -> list[Check]:
    """Return one exact check a case, its detail in words."""
    checks = []
    for name in sorted(base.keys() | head.keys()):
        if name not in head:
            told = "is in the baseline and was not run"
        elif name not in base:
            told = f"has no baseline; run `{command}`"
        else:
            told = difference(base[name], head[name])
        verdict = Verdict.regression if told else Verdict.passed
        checks.append(Check(0, name, verdict, told or "equal"))
    return checks


def difference(base: Case, head: Case) -> str:
    """Return in words what moved between two cases; empty where nothing did."""
    moved = [
        metric_change(name, base["metrics"].get(name), value)
        for name, value in head["metrics"].items()
        if not same(base["metrics"].get(name), value)
    ]
    if lost := base["metrics"].keys() - head["metrics"].keys():
        moved.append(f"missing metric {', '.join(sorted(lost))}")
    if base["digest"] != head["digest"]:
        moved.append(placement_change(base, head))
    return ", ".join(moved)


def same(base: float | None, head: float | None) -> bool:
    """Return whether two figures are equal to 1e-9; integers and None exactly."""
    if base is None or head is None or (isinstance(base, int) and isinstance(head, int)):
        return base == head
    return math.isclose(base, head, rel_tol=TOLERANCE)


def metric_change(name: str, base: float | None, head: float | None) -> str:
    """Return one metric's move in words."""
    if isinstance(base, float) and isinstance(head, float) and base > 0:
        percent = (head / base - 1) * 100
        return f"{name} {percent:+.1f} %" if abs(percent) >= 0.05 else f"{name} {base!r} → {head!r}"
    return f"{name} {base} → {head}"


def placement_change(base: Case, head: Case) -> str:
    """Return how many placements differ and which is the first."""
    if base["requests"] != head["requests"]:
        return f"{base['requests']:,} requests became {head['requests']:,}"
    old, new = unpack(base["placements"]), unpack(head["placements"])
    differ = np.flatnonzero(old != new)
    if len(differ):
        return f"{len(differ):,} of {len(new):,} placements differ, first at request {differ[0]:,}"
    return "the same last placements by another sequence of decisions"
