"""Two runs side by side: what was run differently, and which figures moved, with intervals."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dispatch.errors import InputError
from reports import metrics as m
from reports.intervals import Interval, nearest_rank, paired, paired_ratio, sample_floor, welch
from reports.numbers import change_span, number, percent, seconds, span
from reports.tables import Run, read_manifest, read_run

_LONGEST: Final = 200
QUANTILES: Final = (("ttft_s", 50.0), ("ttft_s", 99.0), ("e2e_s", 50.0), ("e2e_s", 99.0))


@dataclass(frozen=True, slots=True)
class Moved:
    """One figure of one arm in both runs; *kind* is ``ratio`` or ``points``."""

    arm: str
    figure: str
    a: float
    b: float
    kind: str
    change: Interval
    clear: bool
    """Whether the interval leaves out "no change"."""

    def words(self) -> tuple[str, str, str, str, str]:
        """Return the row as text."""
        show = seconds if self.kind == "ratio" else percent
        moved = change_span(self.change) if self.kind == "ratio" else span(self.change, "points")
        return (
            f"{self.arm} {self.figure}",
            show(self.a),
            show(self.b),
            moved,
            "moved" if self.clear else "no change shown",
        )

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {
            "arm": self.arm,
            "figure": self.figure,
            "a": _json(self.a),
            "b": _json(self.b),
            "kind": self.kind,
            "change": self.change.as_dict(),
            "clear": self.clear,
        }


@dataclass(frozen=True, slots=True)
class Diff:
    """Differences of two runs: settings, verdicts, figures, and whether replicates pair up."""

    settings: tuple[tuple[str, str, str], ...]
    """Key, value in a, value in b."""
    verdicts: tuple[str, str]
    moved: tuple[Moved, ...]
    is_paired: bool
    same_summary: bool
    only: tuple[str, ...]
    """Arms that one of the runs lacks."""

    def as_dict(self) -> dict[str, Any]:
        """Return JSON-able figures."""
        return {
            "settings": [dict(zip(("key", "a", "b"), s, strict=True)) for s in self.settings],
            "verdicts": list(self.verdicts),
            "figures": [f.as_dict() for f in self.moved],
            "paired": self.is_paired,
            "same_summary": self.same_summary,
            "only_in_one": list(self.only),
        }


def _json(value: float) -> float | str | None:
    return "inf" if math.isinf(value) else None if math.isnan(value) else value


def compare(a: Path, b: Path) -> Diff:
    """Return how run *b* differs from run *a*.

    Replicates pair up where both runs replayed the same trace with the same seed, resampling and
    number of replicates; else the intervals are Welch's. Raises InputError for what is no run.
    """
    manifests = read_manifest(a), read_manifest(b)
    runs = read_run(a, manifests[0]), read_run(b, manifests[1])
    pairs_up = _same_traffic(*runs)
    shared = [arm for arm in runs[0].arms if arm in runs[1].arms]
    moved = [row for arm in shared for row in _arm(runs, arm, pairs_up)]
    texts = [_summary(folder) for folder in (a, b)]
    only = tuple(sorted(set(runs[0].arms) ^ set(runs[1].arms)))
    whole = tuple(f"scenario.arms.{arm}." for arm in only)  # named once, not key by key
    return Diff(
        tuple(row for row in _settings(*manifests) if not row[0].startswith(whole)),
        (_answer(texts[0]), _answer(texts[1])),
        tuple(moved),
        pairs_up,
        bool(texts[0]) and texts[0] == texts[1],
        only,
    )


def _same_traffic(a: Run, b: Run) -> bool:
    if a.replicates != b.replicates:
        return False
    for rep in a.replicates:
        first, second = a.cells[a.arms[0], rep], b.cells[b.arms[0], rep]
        for column in ("request", "arrival_s", "prompt_tokens"):
            if not np.array_equal(first[column], second[column]):
                return False
    return True


def _arm(runs: tuple[Run, Run], arm: str, pairs_up: bool) -> Iterator[Moved]:
    level = runs[0].confidence
    for name, q in QUANTILES:
        metric = m.METRICS[name]
        x, y = (m.percentiles(run, arm, metric, q) for run in runs)
        old, new = (_pooled(run, arm, metric, q) for run in runs)
        figure = f"{metric.name.removesuffix('_s')} p{q:g}"
        change = Interval(math.nan, math.nan, math.nan, 0)
        clear = math.isinf(old) != math.isinf(new)
        if np.isfinite(x).all() and np.isfinite(y).all() and (x > 0).all() and (y > 0).all():
            change = paired_ratio(y, x, level) if pairs_up else _welch_ratio(x, y, level)
            clear = change.known and not change.low <= 1.0 <= change.high
        yield Moved(arm, figure, old, new, "ratio", change, clear)
    for figure, of in (("OOM rate", m.ooms), ("error rate", m.errors)):
        x, y = (m.counts(r.of(arm), of) / np.maximum(m.offered(r.of(arm)), 1) for r in runs)
        change = (paired(y, x, level) if pairs_up else welch(x, y, level)).scaled(100)
        clear = change.known and not change.low <= 0.0 <= change.high
        yield Moved(arm, figure, float(x.mean()), float(y.mean()), "points", change, clear)


def _welch_ratio(x: Any, y: Any, level: float) -> Interval:
    logs = welch(np.log(x), np.log(y), level)
    return Interval(math.exp(logs.mean), math.exp(logs.low), math.exp(logs.high), logs.n, logs.sd)


def _pooled(run: Run, arm: str, metric: m.Metric, q: float) -> float:
    samples = m.pooled(run, arm, metric)
    return nearest_rank(samples, q) if len(samples) >= sample_floor(q) else math.nan


def _settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    wanted = ("scenario", "trace.sha256", "trace.rows", "code.version", "code.sha256", "packages")
    first, second = (dict(_flat(x)) for x in (a, b))
    for key in sorted(first.keys() | second.keys()):
        if any(key == w or key.startswith(w + ".") for w in wanted):
            values = first.get(key, "absent"), second.get(key, "absent")
            if values[0] != values[1]:
                yield key, *values


def _flat(node: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            name = value.get("name", i) if isinstance(value, Mapping) else i
            yield from _flat(value, f"{prefix}.{name}")
    else:
        text = number(node, 6) if isinstance(node, float) and math.isfinite(node) else str(node)
        if len(text) > _LONGEST:  # a router's log, packed: two that differ must not look alike
            text = f"{text[:20]}… (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"
        yield prefix, text


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / "summary.json"
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        found, why = None, f"cannot be read ({error})"
    else:
        why = "is no report's summary"
    if not isinstance(found, dict):
        raise InputError.at(str(path), why, "`zerolayer verify` says what else is damaged")
    return found


def _answer(summary: Mapping[str, Any]) -> str:
    return str((summary.get("verdict") or {}).get("answer", "no report"))
