"""One stand-in run with its report, made once for the tests that only read it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import synthetic_journal


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run folder of three arms with tables and manifest, and its whole report."""
    from reports import evidence

    folder = tmp_path_factory.mktemp("run")
    manifest = synthetic_journal.write(folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    evidence.write(folder, manifest)
    return folder, manifest
