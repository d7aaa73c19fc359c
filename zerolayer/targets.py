"""Files that verbs write: never one that they read, and whole or not at all."""

from collections.abc import Iterable
from pathlib import Path

from dispatch.errors import InputError


def ready(target: Path, inputs: Iterable[str | Path], others: Iterable[Path | None] = ()) -> None:
    """Refuse a *target* that cannot be written or is read too, before any work is done.

    Two names are one file through links, hard or symbolic, too. What is written beside the target
    while the work goes on is held to the same. *others* are further files that the verb writes.
    """
    from traces import export

    export.reachable(target)
    for path in map(Path, inputs):
        for written in (target, *export.parts_of(target)):
            if _same(written, path):
                how = "is the input itself" if written == target else "would overwrite its input"
                raise InputError.at(str(target), how, "name another file")
    for other in others:
        if other is not None and (other == target or _same(other, target)):
            raise InputError.at(str(target), "is to be written twice", "name two files")


def _same(one: Path, other: Path) -> bool:
    """Return whether two paths lead to one file; a file that is not there is no other's."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def write_text(target: Path, text: str) -> None:
    """Write *text* to *target* as UTF-8, whole or not at all."""
    from traces import export

    export.reachable(target)
    part = export.parts_of(target)[0]
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as error:
        raise InputError.at(str(target), f"cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)
