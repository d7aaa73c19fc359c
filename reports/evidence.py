"""The evidence report of a run folder: read the journal, judge, write what people read."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from reports import (
    appendix,
    attribution,
    causes,
    claims,
    drills,
    factorial,
    factorial_report,
    html,
    latency,
    logged,
    maps,
    markdown,
    opening,
    pdf,
    pressure,
    segments,
    shadow,
    timeline,
    utilisation,
)
from reports.document import Banner, Document
from reports.intervals import nearest_rank
from reports.metrics import thresholds
from reports.tables import DeviceSeries, Run, read_columns, read_devices, read_run
from reports.verdict import Verdict, judge

FILES = ("summary.json", "report.html", "report.md", "report.pdf", "timeline.json.gz")
SUMMARY_VERSION = 1
_DEGRADED_SHARE = 0.01  # live: p99 lag above 1 % of the tightest SLO invalidates the run


@dataclass(frozen=True, slots=True)
class Analysis:
    """Every figure of a report, before any of it is put into words."""

    run: Run
    devices: dict[tuple[str, int], DeviceSeries]
    verdict: Verdict
    alone: Verdict | None
    """On the layer deleted and nothing else changed; None where no arm does that."""
    latency: latency.Latency
    causes: causes.Causes
    utilisation: utilisation.Utilisation
    pressure: dict[str, pressure.Pressure]
    segments: tuple[segments.Segment, ...]
    claims: tuple[claims.Claim, ...]
    steps: tuple[attribution.Step, ...]
    factorials: tuple[factorial.Effects, ...]
    agreement: shadow.Shadow
    logged: logged.Logged | None
    faults: tuple[drills.Drill, ...]
    rollback: drills.Rollback | None
    maps: tuple[maps.ClaimMap, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return summary.json's content."""
        return {
            "summary_version": SUMMARY_VERSION,
            "scenario": self.run.scenario.get("name"),
            "baseline": self.run.baseline,
            "candidate": self.run.candidate,
            "arms": list(self.run.arms),
            "replicates": list(self.run.replicates),
            "confidence": self.run.confidence,
            "world": self.run.world,
            "verdict": self.verdict.as_dict(),
            "layer_alone": self.alone.as_dict() if self.alone else None,
            "slo": [_endpoint(e) for e in self.verdict.endpoints],
            "latency": self.latency.as_dict(),
            "causes": self.causes.as_dict(),
            "utilisation": self.utilisation.as_dict(),
            "pressure": {a: p.as_dict() for a, p in self.pressure.items()},
            "segments": [s.as_dict() for s in self.segments],
            "claims": [c.as_dict() for c in self.claims],
            "parts": [s.as_dict() for s in self.steps],
            "factorials": [f.as_dict() for f in self.factorials],
            "shadow": self.agreement.as_dict(),
            "router_log": self.logged.as_dict() if self.logged else None,
            "drills": [d.as_dict() for d in self.faults],
            "maps": [m.as_dict() for m in self.maps],
            "rollback": self.rollback.as_dict() if self.rollback else None,
        }


def _endpoint(e: Any) -> dict[str, Any]:
    arms = {
        side: {
            "value": "inf" if math.isinf(f.value) else None if math.isnan(f.value) else f.value,
            "failures": f.failures,
            "needs": f.needs,
            "target": f.target_met,
        }
        for side, f in (("baseline", e.baseline), ("candidate", e.candidate))
    }
    return {
        "key": e.key,
        "unit": e.unit,
        "kind": e.kind,
        "target": e.target,
        **arms,
        "difference": e.difference.as_dict(),
        "margin": e.margin,
        "p_holm": None if math.isnan(e.p_holm) else e.p_holm,
        "verdict": str(e.verdict),
        "seeds_to_decide": e.seeds,
        "note": e.note,
    }


def analyse(folder: Path, manifest: Mapping[str, Any]) -> Analysis:
    """Return every figure of the run in *folder*; writes nothing.

    Raises InputError where a table is missing, empty or not comparable.
    """
    run = read_run(folder, manifest)
    devices = read_devices(run)
    found = causes.analyse(run)
    busy = utilisation.analyse(run, devices)
    load = pressure.analyse(run)
    judged = claims.Evidence(run, found, busy, load, _age_p99(run))
    steps = attribution.analyse(run)
    return Analysis(
        run, devices, judge(run, invalid(run)), attribution.alone(run, steps),
        latency.analyse(run), found, busy, load,
        segments.analyse(run), claims.analyse(judged), steps,
        factorial_report.designs(run), shadow.analyse(run), logged.analyse(run),
        *drills.analyse(run), maps.analyse(run),
    )  # fmt: skip


def invalid(run: Run) -> tuple[str, ...]:
    """Return what makes the run itself unfit to judge by: late sending, books that differ."""
    found = []
    for arm in run.arms:
        for cell, facts in zip(run.of(arm), run.facts(arm), strict=False):
            stated = facts.get("offered")
            rows = len(cell) + (len(cell.early) if cell.early else 0)
            if stated is not None and int(stated) != rows:
                found.append(
                    f"{arm}, replicate {cell.replicate}: {int(stated):,} requests were offered "
                    f"but {rows:,} are in the journal"
                )
    lag = np.concatenate([c["lag_s"] for c in run.cells.values()])
    limit = min(thresholds(run).values(), default=math.inf) * _DEGRADED_SHARE
    p99 = nearest_rank(np.sort(lag[~np.isnan(lag)]), 99.0)
    if p99 > limit:
        found.append(
            f"DEGRADED: requests were sent late (p99 lag {p99 * 1e3:.3g} ms, over 1 % of the "
            f"tightest SLO, {limit * 1e3:.3g} ms)"
        )
    return tuple(found)


def _age_p99(run: Run) -> float:
    path = run.folder / "decisions.parquet"
    if not path.is_file():
        return math.nan
    raw = read_columns(path, ["arm", "seen_age_s"])
    codes, names = raw["arm"]
    if run.candidate not in names:
        return math.nan
    age = raw["seen_age_s"][codes == names.index(run.candidate)]
    return nearest_rank(np.sort(age[np.isfinite(age)]), 99.0)


def compose(data: Analysis) -> Document:
    """Put the figures into words and pictures."""
    run = data.run
    title = str(run.scenario.get("title") or run.scenario.get("name") or "Evidence")
    head = opening.banner(
        run,
        data.verdict,
        data.alone,
        data.latency,
        data.segments,
        data.steps,
        data.factorials,
        data.causes,
        data.agreement.gains,
    )
    sections = [
        opening.section(run, data.verdict, head),
        latency.section(run, data.latency),
        causes.section(run, data.causes),
        utilisation.section(run, data.utilisation, data.devices),
        segments.section(run, data.segments),
        attribution.section(run, data.steps, data.factorials),
        claims.section(run, data.claims),
        maps.section(data.maps),
        shadow.section(run, data.agreement),
        logged.section(run, data.logged),
        drills.section(run, data.faults, data.rollback),
        pressure.section(run, data.pressure),
        appendix.limits(run),
        appendix.ledger(run),
        appendix.definitions(run),
        appendix.reproduce(run),
    ]
    return Document(title, opening.subtitle(run), [s for s in sections if s is not None])


def finite(node: Any) -> Any:
    """Return JSON-able *node* with every figure that is not finite as None (unknown)."""
    if isinstance(node, float):
        return node if math.isfinite(node) else None
    if isinstance(node, Mapping):
        return {key: finite(value) for key, value in node.items()}
    return [finite(value) for value in node] if isinstance(node, list | tuple) else node


def write(folder: Path, manifest: Mapping[str, Any]) -> Verdict:
    """Write the report files of a run folder and return the verdict.

    Reads requests.parquet, decisions.parquet and devices.parquet; writes summary.json,
    report.html, report.md, report.pdf and timeline.json.gz, all without times, so that the same
    journal gives the same bytes. Raises InputError for tables that cannot be compared.
    """
    data = analyse(folder, manifest)
    document = compose(data)
    footer = "Made by zerolayer from the journal of this run; times are in `manifest.json` only."
    text = json.dumps(finite(data.as_dict()), indent=1, ensure_ascii=False, allow_nan=False)
    (folder / "summary.json").write_text(text + "\n", "utf-8")
    (folder / "report.html").write_text(html.render(document, footer), "utf-8")
    (folder / "report.md").write_text(markdown.render(document, footer), "utf-8")
    (folder / "report.pdf").write_bytes(pdf.render(document, footer))
    (folder / "timeline.json.gz").write_bytes(timeline.render(data.run))
    return replace(data.verdict, told=_told(document))


def _told(document: Document) -> tuple[str, ...]:
    head = next(b for s in document.sections for b in s.blocks if isinstance(b, Banner))
    return (
        html.plain(f"{html.sign(head.answer)} {head.headline}"),
        *(html.plain(s) for s in head.sentences),
    )
