"""Fit the cost model's constants to measured tables and write ``dispatch/hardware/calibration``.

    python benchmarks/fit_calibration.py --data DIR [--only STACK ...]

One file a GPU and stack, and ``generic.<stack>.toml`` for GPUs without one. Rows that
``scenarios/split.py`` holds out are not looked at. Needs SciPy. Some minutes on one core.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from dispatch import hardware
from dispatch.hardware import Calibration, calibration
from dispatch.hardware.catalogue import HERE, read_toml
from scenarios import estimate
from scenarios.fit import Rows, changed, fit, train_rows
from scenarios.fit_jobs import JOBS, Job
from scenarios.fit_serving import serving_jobs
from scenarios.fit_whole import fit_whole
from scenarios.measured import Measured, read_folder
from scenarios.split import digest, held_out

FOLDER = HERE / "calibration"
RANGES = {
    "gemm": ("m", "n", "k"), "attention": ("batch", "heads", "kv_heads", "context"),
    "elementwise": ("rows", "width"), "collective": ("n", "bytes"), "crossing": ("n", "bytes"),
    "custom": ("n", "bytes"),
    "launch": ("n", "bytes"), "network": ("n", "bytes"), "host": ("tokens",),
}  # fmt: skip


def main() -> None:
    """Run the jobs and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of measured tables")
    parser.add_argument("--only", nargs="*", default=None, help="stacks to fit; all if not given")
    asked = parser.parse_args()
    items, _ = read_folder(asked.data)
    for job in JOBS:
        if asked.only is None or job.stack in asked.only:
            run(job, items)
    if asked.only is None or "eager-2023" in asked.only:
        for name, stack, section, values, record in fit_whole(items):
            write(name, stack, section, values, record)
    if asked.only is None or "serving" in asked.only:
        for name, stack, section, values, record in serving_jobs(items):
            write(name, stack, section, values, record)


def run(job: Job, items: Sequence[Measured]) -> None:
    """Fit one job: each GPU on its own, then all of them together for the generic file."""
    calibration.cache_clear()
    starts = {g: _start(g, job.stack) for g in job.gpus}
    if job.own:
        for gpu in job.gpus:
            tables = job.tables(items, gpu)
            if tables:
                found = fit({gpu: starts[gpu]}, job.free, _rows(tables))
                _write(job, gpu, tables, found)
    if job.generic:
        tables = job.tables(items)
        found = fit(starts, job.free, _rows(tables))
        _write(job, "generic", tables, found)
    calibration.cache_clear()


def _start(gpu: str, stack: str) -> Calibration:
    """Return what a fit begins with: the defaults, so that fitting again changes nothing.

    Whole layers rest on operators as well: they begin with the generic ones.
    """
    plan = estimate.stack_plan(stack)
    if stack == "helix":
        return replace(calibration(hardware.gpu(gpu), plan, "vllm", bare=True), stack=stack)
    return Calibration(gpu, stack, plan)


def _rows(tables: Sequence[Measured]) -> list[Rows]:
    return [one for table in tables for one in train_rows(table, 1500)]


def _write(job: Job, name: str, tables: Sequence[Measured], found: dict[str, Calibration]) -> None:
    cal = next(iter(found.values()))
    sections = sorted({f.section for f in job.free})
    record = {
        "source": job.source, "card": ", ".join(sorted({g for t in tables for g in t.table.gpu})),
        "date": date.today().isoformat(), **residuals(tables, found),
        "files": sorted({digest(t.path) for t in tables}),
        "range": ranges(job.section, tables),
    }  # fmt: skip
    for section in sections:
        write(name, job.stack, section, changed(cal, section), record)


def residuals(tables: Sequence[Measured], found: dict[str, Calibration]) -> dict[str, Any]:
    """Return rows, and the median error on the rows seen and on those held out."""
    errors, kept = [], []
    for table in tables:
        made = estimate.estimate(table.kind, table.stack, table.table, found)
        errors.append(np.abs(made / table.table.us.to_numpy(dtype=float) - 1.0))
        kept.append(held_out(table.kind, table.table))
    error, out = np.concatenate(errors), np.concatenate(kept)
    return {
        "rows": int((~out).sum()), "median_error": float(np.median(error[~out])),
        "held_out_rows": int(out.sum()),
        "held_out_error": float(np.median(error[out])) if out.any() else float("nan"),
    }  # fmt: skip


def ranges(section: str, tables: Sequence[Measured]) -> dict[str, list[float]]:
    """Return the least and the largest value of each column that bounds where a fit is at home."""
    found: dict[str, list[float]] = {}
    for column in RANGES[section]:
        values = [t.table[column] for t in tables if column in t.table]
        if values:
            found[column] = [
                float(min(v.min() for v in values)), float(max(v.max() for v in values))
            ]  # fmt: skip
    return found


def write(
    name: str, stack: str, section: str, values: dict[str, Any], record: dict[str, Any]
) -> None:
    """Put one section and its record into ``<name>.<stack>.toml``."""
    path = FOLDER / f"{name.lower()}.{stack}.toml"
    path.parent.mkdir(exist_ok=True)
    document = read_toml(path) if path.is_file() else {}
    document |= {"gpu": name, "stack": stack, section: values}
    document.setdefault("fit", {})[section] = record
    path.write_text(dump(document), encoding="utf-8")
    error = record["median_error"], record.get("held_out_error", float("nan"))
    print(f"{path.name:32s} {section:12s} {error[0]:.2%} seen, {error[1]:.2%} held out")


def dump(document: dict[str, Any]) -> str:
    """Return *document* as TOML: constants first, then where each section comes from."""
    lines = ["# Written by benchmarks/fit_calibration.py; do not edit by hand."]
    lines += [f"{key} = {_value(document[key])}" for key in ("gpu", "stack")]
    fits = document["fit"]
    for section in sorted(fits):
        lines += ["", f"[{section}]", *(f"{k} = {_value(v)}" for k, v in document[section].items())]
    for section in sorted(fits):
        lines += ["", f"[fit.{section}]"]
        lines += [f"{k} = {_value(v)}" for k, v in fits[section].items() if not isinstance(v, dict)]
        for key, inner in fits[section].items():
            if isinstance(inner, dict) and inner:
                lines += ["", f"[fit.{section}.{key}]"]
                lines += [f"{k} = {_value(v)}" for k, v in inner.items()]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace('"', "'") + '"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    return f"{float(f'{value:.4g}')!r}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
