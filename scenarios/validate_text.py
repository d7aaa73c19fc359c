"""The error table of ``zerolayer validate`` as people read it, 80 columns wide."""

import os
from pathlib import Path
from typing import Any, Final

from dispatch.errors import InputError
from scenarios.serving import MEAN_BAR, P99_BAR, QUANTITIES, Serving
from scenarios.validate import TITLES, Line, Validation

HEAD: Final = ("table", "stack", "GPU", "rows", "median", "p90", "held out", "bar", "")
Rows = list[tuple[str, ...]]


def default_folder() -> Path:
    """Return the measured data of ``$ZEROLAYER_DATA``, else of ``../shared/data``."""
    roots = [os.environ.get("ZEROLAYER_DATA", ""), "../shared/data"]
    for root in (Path(r) for r in roots if r):
        for folder in (root / "measured", root):
            if folder.is_dir():
                return folder
    raise InputError.at(
        "--data", "no folder given and $ZEROLAYER_DATA is not one",
        "name a folder of measured tables: zerolayer validate --data DIR",
    )  # fmt: skip


def table(found: Validation) -> tuple[tuple[str, ...], Rows]:
    """Return head and rows of the error table."""
    return HEAD, [_row(line) for line in found.lines]


def _row(line: Line) -> tuple[str, ...]:
    note = f", {line.note.replace('_', ' ')}" if line.note else ""
    held = line.left_out if line.left_out == line.left_out else line.held_out
    bar = "" if line.bar is None else f"{line.bar * 100:g}"
    if line.left_out_bar is not None:
        bar += f"/{line.left_out_bar * 100:g}"
    word = {True: "ok", False: "miss", None: ""}[line.holds]
    return (
        TITLES[line.kind] + note, line.stack, line.gpu + ("" if line.calibrated else " *"),
        str(line.rows), _percent(line.median), _percent(line.p90), _percent(held), bar, word,
    )  # fmt: skip


def _percent(value: float) -> str:
    return f"{value * 100:.1f}" if value == value else "-"


def serving_table(run: Serving) -> tuple[str, tuple[str, ...], Rows]:
    """Return title, head and rows of one measured serving run."""
    title = (
        f"{run.file}: {run.model} on {run.gpu}, {run.requests} requests, KV capacity "
        f"{run.capacity_tokens:,} tokens (measured {run.measured_capacity_tokens:,}); "
        f"bars {MEAN_BAR:.0%} mean, {P99_BAR:.0%} p99 on: {run.judged}"
    )
    head = ("error, %", *(f"{q} {s}" for q in QUANTITIES for s in ("mean", "p99")))
    rows: Rows = []
    for name, errors in (
        *run.errors.items(),
        *((f"unfitted, {k}", v) for k, v in run.unfitted.items()),
    ):
        rows.append((name, *(_signed(value) for q in QUANTITIES for value in errors[q])))
    return title, head, rows


def _signed(value: Any) -> str:
    return f"{value * 100:+.1f}"
