"""Read a router's own configuration into the 47 keys; what has no place there is listed."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dispatch.encodings import to_utf8, wide
from dispatch.errors import InputError
from dispatch.legacy.config import LegacyConfig
from dispatch.legacy.imports.envoy import load_document, read_envoy
from dispatch.legacy.imports.nginx import read_nginx
from dispatch.legacy.imports.result import Imported, ImportedPeer, LeftOver, need

__all__ = ["Imported", "ImportedPeer", "LeftOver", "read_file", "read_own"]


def read_file(path: Path) -> Imported:
    """Import the file at *path*: nginx (.conf), Envoy (.json, .yaml, .yml) or our own .toml."""
    if path.is_dir():
        raise InputError.at(str(path), "is a folder", "name one configuration file in it")
    if not path.exists():
        raise InputError.at(str(path), "no such file", "check the path")
    if not path.is_file():
        raise InputError.at(str(path), "is a pipe or a device", "write it to a file first")
    text = _text(path)
    readers: dict[str, Callable[[], Imported]] = {
        ".toml": lambda: read_own(text, path.name),
        ".json": lambda: read_envoy(load_document(text, path.name), path.name),
        ".yaml": lambda: read_envoy(load_document(text, path.name), path.name),
        ".yml": lambda: read_envoy(load_document(text, path.name), path.name),
    }
    found = readers.get(path.suffix.lower(), lambda: read_nginx(text, path.name))()
    found.config()  # every value must hold, whatever file it came from
    return found


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read: {error.strerror}") from None
    if encoding := wide(data):
        raise InputError.at(
            str(path), f"looks like {encoding} text, not UTF-8", to_utf8(encoding, str(path))
        )
    text = data.decode("utf-8-sig", "replace")
    # A file of old systems ends its lines in CR alone: no comment would ever end.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_own(text: str, place: str) -> Imported:
    """Import our own format: a ``[config]`` table of the keys and ``[[peer]]`` rows."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
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
