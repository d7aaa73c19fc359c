"""``zerolayer verify``: does a run folder come out the same again?"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from zerolayer.options import JobsOption, JsonOption, QuietOption

_SHOWN = 20


def verify(
    run: Annotated[Path, Parameter(help="A run folder.")],
    /,
    *,
    trace: Annotated[
        str | None, Parameter(help="The run's trace on this machine; its hash is checked.")
    ] = None,
    jobs: JobsOption = 0,
    quiet: QuietOption = False,
    json: JsonOption = False,
) -> int:
    """Run a folder again from its manifest and compare every figure at 1e-9.

    Exit code 0: the same; 1: damaged, or figures differ; 2: it cannot be run again here.
    """
    from scenarios.verify import verify as run_again
    from zerolayer.output import print_json

    found = run_again(run, trace=trace, jobs=jobs, quiet=quiet)
    if json:
        print_json(
            {
                "good": found.good,
                "damaged": found.damaged,
                "other_bytes": found.other_bytes,
                "figures": [[d.key, d.left, d.right] for d in found.figures],
                "notes": found.notes,
            }
        )
        return 0 if found.good else 1
    for text in (*found.damaged, *found.notes):
        print(text)
    for difference in found.figures[:_SHOWN]:
        print(f"{difference.key}: was {difference.left}, is {difference.right}")
    if len(found.figures) > _SHOWN:
        print(f"... and {len(found.figures) - _SHOWN} more figures that differ")
    if found.other_bytes and not found.figures:
        print(f"same figures, other bytes: {', '.join(found.other_bytes)}")
    print("verified: every figure is the same" if found.good else "NOT verified")
    return 0 if found.good else 1
