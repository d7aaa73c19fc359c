"""Read, override, validate and check a scenario in one go."""

from collections.abc import Sequence
from pathlib import Path

from scenarios.check import found_in, names
from scenarios.document import Document
from scenarios.schema import Scenario


def load(source: str | Path, overrides: Sequence[str] = ()) -> Scenario:
    """Return the checked scenario, or raise an InputError with every problem found."""
    return resolve(Document.read(source), overrides)


def resolve(document: Document, overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario of *document* under *overrides*: cheap enough for cells of a grid."""
    return document.resolve(overrides, names=names, check=found_in)
