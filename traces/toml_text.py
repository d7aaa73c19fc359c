"""A model as TOML text; the standard library reads TOML and does not write it."""

from collections.abc import Mapping
from typing import Any

from dispatch.toml_text import scalar


def dump(document: Mapping[str, Any]) -> str:
    """Return *document* (nested tables of scalars and lists) as TOML."""
    lines: list[str] = []
    _table(document, "", lines)
    return "\n".join(lines).strip() + "\n"


def _table(table: Mapping[str, Any], path: str, lines: list[str]) -> None:
    if path:
        lines += ["", f"[{path}]"]
    for key, value in table.items():
        if not isinstance(value, Mapping):
            lines.append(f"{key} = {_value(value)}")
    for key, value in table.items():
        if isinstance(value, Mapping):
            _table(value, f"{path}.{key}" if path else key, lines)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], list | tuple):
            return "[\n" + "".join(f"  {_row(item)},\n" for item in value) + "]"
        return _wrapped(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    return scalar(value)


def _row(items: Any) -> str:
    return "[" + ", ".join(f"{float(item):g}" for item in items) + "]"


def _wrapped(items: Any) -> str:
    text = "[" + ", ".join(_value(item) for item in items) + "]"
    if len(text) < 80:
        return text
    lines, line = [], " "
    for item in items:
        cell = f" {_value(item)},"
        if len(line) + len(cell) > 90:
            lines.append(line)
            line = " "
        line += cell
    return "[\n" + "\n".join([*lines, line]) + "\n]"
