"""Scenarios: the schema, the files that come with it, and everything that runs them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scenarios.schema import Scenario


def load(source: "str | Path", overrides: "Sequence[str]" = ()) -> "Scenario":
    """Return a checked scenario from a path or a bundled name, with ``key=value`` overrides.

    Raises an InputError that holds every problem found: file, line, key, and the way out.
    """
    from scenarios.load import load as read

    return read(source, overrides)


def __getattr__(name: str) -> Any:
    if name == "Scenario":
        from scenarios.schema import Scenario

        return Scenario
    raise AttributeError(name)
