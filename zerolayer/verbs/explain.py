"""``zerolayer explain``: one request's story in every arm."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from zerolayer.options import JsonOption


def explain(
    run: Annotated[Path, Parameter(help="A run folder.")],
    request: Annotated[int, Parameter(help="The id of a request, as in requests.parquet.")],
    /,
    *,
    replicate: Annotated[int | None, Parameter(help="The first where not given.")] = None,
    picture: Annotated[Path | None, Parameter(help="Draw it into this file (.svg).")] = None,
    json: JsonOption = False,
) -> int:
    """Tell one request's story in every arm: what the graph said, how old it was, what happened."""
    from reports.explain import explain as tell
    from reports.explain import picture_svg
    from scenarios.folder import read_manifest
    from zerolayer.output import print_json

    if picture is not None:
        _check(picture)
    story = tell(run, read_manifest(run), request, replicate)
    if picture is not None:
        picture.write_text(picture_svg(story), encoding="utf-8")
    if json:
        print_json(story.as_dict())
    else:
        print(story.text())
    return 0


def _check(picture: Path) -> None:
    """Refuse a *picture* that is named as something else, or is a file of a run folder."""
    from dispatch.errors import InputError
    from scenarios.folder import MANIFEST

    if picture.suffix.lower() != ".svg":
        found = "is no name of a picture"
        raise InputError.at(str(picture), found, "SVG is written: name a file that ends in .svg")
    if picture.exists() and any((home / MANIFEST).is_file() for home in picture.resolve().parents):
        raise InputError.at(str(picture), "is a file of a run folder", "name a file outside of it")
