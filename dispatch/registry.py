"""Policies by name: those shipped here, and any that an installed package declares.

An entry point of group ``zerolayer.policies`` names a class or callable; its parameters are those
of its ``Params`` dataclass where it has one, else of its signature.
"""

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from dispatch.errors import InputError, Problem, UnknownNameError, nearest
from dispatch.policy import BasePolicy, Policy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "zerolayer.policies"
_MODULES = (
    "round_robin",
    "random_picks",
    "static_weights",
    "edf",
    "least_requests",
    "loads",
    "affinity",
    "prefix_aware",
    "stacks",
    "latency",
    "topology",
    "ablations",
    "oracle",
)

Kind = type[BasePolicy]
_K = TypeVar("_K", bound=Kind)
_shipped: dict[str, Kind] = {}


def register(name: str) -> Callable[[_K], _K]:
    """Register a policy class of this house under *name*."""

    def keep(kind: _K) -> _K:
        if name in _shipped:
            raise ValueError(f"policy {name} is registered twice")
        kind.name = name
        _shipped[name] = kind
        return kind

    return keep


def shipped() -> dict[str, Kind]:
    """Return the policies that come with zerolayer, in the order of their catalogue."""
    for module in _MODULES:
        import_module(f"dispatch.policies.{module}")
    return dict(sorted(_shipped.items(), key=lambda item: _MODULES.index(_module(item[1]))))


def _module(kind: Kind) -> str:
    return kind.__module__.rpartition(".")[2]


@cache
def _declared() -> "dict[str, EntryPoint]":
    from importlib.metadata import entry_points  # 30 ms of start that a shipped policy never needs

    return {point.name: point for point in entry_points(group=GROUP)}


def declare(name: str, value: str) -> None:
    """Make *value*, ``module:attribute``, known as policy *name* until this process ends.

    It stands before what an installed package declares under that name.
    """
    from importlib.metadata import EntryPoint

    _declared()[name] = EntryPoint(name=name, value=value, group=GROUP)


def names() -> list[str]:
    """Return every policy name that :func:`policy` takes."""
    return list(dict.fromkeys([*shipped(), *sorted(_declared())]))


def policy(name: str, params: Mapping[str, Any] | None = None, *, seed: int = 0) -> Policy:
    """Return a new policy *name* with its parameters checked; raise InputError otherwise."""
    return build(_kind(name), name, dict(params or {}), seed=seed)


def _kind(name: str) -> Any:
    """Return the class or callable behind *name*."""
    kind = shipped().get(name)
    if kind is not None:
        return kind
    point = _declared().get(name)
    if point is None:
        raise UnknownNameError("policy.name", "policy", name, names())
    try:
        return point.load()
    except Exception as error:  # whatever the code of that package raises
        raise InputError.at(
            f"policy {name}",
            f"cannot be loaded from {point.value}: {error}",
            "mend or uninstall the package that declares it",
        ) from error


def describe(name: str) -> dict[str, Any]:
    """Return what there is to say of a policy: summary, whole definition, signals, parameters."""
    try:
        kind = _kind(name)
    except UnknownNameError:
        raise
    except InputError as error:  # one broken package must not hide the others
        kind = None
        text = error.problems[0].found
    else:
        text = inspect.getdoc(kind) or ""
    shape = getattr(kind, "Params", None)
    return {
        "name": name,
        "summary": text.partition("\n")[0],
        "definition": text,
        "signals": sorted(getattr(kind, "signals", ())),
        "shipped": name in shipped(),
        "params": {
            f.name: {"type": _described(get_type_hints(shape)[f.name]), "default": _default(f)}
            for f in (fields(shape) if shape else ())
        },
        "params_doc": inspect.getdoc(shape) if shape else "",
    }


def _default(of: Field[Any]) -> Any:
    return None if of.default is MISSING else of.default


def build(kind: Any, name: str, params: dict[str, Any], *, seed: int = 0) -> Policy:
    """Return a policy made by *kind*, a class with ``Params`` or any callable."""
    shape = getattr(kind, "Params", None)
    if isinstance(kind, type) and issubclass(kind, BasePolicy):
        if shape is None:
            _refuse_unknown(name, params, ())
            return cast(Policy, kind(seed=seed))
        return cast(Policy, kind(checked(shape, f"policy {name}", params), seed=seed))
    accepted = inspect.signature(kind).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        _refuse_unknown(name, params, [p for p in accepted if p not in ("self", "seed")])
    if "seed" in accepted:
        params.setdefault("seed", seed)
    made = kind(**params)
    if not isinstance(made, Policy):
        raise InputError.at(f"policy {name}", "is no policy", "give it name, signals and choose")
    return made


def _refuse_unknown(name: str, params: Mapping[str, Any], known: Any) -> None:
    problems = [
        Problem(f"policy {name}", f"unknown parameter {key!r}", nearest(key, known))
        for key in params
        if key not in known
    ]
    if problems:
        raise InputError(problems)


def checked(shape: type[Any], place: str, params: Mapping[str, Any]) -> Any:
    """Return a *shape* dataclass of *params*, with every problem named at once."""
    hints = get_type_hints(shape)
    known = {f.name: f for f in fields(shape)}
    problems = []
    values: dict[str, Any] = {}
    for key, value in params.items():
        if key not in known:
            problems.append(Problem(place, f"unknown parameter {key!r}", nearest(key, known)))
            continue
        ok, values[key] = _coerced(value, hints[key])
        if not ok:
            problems.append(
                Problem(f"{place}.{key}", f"found {value!r}", f"give {_described(hints[key])}")
            )
    for key, f in known.items():
        if f.default is MISSING and f.default_factory is MISSING and key not in params:
            problems.append(Problem(f"{place}.{key}", "is missing", _described(hints[key])))
    if problems:
        raise InputError(problems)
    try:
        return shape(**values)
    except ValueError as error:
        raise InputError.at(place, str(error)) from error


def _coerced(value: Any, hint: Any) -> tuple[bool, Any]:
    """Return whether *value* is of the type *hint*, and the value in that type."""
    origin = get_origin(hint)
    if hint is Any:
        return True, value
    if origin is Literal:
        return value in get_args(hint), value
    if origin in (typing.Union, types.UnionType):
        for one in get_args(hint):
            ok, made = _coerced(value, one)
            if ok:
                return ok, made
        return False, value
    if origin is tuple and isinstance(value, list | tuple):
        made_all = [_coerced(v, get_args(hint)[0]) for v in value]
        return all(ok for ok, _ in made_all), tuple(v for _, v in made_all)
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        return value == value, float(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if hint is type(None):
        return value is None, value
    if isinstance(hint, type) and hint is not float:
        return isinstance(value, hint), value
    return callable(value) and "Callable" in str(hint), value


def _described(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    return hint.__name__ if isinstance(hint, type) else str(hint)
