"""One request's story from the journal, in every arm: seen, chosen, done."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from dispatch.errors import InputError, short
from dispatch.journal import BEST
from dispatch.outcomes import Outcome, Reason, RootCause
from reports import draw
from reports.causes import LABELS
from reports.document import Plot
from reports.numbers import count, number, percent, seconds
from reports.tables import readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
PHASES: Final = (
    ("door wait", "arrival_s", "decision_start_s"),
    ("door and decision", "decision_start_s", "decision_end_s"),
    ("queue before the engine", "decision_end_s", "started_s"),
    ("prefill", "started_s", "first_token_s"),
    ("decode", "first_token_s", "end_s"),
)


@dataclass(frozen=True, slots=True)
class Part:
    """One arm's part of the story: the request's row, and its decisions in order of time."""

    arm: str
    request: Row
    decisions: tuple[Row, ...]
    devices: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class Story:
    """One request in every arm of one replicate."""

    request: int
    replicate: int
    parts: tuple[Part, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the rows as they stand in the journal, enumerations by name."""
        arms = {
            p.arm: {
                "request": _json(p.request)
                | {
                    "outcome": Outcome(p.request["outcome"]).name,
                    "root_cause": RootCause(p.request["root_cause"]).name,
                    "device_name": p.devices.get(p.request["device"]),
                },
                "decisions": [_json(d) | {"reason": Reason(d["reason"]).name} for d in p.decisions],
            }
            for p in self.parts
        }
        return {"request": self.request, "replicate": self.replicate, "arms": arms}

    def text(self) -> str:
        """Return the story in words."""
        first = self.parts[0].request
        session = "" if first["session"] < 0 else f", session {first['session']}"
        lines = [
            f"Request {self.request} (line or row {first['source_row']} of the trace, replicate "
            f"{self.replicate}): arrives at {first['arrival_s']:.6f} s with "
            f"{count(first['prompt_tokens'])} prompt tokens and max_tokens "
            f"{count(first['max_tokens'])}{session}."
        ]
        for part in self.parts:
            lines += ["", f"{part.arm}:", *(f"  {line}" for line in _tell(part))]
        return "\n".join(lines)


def _json(row: Row) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def explain(
    folder: Path, manifest: Mapping[str, Any], request: int, replicate: int | None = None
) -> Story:
    """Return the story of one *request*; *replicate* defaults to the first of the folder.

    Raises InputError where the journal has no such request or replicate.
    """
    held = _holds(request, 64) and _holds(replicate, 32)
    rows = _read(folder / "requests.parquet", request, replicate) if held else []
    if not rows:
        raise _unknown(folder, request, replicate)
    chosen = min(r["replicate"] for r in rows) if replicate is None else replicate
    rows = [r for r in rows if r["replicate"] == chosen]
    made = _read(folder / "decisions.parquet", request, chosen)
    stated: Sequence[str] = list(manifest.get("arms") or {})
    rows.sort(key=lambda r: (stated.index(r["arm"]) if r["arm"] in stated else 99, r["arm"]))
    parts = []
    for row in rows:
        own = [d for d in made if d["arm"] == row["arm"]]
        own.sort(key=lambda d: (d["time_s"], d["attempt"]))
        about = (manifest.get("arms") or {}).get(row["arm"]) or {}
        names = {
            int(d["device"]): f"{d['name']} ({d.get('gpu')})" for d in about.get("devices") or ()
        }
        parts.append(Part(row["arm"], row, tuple(own), names))
    return Story(request, chosen, tuple(parts))


def _read(path: Path, request: int, replicate: int | None) -> list[dict[str, Any]]:
    where = [("request", "==", request)]
    if replicate is not None:
        where.append(("replicate", "==", replicate))
    with readable(path):
        found: list[dict[str, Any]] = pq.read_table(path, filters=where).to_pylist()
    return found


def _holds(value: int | None, bits: int) -> bool:
    """Return whether a column of *bits* can hold *value*: what it cannot is in no row."""
    return value is None or -(1 << (bits - 1)) <= value < 1 << (bits - 1)


def _unknown(folder: Path, request: int, replicate: int | None) -> InputError:
    path = folder / "requests.parquet"
    with readable(path):
        table = pq.read_table(path, columns=["request", "replicate"])
    ids, reps = table.column("request").to_numpy(), table.column("replicate").to_numpy()
    if not len(ids):
        return InputError.at(str(folder), "holds no request", "run a trace that is not empty")
    found = f"no request {short(str(request))}"
    found += "" if replicate is None else f" in replicate {short(str(replicate))}"
    known = f"ids run from {ids.min()} to {ids.max()}, replicates {reps.min()} to {reps.max()}"
    return InputError.at(str(folder), found, known)


def _tell(part: Part) -> list[str]:
    lines = []
    for d in part.decisions:
        lines += _decision(part, d)
    if not part.decisions:
        lines.append("no decision is on record")
    return [*lines, *_end(part)]


def _decision(part: Part, d: Row) -> list[str]:
    where = part.devices.get(d["device"], f"device {d['device']}")
    reason = Reason(d["reason"])
    what = f"placed on {where}" if reason is Reason.placed else f"not placed: {reason.name}"
    lines = [
        f"{d['time_s']:.6f} s, attempt {d['attempt'] + 1}: {what} "
        f"(took {seconds(d['duration_s'])}, {d['candidates']} candidates)"
    ]
    seen = [
        f"largest block {_bytes(d['seen_block_bytes'])}",
        f"free {_bytes(d['seen_free_bytes'])}",
        f"need {_bytes(d['need_bytes'])}",
    ]
    if d["seen_ring_s"] > 0:
        seen.append(f"ring {seconds(d['seen_ring_s'])}")
    if d["seen_pcie_ratio"] >= 0:
        seen.append(f"PCIe {percent(d['seen_pcie_ratio'])}")
    if any(not math.isnan(float(d[k])) for k in ("seen_block_bytes", "seen_free_bytes")):
        age = f"; the oldest of it {seconds(d['seen_age_s'])} old" if d["seen_age_s"] >= 0 else ""
        lines.append("  the graph said: " + ", ".join(s for s in seen if "n/a" not in s) + age)
    best = [
        f"{part.devices.get(d[f'best{i}_device'], d[f'best{i}_device'])} "
        f"{number(d[f'best{i}_score'])}"
        for i in range(BEST)
        if d[f"best{i}_device"] >= 0 and not math.isnan(d[f"best{i}_score"])
    ]
    if best:
        lines.append("  best by score: " + ", ".join(best))
    return lines


def _bytes(value: float) -> str:
    return "n/a" if not math.isfinite(value) else f"{number(value / 1e9)} GB"


def _end(part: Part) -> list[str]:
    r = part.request
    outcome, cause = Outcome(r["outcome"]), RootCause(r["root_cause"])
    whole = r["end_s"] - r["arrival_s"]
    lines = []
    if r["started_s"] == r["started_s"]:
        lines.append(f"first kernel {seconds(r['started_s'] - r['arrival_s'])} after arrival")
    if outcome is Outcome.finished:
        ttft = r["first_token_s"] - r["arrival_s"]
        lines.append(
            f"finished after {seconds(whole)}: first token after {seconds(ttft)}, "
            f"{count(r['output_tokens'])} tokens, {count(r['attempts'])} attempts"
        )
        return lines
    after = f" after {seconds(whole)}" if whole == whole else ""
    lines.append(f"ended as {outcome.name}{after}: {LABELS[cause]}")
    if r["fitting_device"] >= 0:
        name = part.devices.get(r["fitting_device"], f"device {r['fitting_device']}")
        lines.append(f"{name} would have held it at that moment")
    return lines


def picture(story: Story) -> Plot:
    """Return the story as bars over time, one per arm."""
    arrival = story.parts[0].request["arrival_s"]
    bars = []
    for part in story.parts:
        spans = []
        for k, (label, start, end) in enumerate(PHASES):
            a, b = part.request[start], part.request[end]
            if a == a and b == b and b >= a:
                spans.append((k, label, a - arrival, b - a))
        last = part.request["end_s"] - arrival
        bars.append((part.arm, spans, last, Outcome(part.request["outcome"])))

    def paint(axes: "Axes") -> None:
        named: set[str] = set()
        for y, (_, spans, last, outcome) in enumerate(bars):
            for k, label, start, width in spans:
                axes.barh(
                    y,
                    width,
                    left=start,
                    height=0.5,
                    color=draw.SERIES[k],
                    label=None if label in named else label,
                    edgecolor="white",
                    linewidth=0.4,
                )
                named.add(label)
            if outcome is not Outcome.finished and last == last:
                axes.plot([last], [y], "x", color=draw.BAD, ms=9, mew=2)
                axes.annotate(
                    f" {outcome.name}", (last, y), xytext=(6, -3), textcoords="offset points"
                )
        axes.set_yticks(range(len(bars)), [arm for arm, *_ in bars])
        axes.invert_yaxis()
        axes.set_xlabel("seconds after its planned arrival")
        axes.set_ylim(len(bars) - 0.4, -1.1)
        axes.legend(loc="upper right", ncols=5, fontsize=7)

    return Plot(
        "story",
        f"Request {story.request}, replicate {story.replicate}",
        story.text().replace("\n", " "),
        paint,
        height_in=1.3 + 0.55 * len(bars),
        left_in=1.4,
        wide=True,
    )


def picture_svg(story: Story) -> str:
    """Return :func:`picture` as a standalone SVG file."""
    with draw.settings():
        return draw.standalone(draw.svg(picture(story)))
