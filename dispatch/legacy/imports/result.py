"""What an import yields: settings and peers that were carried over, and what was not."""

from dataclasses import dataclass, field
from typing import Any

from dispatch.errors import InputError
from dispatch.legacy.config import LegacyConfig
from dispatch.toml_text import scalar


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

    def settle(self, key: str, value: Any, place: str, what: str) -> None:
        """Set *key* unless an earlier line set it; another value is then listed as *what*."""
        if self.settings.setdefault(key, value) != value:
            kept = scalar(self.settings[key])
            self.leave(place, what, f"one {key} for all; the first, {kept}, was kept")

    def add_rule(self, pattern: str, group: str, place: str) -> None:
        """Append a row to the table of model hints, where the first match wins."""
        if any(mark in pattern + group for mark in ",=") or not pattern.strip():
            self.leave(place, f"{pattern} {group}", "the table cannot hold ',' or '='")
            return
        table = self.settings.get("model_groups")
        self.settings["model_groups"] = (f"{table}," if table else "") + f"{pattern}={group}"

    def check_groups(self, kind: str) -> None:
        """List every group that the settings name and no peer is in; *kind* is what makes one."""
        have = {peer.group for peer in self.peers}
        named = [(key, str(v)) for key, v in self.settings.items() if key.endswith("_group")]
        rules = filter(None, str(self.settings.get("model_groups", "")).split(","))
        named += [("model_groups", rule.partition("=")[2]) for rule in rules]
        for key, group in dict.fromkeys(named):
            if group not in have:
                why = f"no {kind} of this name in the file; such requests go to any server"
                self.leave(self.source, f"{key} {group}", why)

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
        source = " ".join(self.source.split())
        lines = [f"# imported from {source}", "", "[config]"]
        lines += [f"{key} = {scalar(value)}" for key, value in self.settings.items()]
        for peer in self.peers:
            lines += ["", "[[peer]]"]
            lines += [f"{name} = {scalar(getattr(peer, name))}" for name in ImportedPeer.__slots__]
        return "\n".join(lines) + "\n"


def another_policy(*names: str) -> str:
    """Say that what was found is another placement policy here, by its registered *names*."""
    return f"another policy: {' or '.join(names)}"


def need(condition: bool, place: str, found: str, way_out: str = "") -> None:
    """Raise an input error at *place* unless *condition* holds."""
    if not condition:
        raise InputError.at(place, found, way_out)
