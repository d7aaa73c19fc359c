"""What a person reads of a trace: tables and sentences, without a word on how they are printed."""

import textwrap
from collections.abc import Iterator
from typing import Any, Final

from traces.goodness import Goodness

WIDTH: Final = 79
Rows = list[tuple[str, ...]]


def number(value: float | None, unit: str = "") -> str:
    """Return a figure of six digits, "n/a" where there is none."""
    return "n/a" if value is None else f"{value:,.6g}{unit}"


def figures(about: dict[str, Any]) -> Rows:
    """Return the figures of a description, a row each."""
    rows: Rows = [("requests", f"{about['requests']:,}")]
    if about["failed"]:
        rows.append(("  of these failed at the source", f"{about['failed']:,}"))
    if about["cached"]:
        rows.append(("  of these answered by a cache", f"{about['cached']:,}"))
    rows += [
        ("span", number(about["span_s"], " s")),
        ("rate", number(about["rate_per_s"], "/s")),
        ("CV of the gaps", number(about["cv"])),
        ("index of dispersion, 1 s", number(about["dispersion_1s"])),
        ("index of dispersion, 10 s", number(about["dispersion_10s"])),
        ("models", f"{len(about['models']):,}" if about["models"] else "n/a"),
        ("sessions", number(about["sessions"])),
        ("prefix block", number(about["block_tokens"], " tokens")),
    ]
    return rows


LENGTHS: Final = ("length", "mean", "p50", "p90", "p99", "max", "rows")


def lengths(about: dict[str, Any]) -> Rows:
    """Return quantiles of prompts and of outputs, and of those that were estimated."""
    rows: Rows = []
    for name in ("prompt_tokens", "output_tokens"):
        guessed = about["estimated"].get(name)
        known = about[name]
        if known or not guessed:
            rows.append((name, *_quantiles(known or {}, "known")))
        if guessed:
            label = "  estimated" if known else f"{name}, estimated"
            rows.append((label, *_quantiles(guessed, "rows")))
    return rows


def _quantiles(found: dict[str, Any], rows: str) -> tuple[str, ...]:
    return tuple(number(found.get(key)) for key in (*LENGTHS[1:-1], rows))


def notes(about: dict[str, Any]) -> Iterator[str]:
    """Yield lines: how the format was told, what is odd in the source, what it cannot tell."""
    yield from _folded("format", about.get("detected", about["format"]))
    if "made_from" in about:
        yield from _folded("made from", about["made_from"])
    if "skipped_rows" in about:
        where = f"; they are in {about['skipped_file']}" if "skipped_file" in about else ""
        yield from _folded("left out", f"{about['skipped_rows']:,} bad rows{where}")
    for quirk in about["quirks"]:
        yield from _folded(f"quirk {quirk['code']}", quirk["text"])
    for text in about["cannot_tell"]:
        yield from _folded("cannot tell", text)


def _folded(head: str, text: str) -> list[str]:
    """Return one paragraph, its later lines set in."""
    return textwrap.wrap(f"{head}: {text}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def fit_figures(found: Goodness) -> Rows:
    """Return the figures of a trace and of the model fitted to it, side by side."""
    keys = ("requests", "rate_per_s", "cv", "dispersion_1s", "dispersion_10s")
    both = (found.trace, found.model)
    rows: Rows = [(key, *(number(one[key]) for one in both)) for key in keys]
    for name in ("prompt_tokens", "output_tokens"):
        for q in ("mean", "p50", "p99"):
            rows.append((f"{name} {q}", *(number((one[name] or {}).get(q)) for one in both)))
    return rows


def fit_verdict(found: Goodness) -> str:
    """Return the distances in a paragraph, with what to hold them against."""
    text = (
        f"gaps {found.ks_gaps:.4f}, prompt {found.ks_prompt:.4f}, output {found.ks_output:.4f}; "
        f"two samples of one distribution stay below {found.ks_threshold:.4f} 99 times in 100, "
        "if their values are independent"
    )
    return "\n".join(_folded("KS distances", text))
