"""One error tree for the whole house.

ZerolayerError
├── InputError            bad input or wrong use: exit code 2
│   └── UnknownNameError  a name that is not registered, with the near miss
├── NotMeasurable         a base or a device that cannot be measured: exit code 4
└── InvariantError        a bug of ours: books that do not balance
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FAULT: Final = 70
"""Exit code of what is neither a verdict nor bad input: EX_SOFTWARE of BSD's sysexits.h."""


class ZerolayerError(Exception):
    """Anything that zerolayer raises on purpose."""

    exit_code = FAULT


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where it is, what was found, and the way out."""

    place: str
    found: str
    way_out: str = ""

    def __str__(self) -> str:
        head = f"{self.place}: {self.found}" if self.place else self.found
        return f"{head}; {self.way_out}" if self.way_out else head


class InputError(ZerolayerError):
    """Input that cannot be used; carries every problem found, not only the first."""

    exit_code = 2

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = [problems] if isinstance(problems, Problem) else list(problems)
        super().__init__("\n".join(str(p) for p in self.problems))

    @classmethod
    def at(cls, place: str, found: str, way_out: str = "") -> "InputError":
        return cls(Problem(place, found, way_out))


class UnknownNameError(InputError):
    """A name that nothing is registered under."""

    def __init__(self, place: str, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(
            Problem(place, f"unknown {kind} {short(repr(name))}", nearest(name, known))
        )


class NotMeasurable(ZerolayerError):
    """A base or a device that cannot be measured."""

    exit_code = 4


class InvariantError(ZerolayerError):
    """Books that do not balance: a bug of ours, never of the input."""


def short(text: str, most: int = 60) -> str:
    """Return *text* in at most *most* characters: an echo is to be recognised, not to be read."""
    return text if len(text) <= most else text[: most - 3] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the way out for an unknown *name*: the near miss, else the known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(names)}" if names else "nothing is registered"
