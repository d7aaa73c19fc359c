"""A resolved scenario as TOML that reads back to the same; the standard library only reads it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dispatch.toml_text import scalar

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dump(document: Mapping[str, Any]) -> str:
    """Return *document* as TOML; what is None, for which TOML has no word, is a comment."""
    return "\n".join(_table(document, "")).strip() + "\n"


def _table(table: Mapping[str, Any], path: str) -> Iterator[str]:
    """Yield the lines of one table: its own values first, as TOML asks, then what lies below it."""
    below = []
    for key, value in table.items():
        name = _key(key)
        if value is None:
            yield f"# {name} = none"
        elif value and (isinstance(value, Mapping) or _are_tables(value)):
            below.append((f"{path}.{name}" if path else name, value))
        else:
            yield f"{name} = {_value(value)}"
    for name, value in below:
        if isinstance(value, Mapping):
            yield from ("", f"[{name}]", *_table(value, name))
        else:
            for item in value:
                yield from ("", f"[[{name}]]", *_table(item, name))


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{{pairs}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    return scalar(value)
