"""``whatif``: a grid of overrides, every point run with all arms on the same replicates."""

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dispatch.errors import InputError, Problem
from scenarios.document import Document
from scenarios.load import resolve
from scenarios.named import applicable, named
from scenarios.schema import Scenario
from scenarios.sweep import Outcome, Sweep, SweepCell, cells_of


@dataclass(frozen=True, slots=True)
class Axis:
    """One key of the scenario and the values it takes, as they are written after ``--set``."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the grid: its labels by axis, and the overrides that make it."""

    labels: Mapping[str, str]
    overrides: tuple[str, ...]


@dataclass(slots=True)
class Grid:
    """The points of a what-if with their scenarios, and what came of their cells."""

    base: Scenario
    axes: tuple[Axis, ...]
    points: list[tuple[Point, Scenario]]
    outcomes: list[Outcome] = field(default_factory=list)


def axis(text: str) -> Axis:
    """Read ``key=4,8,16``; a value with commas of its own stands in a TOML array."""
    key, equals, values = text.partition("=")
    found = tuple(_values(values.strip()))
    if not equals or not key.strip() or not all(found) or not found:
        raise InputError.at(
            f"--vary {text}", "is no axis", "expected key=value,value as in trace.scale=1,1.5,2"
        )
    if len(set(found)) < len(found):
        raise InputError.at(f"--vary {text}", "a value repeats", "name each value once")
    return Axis(key.strip(), found)


def _values(text: str) -> Iterator[str]:
    """Split at commas that stand in no bracket and no quotes."""
    depth, quote, start = 0, "", 0
    for place, sign in enumerate(text):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'":
            quote = sign
        elif sign in "[{":
            depth += 1
        elif sign in "]}":
            depth -= 1
        elif sign == "," and not depth:
            yield text[start:place].strip()
            start = place + 1
    yield text[start:].strip()


def grid(source: str, overrides: Sequence[str], vary: Sequence[str], names: Sequence[str]) -> Grid:
    """Return the grid: the product of all axes, and every named what-if on the base.

    All wrong points are told at once, each problem once.
    """
    document = Document.read(source)
    base = resolve(document, overrides)
    axes = tuple(axis(text) for text in vary)
    if len({a.key for a in axes}) < len(axes):
        raise InputError.at("--vary", "a key is varied twice", "give all its values in one --vary")
    points = [
        Point(
            dict(zip((a.key for a in axes), values, strict=True)),
            tuple(f"{a.key}={value}" for a, value in zip(axes, values, strict=True)),
        )
        for values in itertools.product(*(a.values for a in axes))
    ]
    if list(names) == ["all"]:
        names = applicable(base)
    if names:
        points = [Point({**p.labels, "what_if": "base"}, p.overrides) for p in points]
        blank = {a.key: "" for a in axes}
        points += [Point({**blank, "what_if": n}, tuple(named(n).overrides(base))) for n in names]
    found: list[tuple[Point, Scenario]] = []
    problems: dict[Problem, None] = {}
    for point in points:
        try:
            found.append((point, resolve(document, [*overrides, *point.overrides])))
        except InputError as error:
            problems |= dict.fromkeys(error.problems)
    if problems:
        raise InputError(problems)
    return Grid(base, axes, found)


def cells(made: Grid) -> list[SweepCell]:
    """Return all cells of the grid, point by point."""
    return [cell for point, scenario in made.points for cell in cells_of(scenario, point.labels)]


def run(made: Grid, sweep: Sweep) -> Grid:
    """Run every cell of the grid and keep the outcomes in it."""
    best: dict[str, float] = {}

    def note(outcome: Outcome) -> str:
        share = outcome.figures.get("attainment", float("nan"))
        if share > best.get("share", -1.0):
            best["share"] = share
            labels = ", ".join(f"{k}={v}" for k, v in outcome.cell.labels.items() if v)
            best_text[0] = f"best so far {100 * share:.2f} % ({outcome.cell.arm}; {labels})"
        return best_text[0]

    best_text = [""]
    made.outcomes = sweep.run(cells(made), f"whatif {made.base.name}", note)
    return made


def rows(made: Grid) -> list[dict[str, Any]]:
    """Return one row per cell: labels, arm, replicate, figures, and the failure's text if any."""
    return [
        {
            **outcome.cell.labels,
            "arm": outcome.cell.arm,
            "replicate": outcome.cell.replicate,
            "failure": outcome.failure,
            **outcome.figures,
        }
        for outcome in made.outcomes
    ]


def typed(text: str) -> Any:
    """Return a label as the value it stands for, so that axes sort as numbers do."""
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        return text
    return value if isinstance(value, int | float) else text
