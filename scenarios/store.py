"""Results of cells by content: a sweep that was stopped goes on where it was."""

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from scenarios.manifest import hardware_hash, rooms_hash

_ROOMS = ("dispatch", "sim", "traces", "kernels", "scenarios", "reports")


def default_folder() -> Path:
    """Return ``$ZEROLAYER_CACHE`` or the user's cache folder."""
    named = os.environ.get("ZEROLAYER_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path.home() / ".cache"
    return Path(named) if named else home / "zerolayer"


@cache
def code() -> str:
    """Return the hash of the code and of the user's own hardware that figures hang on."""
    return hashlib.sha256((rooms_hash(_ROOMS) + hardware_hash()).encode()).hexdigest()


def key(cell: Mapping[str, Any]) -> str:
    """Return the content key of a cell: sha256 over its canonical JSON and the code."""
    text = json.dumps({"cell": cell, "code": code()}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Store:
    """A folder of JSON files, one a cell; written whole or not at all, safe to share."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or default_folder()) / "cells"

    def get(self, name: str) -> dict[str, float] | None:
        """Return the figures under *name*; a damaged entry counts as absent."""
        try:
            found = json.loads(self._path(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def put(self, name: str, figures: Mapping[str, float]) -> None:
        """Keep *figures* under *name*."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, suffix=".partial")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(dict(figures), file, sort_keys=True)
            Path(scratch).replace(path)
        except OSError:
            Path(scratch).unlink(missing_ok=True)
            raise

    def _path(self, name: str) -> Path:
        return self.folder / name[:2] / f"{name}.json"
