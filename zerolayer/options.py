"""Options that several verbs share, defined once so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

ScenarioArgument = Annotated[
    str, Parameter(help="A scenario file, or the name of a bundled scenario.")
]
SetOption = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        help="key=value, any key of the scenario: --set fleet.pools.0.count=4. Repeatable.",
        negative="",
    ),
]
OutputOption = Annotated[
    Path | None, Parameter(name=["-o", "--output"], help="The folder to write.")
]
ReplicatesOption = Annotated[
    int | None, Parameter(help="Replicates; the scenario's where not given.")
]
ForceOption = Annotated[bool, Parameter(help="Replace an existing run folder.", negative="")]
JsonOption = Annotated[
    bool, Parameter(name="--json", help="Print one JSON document on stdout.", negative="")
]
JobsOption = Annotated[
    int,
    Parameter(
        name=["-j", "--jobs"],
        help="Worker processes; 0 is one per core.",
        validator=validators.Number(gte=0),
    ),
]
ClusterOption = Annotated[
    str | None,
    Parameter(help="tcp://HOST:PORT or tls://... of a dask scheduler, or local:N for one here."),
]
QuietOption = Annotated[bool, Parameter(help="No progress on stderr.", negative="")]


def command(verb: str, scenario: str, settings: list[str], *more: str) -> str:
    """Return the command that gives the same figures; folder and workers are left to the reader."""
    import shlex

    words = ["zerolayer", verb, scenario, *(w for s in settings for w in ("--set", s)), *more]
    return shlex.join([*words, "-o", "FOLDER"])


def overrides(settings: list[str] | None, replicates: int | None) -> list[str]:
    """Return ``--set`` and its short forms as one list."""
    short = [] if replicates is None else [f"replicates={replicates}"]
    return [*(settings or []), *short]
