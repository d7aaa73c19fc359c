"""Figures that no run could work with: refused before one hangs or its clock overflows."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dispatch.errors import short
from scenarios.problems import Finding

# Three decades: the clock counts whole nanoseconds, and 64 bits of them end at 292 years.
_LONGEST_S: Final = 1e9
_SHORTEST_S: Final = 1e-9  # a tick of that clock; less would be none
_PER_SECOND: Final = {"_s": 1.0, "_ms": 1e3, "_us": 1e6}
# Each of these is so many objects in memory, or so many runs.
_MOST: Final = {
    "count": 100_000,
    "tp": 1024,
    "gpus_per_node": 1024,
    "workers": 100_000,
    "dispatchers": 100_000,
    "replicates": 10_000,
    "retries": 1_000_000,
    "scale": 1_000_000,
    "prompt_scale": 1_000_000,
    "output_scale": 1_000_000,
    "handling_cv": 100,
}
_MOST_WHOLE: Final = 1_000_000_000  # of any other count: journals hold 32 bits
# Less would be so many samples a second that no run comes to its end, or is lost in rounding.
_LEAST: Final = {
    "utilisation_window_s": 1e-3, "interval_ms": 0.01, "handling_cv": 1e-6, "scale": 1e-9,
}  # fmt: skip
_FREE: Final = frozenset({"seed", "params", "settings", "synth", "old", "new", "variants"})
"""What those who read it bound themselves."""


def findings(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[Finding]:
    """Yield every number of *node*, a plain document, that no run could work with."""
    children: Iterable[tuple[str | int, Any]] = ()
    if isinstance(node, Mapping):
        children = node.items()
    elif isinstance(node, list | tuple):
        children = enumerate(node)
    for key, value in children:
        yield from findings(value, (*path, key))
    if isinstance(node, int | float) and not isinstance(node, bool) and path:
        yield from _number(node, path)


def _number(value: float, path: tuple[str | int, ...]) -> Iterator[Finding]:
    key = str(path[-1])
    if isinstance(value, float) and not math.isfinite(value):
        yield path, f"found {value}", "expected a finite number"
        return
    if 0 < value < (least := _LEAST.get(key, 0.0)):
        yield path, f"found {value!r}", f"expected at least {least:g}"
        return
    per_second = next((n for end, n in _PER_SECOND.items() if key.endswith(end)), None)
    if per_second is not None and 0 < value < _SHORTEST_S * per_second:
        yield path, f"found {value!r}", f"expected at least {_SHORTEST_S * per_second:g}"
        return
    whole = _MOST_WHOLE if isinstance(value, int) and _FREE.isdisjoint(path) else math.inf
    if per_second is not None and value > _LONGEST_S * per_second:
        most = f"{_LONGEST_S * per_second:g} ({_LONGEST_S:g} seconds)"
    elif _FREE.isdisjoint(path) and value > _MOST.get(key, whole):
        most = f"{_MOST.get(key, whole):,}"
    else:
        return
    yield path, f"found {short(repr(value))}", f"expected at most {most}"
