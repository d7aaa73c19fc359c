"""The folder of a plan: the answer as JSON, the report, and a manifest."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reports import html, markdown
from scenarios import manifest
from scenarios.plan.answer import Answer, as_dict
from scenarios.plan.report import document
from scenarios.schema import Scenario


def write(place: Path, scenario: Scenario, answers: Sequence[Answer]) -> None:
    """Write plan.json, report.html, report.md and manifest.json into *place*."""
    started_at = manifest.now()
    figures = {"answers": [as_dict(found) for found in answers]}
    text = json.dumps(_plain(figures), indent=1, sort_keys=True, allow_nan=False)
    (place / "plan.json").write_text(text + "\n", encoding="utf-8")
    content = document(answers)
    footer = "Made by zerolayer plan; times are in `manifest.json` only."
    (place / "report.html").write_text(html.render(content, footer), encoding="utf-8")
    (place / "report.md").write_text(markdown.render(content, footer), encoding="utf-8")
    about = manifest.describe_run(scenario, {}, started_at)
    about["kind"] = "plan"
    manifest.write(place, about)


def _plain(node: Any) -> Any:
    """Write what JSON cannot hold as text: inf for infinity, null for unknown."""
    if isinstance(node, float) and not math.isfinite(node):
        return None if math.isnan(node) else "inf"
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_plain(value) for value in node]
    return node
