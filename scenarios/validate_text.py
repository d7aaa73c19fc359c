"""The error table of ``zerolayer validate`` as people read it, 80 columns wide."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dispatch.errors import InputError
from scenarios.serving import MEAN_BAR, P99_BAR, QUANTITIES, Serving
from scenarios.validate import TITLES, Line, Validation

_HEAD: Final = ("stack", "GPU", "", "rows", "median", "p90", "held out", "bar", "")
_WIDTHS: Final = (10, 15, 11, 6, 6, 5, 8, 5, 4)


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


def table(found: Validation) -> Iterator[str]:
    """Yield the error table line by line: a heading a quantity, a line a stack and GPU."""
    yield "Errors of the cost model, % of the measured time."
    yield _laid(_HEAD)
    kind = ""
    for line in found.lines:
        if line.kind != kind:
            kind = line.kind
            yield TITLES[kind]
        yield _laid(_row(line))
    if any(not line.calibrated for line in found.lines):
        yield "* no constants of its own: from a sibling or from all GPUs of the stack"
    if any(line.left_out_bar for line in found.lines):
        yield "5/9: all rows / with one GPU-and-TP group left out of the fit (held out)"


def _laid(cells: Sequence[str]) -> str:
    left, right = cells[:3], cells[3:]
    text = [f"{c:<{w}}" for c, w in zip(left, _WIDTHS, strict=False)]
    text += [f"{c:>{w}}" for c, w in zip(right, _WIDTHS[3:], strict=True)]
    return ("  " + " ".join(text)).rstrip()


def _row(line: Line) -> tuple[str, ...]:
    held = line.left_out if line.left_out == line.left_out else line.held_out
    bar = "" if line.bar is None else f"{line.bar * 100:g}"
    if line.left_out_bar is not None:
        bar += f"/{line.left_out_bar * 100:g}"
    word = {True: "ok", False: "miss", None: ""}[line.holds]
    note = line.note.replace("_", " ").replace("nccl, nodes", "nodes")
    return (
        line.stack, line.gpu + ("" if line.calibrated else " *"), note,
        str(line.rows), _percent(line.median), _percent(line.p90), _percent(held), bar, word,
    )  # fmt: skip


def _percent(value: float) -> str:
    return f"{value * 100:.1f}" if value == value else "-"


def serving_title(run: Serving) -> str:
    """Return what a measured serving run is, and how the model did, in a sentence or two."""
    half = {
        "second": "its second half, which the fit did not see",
        "all": "all of it, unseen by the fit",
    }[run.judged]
    return (
        f"Serving run: {run.model} on {run.gpu}, {run.requests} requests of {run.file}. KV "
        f"capacity {run.capacity_tokens:,} tokens, measured {run.measured_capacity_tokens:,}. "
        f"Error in %; bars {MEAN_BAR * 100:g} on means and {P99_BAR * 100:g} on p99 of {half}: "
        f"{'ok' if run.holds else 'miss'}."
    )


def serving_table(run: Serving) -> Iterator[str]:
    """Yield the errors of one measured serving run line by line."""
    yield "  " + " " * 18 + "".join(f"{q:>18}" for q in QUANTITIES)
    yield "  " + " " * 18 + f"{'mean':>10}{'p99':>8}" * len(QUANTITIES)
    for label, errors in (("fitted", run.errors), ("unfitted", run.unfitted)):
        for half, found in errors.items():
            which = "all" if half == "all" else f"{half} half"
            cells = (f"{found[q][0] * 100:>+10.1f}{found[q][1] * 100:>+8.1f}" for q in QUANTITIES)
            yield f"  {label + ', ' + which:<18s}" + "".join(cells)
