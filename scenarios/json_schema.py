"""The JSON schema of scenario files, for editors: ``#:schema scenario.schema.json``."""

import json
from pathlib import Path
from typing import Any

from scenarios.schema import ArmConfig, Scenario


def schema() -> dict[str, Any]:
    """Return the schema of a file: the scenario's, plus ``[defaults]``, which hold arm sections."""
    whole = Scenario.model_json_schema()
    arm = ArmConfig.model_json_schema(ref_template="#/$defs/{model}")
    shared = {k: v for k, v in arm["properties"].items() if k not in ("name", "title")}
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    whole["$defs"].update(arm["$defs"])
    whole["properties"]["defaults"] = {
        "type": "object",
        "description": "Sections merged under every arm.",
        "properties": shared,
        "additionalProperties": False,
    }
    return whole


def text() -> str:
    """Return the schema as it is bundled."""
    return json.dumps(schema(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def is_schema(path: Path) -> bool:
    """Return whether *path* holds a schema of scenario files, of this version or another."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and "$schema" in found and found.get("title") == "Scenario"
