"""The ledger: for every key, what it does and what becomes of it without the layer."""

import ast
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Literal

from dispatch.legacy.config import HARDWARE_KEYS, KEYS, PROBE_KEYS, LegacyConfig

Kind = Literal["hardware", "probe", "other"]


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One key: its default, its work, its fate, and the test (``path::name``) of its effect."""

    key: str
    kind: Kind
    default: str | int | float | bool
    does: str
    without: Literal["gone", "replaced", "needed"]
    how: str
    test: str


def ledger() -> tuple[LedgerRow, ...]:
    """Return the rows of all 47 keys, in the order of the configuration."""
    text = files("dispatch.legacy").joinpath("ledger.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    defaults = LegacyConfig()
    return tuple(
        LedgerRow(key=key, kind=_kind(key), default=getattr(defaults, key), **table[key])
        for key in KEYS
    )


def has_test(row: LedgerRow, root: Path) -> bool | None:
    """Say whether the row's test is defined under *root*; None where no tests are installed."""
    path, _, name = row.test.partition("::")
    file = root / path
    if not (root / "tests").is_dir():
        return None
    if not file.is_file():
        return False
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.walk(tree))


def _kind(key: str) -> Kind:
    if key in HARDWARE_KEYS:
        return "hardware"
    return "probe" if key in PROBE_KEYS else "other"
