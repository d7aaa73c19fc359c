"""What a run can carry beside its arms: the factorial, maps of the claims, failure drills."""

from collections.abc import Collection
from typing import Any, Final

from scenarios import drills, factorial, maps
from scenarios.schema import Scenario
from scenarios.store import Store
from scenarios.sweep import Sweep

KINDS: Final = ("factorial", "maps", "drills")
"""Each is also the manifest's key that tells whether it was asked for."""


def extras(
    scenario: Scenario,
    wanted: Collection[str],
    *,
    jobs: int = 0,
    quiet: bool = False,
    store: Store | None = None,
) -> dict[str, Any]:
    """Run what is *wanted* of :data:`KINDS` and return the manifest's entries."""
    found: dict[str, Any] = {}
    if "factorial" in wanted or "maps" in wanted:
        with Sweep(jobs, store=store, quiet=quiet) as sweep:
            if "factorial" in wanted:
                found |= factorial.designs(scenario, sweep)
            if "maps" in wanted:
                found |= maps.study(scenario, sweep)
    if "drills" in wanted:
        found |= drills.study(scenario, jobs=jobs, quiet=quiet)
    return found
