"""Times and tiles that were measured on a card, by shape: what a plan takes before any prediction.

``zerolayer kernels tune`` and ``kernels check --gpu`` write them, as JSON below
``kernels/measured/``; none is shipped that nobody measured. An entry counts for its card, block,
phase, type of weights, triton (major.minor), and the powers of two about its batch and length.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, cast

from dispatch.errors import InputError
from dispatch.hints import COST_PLANS, LaunchShape
from kernels import measured
from kernels.spec import BlockSpec, Tiling

TUNABLE: Final = ("bn", "bk", "warps", "stages", "warm", "dependent")
"""Tiles that may be tuned. Splits may not: a request's own length fixes them, in any company."""
_KEYS: Final = ("phase", "spec", "dtype", "batch", "length", "shape", "us")
_SPEC: Final = tuple(f.name for f in fields(BlockSpec) if f.name != "eps")


@dataclass(frozen=True, slots=True)
class Entry:
    """One launch shape at one point: microseconds a block, its tiles and programs an SM."""

    phase: str
    spec: tuple[Any, ...]
    dtype: str
    batch: int
    length: int
    shape: LaunchShape
    us: float
    tiling: tuple[tuple[str, int | bool], ...] = ()
    programs_per_sm: int = 1

    def tiles(self, base: Tiling) -> Tiling:
        """Return *base* with the tuned tiles put in."""
        changes: dict[str, Any] = dict(self.tiling)
        return replace(base, **changes)


@dataclass(frozen=True, slots=True)
class Table:
    """What was measured on one card with one triton."""

    date: str
    triton: str
    entries: tuple[Entry, ...]

    def find(
        self, spec: BlockSpec, phase: str, dtype: str, batch: int, length: int, triton: str = ""
    ) -> dict[LaunchShape, Entry]:
        """Return the quickest entry of each shape at the nearest point of the same bucket.

        *triton* empty asks for no version; another major.minor than the table's finds nothing.
        """
        if triton and _minor(triton) != _minor(self.triton):
            return {}
        key = (phase, spec_key(spec), dtype, bucket(batch), bucket(length))
        near = [
            e for e in self.entries
            if (e.phase, e.spec, e.dtype, bucket(e.batch), bucket(e.length)) == key
        ]  # fmt: skip
        if not near:
            return {}
        point = min(
            ((e.batch, e.length) for e in near),
            key=lambda at: (abs(at[0] - batch), abs(at[1] - length), at),
        )
        found: dict[LaunchShape, Entry] = {}
        for entry in sorted(near, key=lambda e: (e.us, e.tiling)):
            if (entry.batch, entry.length) == point:
                found.setdefault(entry.shape, entry)
        return found


def bucket(count: int) -> int:
    """Return the power of two at or above *count*."""
    return 1 << max(count - 1, 0).bit_length()


def spec_key(spec: BlockSpec) -> tuple[Any, ...]:
    """Return what of a block decides its time."""
    return tuple(getattr(spec, name) for name in _SPEC)


def row(
    spec: BlockSpec, phase: str, dtype: str, batch: int, length: int, shape: LaunchShape,
    us: float, tiling: Tiling | None = None, programs_per_sm: int = 1,
) -> dict[str, Any]:  # fmt: skip
    """Return one entry as it stands in a file."""
    told = {} if tiling is None else {name: getattr(tiling, name) for name in TUNABLE}
    block = {name: value for name, value in asdict(spec).items() if name in _SPEC}
    return {
        "kind": "tuned", "phase": phase, "spec": block, "dtype": dtype, "batch": batch,
        "length": length, "shape": shape, "us": us, "tiling": told,
        "programs_per_sm": programs_per_sm,
    }  # fmt: skip


def table(gpu: str, folder: Path | None = None) -> Table | None:
    """Return what was measured on a card of the catalogue; None where nobody tuned it."""
    return _table(gpu, measured.FOLDER if folder is None else folder)


def path_of(gpu: str, folder: Path) -> Path:
    """Return the file that ``kernels tune`` writes for a card."""
    return folder / f"{gpu.lower()}.tuned.json"


@lru_cache(maxsize=64)
def _table(gpu: str, folder: Path) -> Table | None:
    for path in (path_of(gpu, folder), folder / f"{gpu.lower()}.json"):
        if path.is_file():
            found = read(path)
            if found.entries:
                return found
    return None


def read(path: Path) -> Table:
    """Read one file; InputError names the row and key that cannot be used."""
    again = "write it again with `zerolayer kernels tune`"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        rows, date = document["rows"], str(document["date"])
        triton = str(document["versions"]["triton"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError.at(str(path), f"is no table of kernels ({error!r})", again) from None
    wanted = [(at, r) for at, r in enumerate(rows) if r.get("kind") == "tuned"]
    return Table(date, triton, tuple(_entry(path, at, r, again) for at, r in wanted))


def _entry(path: Path, at: int, told: Mapping[str, Any], again: str) -> Entry:
    place = f"{path}, row {at}"
    missing = [key for key in _KEYS if key not in told]
    if missing:
        raise InputError.at(place, f"lacks {', '.join(missing)}", again)
    tiling: Mapping[str, Any] = told.get("tiling") or {}
    wrong = [name for name in tiling if name not in TUNABLE]
    if wrong:
        raise InputError.at(
            place, f"tunes {', '.join(sorted(wrong))}", f"only {', '.join(TUNABLE)} may be tuned"
        )
    shape, us = told["shape"], told["us"]
    if shape not in COST_PLANS:
        raise InputError.at(place, f"shape {shape!r}", f"one of {', '.join(COST_PLANS)}")
    if not isinstance(us, int | float) or not 0 < us < 1e9:
        raise InputError.at(place, f"us = {us!r}", "a time above 0, in microseconds")
    try:
        block = spec_key(BlockSpec(**told["spec"]))
        batch, length = int(told["batch"]), int(told["length"])
        per_sm = int(told.get("programs_per_sm", 1))
    except (TypeError, ValueError) as error:
        raise InputError.at(place, f"is no entry ({error})", again) from None
    return Entry(
        str(told["phase"]), block, str(told["dtype"]), batch, length, cast(LaunchShape, shape),
        float(us), tuple(sorted(tiling.items())), per_sm,
    )  # fmt: skip


def _minor(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])
