"""``zerolayer diff``: two run folders side by side."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from zerolayer.options import JsonOption


def diff(
    a: Annotated[Path, Parameter(help="A run folder.")],
    b: Annotated[Path, Parameter(help="Another one.")],
    /,
    *,
    json: JsonOption = False,
) -> int:
    """Compare two runs: what was asked differently, and which figures moved, with intervals.

    Exit code 0: the same settings and no figure moved; 1: something differs.
    """
    from reports.diff import compare
    from zerolayer.output import print_json, print_table

    found = compare(a, b)
    if json:
        print_json(found.as_dict())
    else:
        if found.settings:
            print_table("What was asked", ["key", "a", "b"], found.settings)
        rows = [moved.words() for moved in found.moved]
        print_table("What came out", ["figure", "a", "b", "change", ""], rows)
        for arm in found.only:
            print(f"only one of the runs has arm {arm}")
        print(f"verdict: {found.verdicts[0]} in a, {found.verdicts[1]} in b")
        if found.same_summary:
            print("the summaries are equal, byte for byte")
    same = found.same_summary or not (
        found.settings or found.only or any(moved.clear for moved in found.moved)
    )
    return 0 if same and found.verdicts[0] == found.verdicts[1] else 1
