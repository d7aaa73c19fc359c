"""What was measured on a GPU: one JSON file a card under ``kernels/measured/``, none invented.

``zerolayer kernels check --gpu`` writes them: card, date, versions, ceilings, launch and barrier
costs, times of every variant. Bounds and plans take launch costs from here where the card has a
file, else the constants of ``dispatch.hardware``, and say which.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from dispatch.errors import InputError
from dispatch.hardware.calibration import Launch

FOLDER: Final = Path(__file__).parent / "measured"
_COSTS: Final = ("graph_us", "eager_us", "barrier_us", "once_us")


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured costs of launches and barriers on one card, in microseconds; where they lie."""

    gpu: str
    date: str
    values: tuple[tuple[str, float], ...]
    path: str

    def launch(self, base: Launch) -> Launch:
        """Return *base* with what was measured put in."""
        return replace(base, **dict(self.values))


@cache
def costs(gpu: str) -> Costs | None:
    """Return the measured costs of a card of the catalogue; None where nobody measured it."""
    path = FOLDER / f"{gpu.lower()}.json"
    if not path.is_file():
        return None
    return read(path)


def read(path: Path) -> Costs:
    """Read one file of ``kernels check --gpu``; InputError where it is none."""
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = document["costs"]
        values = tuple((key, float(found[key])) for key in _COSTS if key in found)
        return Costs(str(document["gpu"]), str(document["date"]), values, str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"is no result of `zerolayer kernels check --gpu` ({error!r})"
        raise InputError.at(str(path), message, "write it again with that command") from None
