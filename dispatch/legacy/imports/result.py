"""What an import yields: settings and peers that were carried over, and what was not."""

from dataclasses import dataclass, field
from typing import Any

from dispatch.errors import InputError
from dispatch.legacy.config import LegacyConfig


@dataclass(frozen=True, slots=True)
class ImportedPeer:
    """One upstream server: ``weight`` 0 takes no traffic; ``max_conns`` 0 is no limit."""

    group: str
    address: str
    weight: float = 1.0
    max_conns: int = 0
    down: bool = False
    backup: bool = False


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Something that has no place in the 47 keys: where it stood, what it was, and why."""

    place: str
    what: str
    why: str


@dataclass(slots=True)
class Imported:
    """Settings (overrides of the defaults), peers, and what could not be carried over."""

    source: str
    settings: dict[str, Any] = field(default_factory=dict)
    peers: list[ImportedPeer] = field(default_factory=list)
    left: list[LeftOver] = field(default_factory=list)

    def config(self) -> LegacyConfig:
        """Return the validated configuration."""
        return LegacyConfig.from_settings(self.settings, self.source)

    def leave(self, place: str, what: str, why: str) -> None:
        """Note something that was not carried over."""
        self.left.append(LeftOver(place, what, why))

    def set_common(self, key: str, values: list[Any], place: str) -> None:
        """Set *key* where all servers agree on its value; else keep the most common and say so."""
        if not values:
            return
        common = max(sorted(set(values), key=str), key=values.count)
        self.settings[key] = common
        if others := sorted({str(v) for v in values if v != common}):
            why = f"one value for all servers; {common} is the most common"
            self.leave(place, f"{key} {', '.join(others)}", why)

    def as_toml(self) -> str:
        """Return the import in our own format, which imports back without loss."""
        lines = [f"# imported from {self.source}", "", "[config]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in self.settings.items()]
        for peer in self.peers:
            lines += ["", "[[peer]]"]
            lines += [
                f"{name} = {toml_value(getattr(peer, name))}" for name in ImportedPeer.__slots__
            ]
        return "\n".join(lines) + "\n"


def toml_value(value: str | int | float | bool) -> str:
    """Return one TOML scalar."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value)


def need(condition: bool, place: str, found: str, way_out: str = "") -> None:
    """Raise an input error at *place* unless *condition* holds."""
    if not condition:
        raise InputError.at(place, found, way_out)
