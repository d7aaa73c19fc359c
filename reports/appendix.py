"""The last sections: what the trace cannot support, keys, definitions, how to reproduce."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from reports import metrics as m
from reports import workload
from reports.document import Bullets, Paragraph, Section, Table
from reports.intervals import sample_floor
from reports.numbers import count, number
from reports.pressure import arm_config, section_of
from reports.tables import Run

_PROPERTIES: Final = {
    "span_s": "span, s",
    "rate_per_s": "rate, requests/s",
    "cv": "burstiness: CV of the gaps (1 for Poisson)",
    "dispersion_1s": "index of dispersion, 1 s windows (1 for Poisson)",
    "dispersion_10s": "index of dispersion, 10 s windows",
    "failed": "rows that failed in the source",
    "cached": "rows answered from a cache",
}

_LONG: Final = re.compile(r"\b\d+\.\d{4,}")  # a float that nobody rounded
_LEDGER: Final = {"does": "what it does", "without": "then", "how": "what does it instead"}


def limits(run: Run) -> Section:
    """Return the workload, its quirks, and what it cannot tell."""
    made = Section("limits", "The workload, and what it cannot support")
    trace: Mapping[str, Any] = run.manifest.get("trace") or {}
    rows = list(_describe(trace))
    if rows:
        made.add(Table("The trace", ("Property", "value"), rows, frozenset({0, 1})))
    made.add(*workload.plots(run))
    quirks = [_quirk(q) for q in trace.get("quirks") or ()]
    if quirks:
        made.add(Paragraph("Quirks of the source:"), Bullets(quirks))
    cannot = [str(c) for c in trace.get("cannot_tell") or ()]
    made.add(Paragraph("What this trace cannot support:", "lead"))
    made.add(Bullets(cannot or ["The trace states no limits of its own."]))
    made.add(Bullets(_threats(run)))
    return made


def _describe(trace: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows = []
    for key, value in trace.items():
        name = _PROPERTIES.get(key, f"{prefix}{key.replace('_', ' ')}")
        if isinstance(value, Mapping):
            flat = all(isinstance(v, int | float) for v in value.values())
            if flat and value:
                told = " · ".join(f"{k} {_value(v)}" for k, v in value.items())
                rows.append((name, told))
        elif isinstance(value, str | int | float) and value != "":
            rows.append((name, _value(value)))
    return rows


def _value(value: Any) -> str:
    if isinstance(value, bool | str):
        return str(value)
    return count(value) if float(value).is_integer() else number(float(value), 4)


def _quirk(quirk: Any) -> str:
    if isinstance(quirk, Mapping):
        rows = f" ({quirk['rows']:,} rows)" if quirk.get("rows") else ""
        return f"{quirk.get('text', quirk.get('code', ''))}{rows}"
    return str(quirk)


def _threats(run: Run) -> list[str]:
    told = []
    if run.world != "live" and not run.manifest.get("calibration"):
        told.append(
            "**Uncalibrated**: no live run stands beside this simulation. Differences between "
            "arms share the model's error; absolute figures carry it whole."
        )
    told += _extrapolated(run)
    for arm in run.arms:
        notes = sorted({str(x) for f in run.facts(arm) for x in f.get("notes") or ()})
        told += [f"`{arm}`: {_LONG.sub(_short, x)}" for x in notes]
    if len(run.replicates) > 1 and (run.scenario.get("trace") or {}).get("resample") == "none":
        told.append("Replicates are seeds on one trace: intervals leave out how traces vary.")
    if run.scenario.get("story_inputs"):
        keys = ", ".join(f"`{k}`" for k in run.scenario["story_inputs"])
        told.append(f"Inputs taken from the account under test, not measured: {keys}.")
    told += run.notes
    return told


def _extrapolated(run: Run) -> list[str]:
    """Say which costs lie beyond what was measured, places with the same parts together."""
    places: dict[str, list[str]] = {}
    for text in sorted(
        {str(x) for a in run.arms for f in run.facts(a) for x in f.get("extrapolated") or ()}
    ):
        place, _, what = text.rpartition(": ")
        places.setdefault(place, []).append(what.rstrip("."))
    alike: dict[tuple[str, ...], list[str]] = {}
    for place, parts in places.items():
        alike.setdefault(tuple(parts), []).append(place)
    told = []
    for kinds, names in alike.items():
        where = f" of {', '.join(n for n in names if n)}" if any(names) else ""
        told.append(f"Beyond the measured range{where}: {', '.join(kinds)}.")
    return told


def _short(found: re.Match[str]) -> str:
    return number(float(found[0]))


def ledger(run: Run) -> Section | None:
    """Return the configuration ledger; None where the run carries none."""
    rows = ledger_rows(run)
    if not rows:
        return None
    heads = [h for h in rows[0] if h != "test"]  # `zerolayer legacy ledger` names the tests
    made = Section("ledger", "Configuration ledger")
    made.add(
        Paragraph(
            f"The {len(rows)} keys of the legacy layer: what each does, and what becomes of it "
            "without the layer. That they go away with it is by construction, not a finding. "
            "`zerolayer legacy ledger` names the test that shows what each key does."
        )
    )
    cells = [tuple(_plain(r.get(h, "")) for h in heads) for r in rows]
    columns = frozenset(range(len(heads)))
    titles = [_LEDGER.get(h, h.replace("_", " ")) for h in heads]
    made.add(Table("All keys", titles, cells, columns, folded=True))
    return made


def ledger_rows(run: Run) -> list[dict[str, Any]]:
    """Return the manifest's ledger, else the core's own where the baseline is the legacy door."""
    given = [dict(r) for r in run.manifest.get("ledger") or ()]
    if given or section_of(arm_config(run, run.baseline), "door").get("kind") != "legacy":
        return given
    from dispatch.legacy.ledger import ledger as keys

    return [asdict(row) for row in keys()]


def _plain(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def definitions(run: Run) -> Section:
    """Return every definition with its formula."""
    made = Section("definitions", "Definitions")
    made.add(
        Paragraph(
            "Of one request: a planned arrival, d start of the first decision, e end of the last "
            "decision, s first kernel, f first token, l last token (or the moment of failure), n "
            "output tokens."
        )
    )
    rows = [(x.title, f"`{x.formula}`", x.note) for x in m.METRICS.values()]
    rows += [(title, f"`{formula}`", note) for title, formula, note in m.OTHER_DEFINITIONS]
    head = ("Quantity", "formula", "remarks")
    made.add(Table("Quantities and formulas", head, rows, frozenset({0, 1, 2})))
    floors = ", ".join(f"p{p:g} ≥ {sample_floor(p):,}" for p in m.PERCENTS)
    slo = m.thresholds(run)
    limits_told = ", ".join(f"{k} ≤ {v:g} s" for k, v in slo.items()) or "finished at all"
    made.add(
        Bullets(
            [
                f"Samples needed: {floors}.",
                f"A request is good here when it finished and {limits_told}.",
                _warmup(run),
                "What is in flight at the end is censored: it counts as missed, never as dropped.",
                f"Utilisation is taken from {run.warmup_s:g} s to the last arrival, alike in all "
                "arms.",
            ]
        )
    )
    return made


def _warmup(run: Run) -> str:
    """Say what is left out at the start, and by which time."""
    if not run.warmup_s:
        return "Latencies are those of all requests by their arrival; no warm-up is cut off."
    gone = sum(len(c.early) for c in run.of(run.baseline) if c.early is not None)
    return (
        f"The first {run.warmup_s:g} s are a warm-up: {count(gone)} requests that arrive in it, in "
        "all replicates, are of no latency and no share. Rates go by ends: a request that arrives "
        "in the warm-up and ends after it counts."
    )


def reproduce(run: Run) -> Section:
    """Return how to get the same figures again."""
    made = Section("reproduce", "How to reproduce")
    argv = run.manifest.get("argv") or ()
    scenario = run.scenario
    command = run.manifest.get("command") or " ".join(_argument(a) for a in argv)
    made.add(
        Bullets(
            [
                f"Run again: `{command or 'zerolayer evidence ' + str(scenario.get('name'))}`",
                "Check every figure of this folder: `zerolayer verify FOLDER`",
                f"Seed {scenario.get('seed')}, {len(run.replicates)} replicates; replicate 0 is "
                "the trace itself, the others are block-resampled from it, the same for all arms.",
                *_stopping(run),
                "Scenario, trace hash, code version, packages and the hash of every file are in "
                "`manifest.json`; every figure of this page is in `summary.json`.",
            ]
        )
    )
    if scenario.get("reasoning"):
        made.add(Paragraph("Why this load and fleet: " + str(scenario["reasoning"]).strip()))
    margins = scenario.get("margins") or {}
    rows = [(f"margins.{k}", str(v)) for k, v in margins.items()]
    rows += [(f"slo.{k}", str(v)) for k, v in (scenario.get("slo") or {}).items() if v is not None]
    if rows:
        made.add(Table("Judged by", ("Key", "value"), rows))
    return made


def _stopping(run: Run) -> list[str]:
    """Say by which rule the number of replicates was chosen, where it was not simply given."""
    about: Mapping[str, Any] = run.manifest.get("stopping") or {}
    if not about:
        return []
    short = about["asked"] > about["taken"]
    told = (
        f"Replicates were chosen for an interval of ± {about['half_width_points']:g} points of SLO "
        f"attainment: a pilot of {about['pilot']} had a standard deviation of "
        f"{number(about['pilot_sd_points'])} points, which asks for {about['asked']:,} (Stein 1945)"
    )
    if short:
        told += f"; {about['taken']:,} were allowed, so **the interval is wider than asked**"
    return [f"{told}. No look at the verdict decided it."]


def _argument(value: Any) -> str:
    """Return an argument without the folder of whoever ran it."""
    text = str(value)
    return text.rsplit("/", 1)[-1] if text.startswith("/") else text
