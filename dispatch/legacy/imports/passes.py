"""Where an nginx file passes requests that no header rule claims: its default group."""

import re
from dataclasses import dataclass
from typing import Final

from dispatch.legacy.imports.lexer import Directive
from dispatch.legacy.imports.result import Imported

HEADERS: Final = {"$http_x_model_hint": "model", "$http_x_precision_preference": "precision"}
_PASSES: Final = ("proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass")
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))(?::\d+)?")


@dataclass(slots=True)
class _Way:
    """A directive that passes requests on, the map or set rows it goes through, and its end.

    ``group`` is None where the file alone does not tell it, and then ``why`` says so.
    """

    item: Directive
    group: str | None = None
    why: str = ""
    rows: tuple[int, ...] = ()
    by_header: bool = False


def choose_default(root: Directive, place: str, found: Imported) -> None:
    """Set ``default_group`` as nginx would choose it, and list every default that it is not.

    A literal target decides by itself; a variable by the default of the map that makes it. A pass
    by a map of the two headers goes before others; a file without any falls back to the maps.
    """
    upstreams = {item.words[1] for item in root.all("upstream") if len(item.words) > 1}
    maps = [item for item in root.all("map") if len(item.words) > 2]
    passes = [item for name in _PASSES for item in root.all(name) if len(item.words) > 1]
    ways = [_way(item, root, maps, upstreams) for item in sorted(passes, key=lambda i: i.line)]
    if not ways:
        ways = [_through(item, item.words[2], root, maps) for item in maps
                if item.words[1] in HEADERS]  # fmt: skip
    used: set[int] = set()
    for way in sorted(ways, key=lambda way: not way.by_header):
        where, what = f"{place}:{way.item.line}", " ".join(way.item.words)
        if way.group is None:
            found.leave(where, what, way.why)
            continue
        kept = found.settings.setdefault("default_group", way.group)
        if kept == way.group:
            used.update(way.rows)
        elif way.item.name != "map":  # the default of a map is listed by itself, below
            found.leave(where, what, f"one default_group for all; {kept!r} was kept")
    _list_defaults(root, maps, used, place, found)


def _list_defaults(
    root: Directive, maps: list[Directive], used: set[int], place: str, found: Imported
) -> None:
    kept = found.settings.get("default_group", "")
    for item in maps:
        if item.words[1] not in HEADERS:
            continue
        if not _is_used(item, root):
            why = f"nothing here uses {item.words[2]}; its rules were carried over all the same"
            found.leave(f"{place}:{item.line}", " ".join(item.words), why)
        for row in item.block or []:
            if row.name != "default" or row.line in used:
                continue
            why = f"default_group is {kept!r}" if kept else "no default_group could be told"
            if row.words[1:] != [kept]:
                found.leave(f"{place}:{row.line}", " ".join(row.words), f"{why}; {_of(item)}")


def _is_used(made: Directive, root: Directive) -> bool:
    """Return whether any other directive names the variable that a map makes."""
    name = re.escape(made.words[2].lstrip("$"))
    mention = re.compile(rf"\$(?:{name}\b|\{{{name}\}})")
    return any(
        mention.search(word) for item in root.every() if item is not made for word in item.words
    )


def _of(item: Directive) -> str:
    return f"this is the default of {item.words[2]} alone"


def _way(
    item: Directive, root: Directive, maps: list[Directive], upstreams: set[str]
) -> _Way:  # fmt: skip
    target = re.sub(r"^\w+://", "", item.words[1]).partition("/")[0]
    if "$" not in target:
        name = target if target in upstreams else target.partition(":")[0]
        if name in upstreams:
            return _Way(item, name)
        return _Way(item, None, "passes to no upstream block; its requests were left out")
    variable = _VARIABLE.fullmatch(target)
    if variable is None:
        return _Way(item, None, "a target put together of variables")
    return _through(item, f"${variable[1] or variable[2]}", root, maps)


def _through(item: Directive, name: str, root: Directive, maps: list[Directive]) -> _Way:
    """Follow a variable through the defaults of maps, and through one ``set``, to a group."""
    rows: list[int] = []
    by_header = False
    for _ in range(len(maps) + 2):
        source = next((m for m in maps if m.words[2] == name), None)
        given = {s.words[2] for s in root.all("set") if len(s.words) > 2 and s.words[1] == name}
        if source is not None:
            by_header = by_header or source.words[1] in HEADERS
            row = next((r for r in source.block or [] if r.name == "default"), None)
            if row is None or len(row.words) < 2:
                return _Way(item, None, f"the map of {name} has no default", (), by_header)
            rows.append(row.line)
            value = row.words[1]
        elif len(given) == 1:
            value = given.pop()
        else:
            return _Way(item, None, f"nothing here gives {name} one value", (), by_header)
        if not value.startswith("$"):
            return _Way(item, value, "", tuple(rows), by_header)
        name = value
    return _Way(item, None, f"{name} is made from itself", (), by_header)
