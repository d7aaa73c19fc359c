"""What pydantic found wrong, in the words of this house: found, expected, did you mean."""

import types
from collections.abc import Iterable
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from dispatch.errors import nearest, short
from scenarios.overrides import Path, show
from scenarios.schema import NAMED, ArmConfig, Scenario

Finding = tuple[Path, str, str]
"""Where in the merged document, what was found, the way out."""


def findings(error: ValidationError) -> list[Finding]:
    """Return every finding of *error* once, in document order as pydantic met them."""
    details = error.errors(include_url=False)
    found: list[Finding] = []
    for detail in details:
        loc: Path = tuple(step for step in detail["loc"] if step != "[key]")
        kind = detail["type"]
        if kind == NAMED:
            found += [(tuple(at), str(detail["msg"]), "") for at in detail["ctx"]["at"]]
            continue
        if kind == "too_short" and any(
            other["loc"][: len(loc)] == loc and len(other["loc"]) > len(loc) for other in details
        ):
            continue  # the items are there, but wrong themselves
        found.append((loc, *_words(kind, loc, detail)))
    return found


def _words(kind: str, loc: Path, detail: Any) -> tuple[str, str]:
    value, message = detail["input"], str(detail["msg"])
    if kind == "extra_forbidden":
        return "unknown key", _unknown_key(loc)
    if kind == "missing":
        return "is missing", "expected " + _described(loc)
    if kind == "too_short":
        return "is empty", "expected one item at least"
    if kind == "value_error":
        return message.removeprefix("Value error, "), ""
    expected = message.removeprefix("Input should be ").removeprefix("Input should ")
    expected = expected.replace("a valid tuple", "a list")
    if kind == "literal_error" and isinstance(value, str):
        known = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
        close = nearest(value, known)
        hint = f"; {close}" if close.startswith("did you mean") else ""
        return f"found {value!r}", f"expected {expected}{hint}"
    if str(value).lower().lstrip("+-") in ("nan", "inf", "infinity"):
        expected = f"a finite number, {expected}"
    if kind == "string_too_short":
        expected = "a text"
    return f"found {brief(value)}", f"expected {expected}"


def _unknown_key(loc: Path) -> str:
    key = str(loc[-1])
    if len(loc) == 1 and key in ArmConfig.model_fields:
        return f"arms hold it: defaults.{key} for all, arms[0].{key} for one"
    known = set(keys_at(loc[:-1]))
    if len(loc) == 1:
        known |= {"defaults"}
    return nearest(key, known)


def _described(loc: Path) -> str:
    fields = {
        name: field for model in models_at(loc[:-1]) for name, field in model.model_fields.items()
    }
    field = fields.get(str(loc[-1]))
    named = getattr(field.annotation, "__name__", "") if field else ""
    kind = {"str": "a text", "int": "a whole number", "float": "a number"}.get(named, "a table")
    return f"{show(loc[-1:])} = {kind}"


def keys_at(path: Path) -> Iterable[str]:
    """Return the keys that the schema knows at *path*."""
    return [name for model in models_at(path) for name in model.model_fields]


def models_at(path: Path) -> list[type[BaseModel]]:
    """Return the section (or sections, in a union) that the schema has at *path*."""
    annotations: list[Any] = [Scenario]
    for step in path:
        stepped: list[Any] = []
        for annotation in annotations:
            for kind in _spread(annotation):
                if isinstance(step, int) or get_origin(kind) is dict:
                    stepped += [a for a in get_args(kind) if a is not Ellipsis]
                elif isinstance(kind, type) and issubclass(kind, BaseModel):
                    field = kind.model_fields.get(step)
                    stepped += [field.annotation] if field else []
        annotations = stepped
    kinds = [kind for annotation in annotations for kind in _spread(annotation)]
    return [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]


def _spread(annotation: Any) -> list[Any]:
    if get_origin(annotation) in (Union, types.UnionType):
        return [kind for part in get_args(annotation) for kind in _spread(part)]
    return [annotation]


def brief(value: Any) -> str:
    """Write *value* in at most 60 characters."""
    return short(repr(value))
