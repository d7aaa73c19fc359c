"""``--set a.b.0.c=value``: any key of a scenario, lists included, from the command line."""

import itertools
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dispatch.errors import Problem, nearest, short

Path = tuple[str | int, ...]

DEEPEST: Final = 32
"""Levels of tables and lists that a scenario may have; its own keys need six."""

_KEY = re.compile(r"^[A-Za-z0-9_*-]+$")


@dataclass(frozen=True, slots=True)
class Override:
    """One ``key=value``; *readings* are what the value may mean, most likely first."""

    text: str
    keys: tuple[str, ...]
    readings: tuple[Any, ...]


def parse(text: str) -> Override | Problem:
    """Read ``a.b.0.c=value`` (or ``a.b[0].c=value``); the value is TOML, or else bare text."""
    key, equals, value = text.partition("=")
    keys = tuple(k.strip() for k in re.sub(r"\[([^\]]*)\]", r".\1", key.strip()).split("."))
    if not equals or not all(_KEY.match(k) for k in keys):
        return Problem(echo(text), "is no assignment", "expected key=value, as in seed=7")
    try:
        readings = _readings(value.strip())
    except RecursionError:
        readings = ()
    if not readings or len(keys) > DEEPEST or too_deep(readings[0]):
        return Problem(echo(text), "is nested too deep", f"expected at most {DEEPEST} levels")
    return Override(text, keys, readings)


def echo(text: str) -> str:
    """Return an override as messages repeat it."""
    return f"--set {short(text)}"


def too_deep(document: Any) -> bool:
    """Return whether tables and lists stand in each other more than DEEPEST times."""
    level = [document]
    for _ in range(DEEPEST + 1):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
    return any(isinstance(node, dict | list) for node in level)


def _readings(value: str) -> tuple[Any, ...]:
    found: list[Any] = []
    if value.lower() in ("none", "null"):  # a key that may be unset is; else it is a word
        found.append(None)
    try:
        document = tomllib.loads(f"v = {value}")
        if set(document) == {"v"}:
            found.append(document["v"])
    except ValueError:  # no TOML, or a number of more digits than Python reads
        pass
    if not found or not isinstance(found[-1], str):
        found.append(value)
    return tuple(found)


def apply(raw: dict[str, Any], override: Override, value: Any) -> list[Path] | Problem:
    """Set *value* in *raw* wherever the keys lead (``*`` is every item of a list)."""
    spots: list[tuple[Any, Path]] = [(raw, ())]
    for key, after in itertools.pairwise(override.keys):
        stepped: list[tuple[Any, Path]] = []
        for node, path in spots:
            steps = _steps(node, key, path, override, make=list if after == "0" else dict)
            if isinstance(steps, Problem):
                return steps
            stepped += [(node[step], (*path, step)) for step in steps]
        spots = stepped
    touched: list[Path] = []
    for node, path in spots:
        steps = _steps(node, override.keys[-1], path, override, make=None)
        if isinstance(steps, Problem):
            return steps
        for step in steps:
            if isinstance(node, list) and step == len(node):
                node.append(value)
            else:
                node[step] = value
            touched.append((*path, step))
    return touched


def _steps(
    node: Any, key: str, path: Path, override: Override, *, make: Callable[[], Any] | None
) -> list[str | int] | Problem:
    """Return where *key* leads in *node*; *make* makes a missing table or list on the way."""
    place = echo(override.text)
    if isinstance(node, dict):
        if make is not None and key not in node:
            node[key] = make()
        return [key]
    if not isinstance(node, list):
        return Problem(place, f"{show(path)} is a value, not a table", f"no key {key} below it")
    if key == "*":
        return list(range(len(node)))
    names = {item["name"]: i for i, item in enumerate(node) if _named(item)}
    if key in names:
        return [names[key]]
    if not key.isdigit():
        return Problem(place, f"{show(path)} has no item {key!r}", nearest(key, names))
    if make is not None and int(key) == len(node):
        node.append(make())
    if int(key) > len(node):
        return Problem(
            place, f"{show(path)} has {len(node)} items", f"expected an index below {len(node)}"
        )
    return [int(key)]


def _named(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str)


def show(path: Path) -> str:
    """Write *path* as in ``arms[0].engine.kv``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
