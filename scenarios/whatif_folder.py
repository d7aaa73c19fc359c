"""The folder of a what-if: all cells as Parquet, the report, and a manifest to run it again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reports import html, markdown
from scenarios import manifest
from scenarios.whatif import Grid, typed
from scenarios.whatif_report import document, label_keys


def write(place: Path, made: Grid, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write cells.parquet, report.html, report.md and manifest.json into *place*."""
    started_at = manifest.now()
    cells_table(place / "cells.parquet", made, rows)
    content = document(made, rows)
    footer = "Made by zerolayer whatif; times are in `manifest.json` only."
    (place / "report.html").write_text(html.render(content, footer), encoding="utf-8")
    (place / "report.md").write_text(markdown.render(content, footer), encoding="utf-8")
    about = manifest.describe_run(made.base, {}, started_at)
    about["kind"] = "whatif"
    about["points"] = [
        {"labels": dict(point.labels), "overrides": list(point.overrides)}
        for point, _ in made.points
    ]
    manifest.write(place, json.loads(json.dumps(about)))


def cells_table(path: Path, made: Grid, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write one row per cell; an axis whose values are all numbers becomes a number column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = label_keys(made)
    figures = sorted({name for row in rows for name in row} - {*keys, "arm", "replicate"})
    columns: dict[str, Any] = {}
    for key in keys:
        values = [typed(str(row.get(key, ""))) for row in rows]
        numeric = all(isinstance(v, int | float) or v == "" for v in values)
        columns[key] = (
            pa.array([None if v == "" else float(v) for v in values], pa.float64())
            if numeric
            else pa.array([str(row.get(key, "")) for row in rows], pa.string())
        )
    columns["arm"] = pa.array([row["arm"] for row in rows], pa.string())
    columns["replicate"] = pa.array([row["replicate"] for row in rows], pa.int32())
    for name in figures:
        if name == "failure":
            columns[name] = pa.array([row[name] for row in rows], pa.string())
        else:
            columns[name] = pa.array([row.get(name) for row in rows], pa.float64())
    pq.write_table(pa.table(columns), path, compression="zstd", version="2.6")
