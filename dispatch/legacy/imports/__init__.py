"""Read a router's own configuration into the 47 keys; what has no place there is listed."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dispatch.errors import InputError
from dispatch.legacy.config import LegacyConfig
from dispatch.legacy.imports.envoy import load_document, read_envoy
from dispatch.legacy.imports.nginx import read_nginx
from dispatch.legacy.imports.result import Imported, ImportedPeer, LeftOver, need

__all__ = ["Imported", "ImportedPeer", "LeftOver", "read_file", "read_own"]


def read_file(path: Path) -> Imported:
    """Import the file at *path*: nginx (.conf), Envoy (.json, .yaml, .yml) or our own .toml."""
    if not path.is_file():
        raise InputError.at(str(path), "no such file")
    text = path.read_text(encoding="utf-8", errors="replace")
    readers: dict[str, Callable[[], Imported]] = {
        ".toml": lambda: read_own(text, path.name),
        ".json": lambda: read_envoy(load_document(text, path.name), path.name),
        ".yaml": lambda: read_envoy(load_document(text, path.name), path.name),
        ".yml": lambda: read_envoy(load_document(text, path.name), path.name),
    }
    found = readers.get(path.suffix.lower(), lambda: read_nginx(text, path.name))()
    found.config()  # every value must hold, whatever file it came from
    return found


def read_own(text: str, place: str) -> Imported:
    """Import our own format: a ``[config]`` table of the keys and ``[[peer]]`` rows."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError.at(place, f"no TOML: {error}") from None
    unknown = sorted(set(document) - {"config", "peer"})
    need(not unknown, place, f"unknown table {', '.join(unknown)}", "use [config] and [[peer]]")
    settings: dict[str, Any] = document.get("config", {})
    LegacyConfig.from_settings(settings, place)
    found = Imported(place, settings=settings)
    for at, row in enumerate(document.get("peer", [])):
        where = f"{place}: peer[{at}]"
        extra = sorted(set(row) - set(ImportedPeer.__slots__))
        need(not extra, where, f"unknown key {', '.join(extra)}")
        need("address" in row, where, "a peer without an address")
        found.peers.append(ImportedPeer(**{"group": "", **row}))
    return found
