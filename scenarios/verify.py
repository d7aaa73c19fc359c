"""``verify``: run a folder again from its manifest; does every figure come out the same?"""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import reports.evidence
import reports.timeline
import traces
from dispatch.errors import InputError
from scenarios import folder, manifest, problems
from scenarios.compare import Difference, differences
from scenarios.extras import KINDS, extras
from scenarios.run import Finish, run
from scenarios.schema import Scenario
from scenarios.store import Store


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of it: damaged files, files whose bytes differ, figures that differ, and notes."""

    damaged: tuple[str, ...]
    other_bytes: tuple[str, ...]
    figures: tuple[Difference, ...]
    notes: tuple[str, ...]
    rerun: bool

    @property
    def good(self) -> bool:
        """Whether no file is damaged and every figure is the same."""
        return not self.damaged and not self.figures


def verify(
    place: Path, *, trace: str | None = None, jobs: int = 0, quiet: bool = False
) -> Verification:
    """Check a run folder's own hashes, run it again, and compare.

    Live runs are not run again: their figures are computed again from the journal. *trace* names
    the trace file on this machine; its hash must be the manifest's.
    """
    try:
        stated = folder.read_manifest(place)
    except InputError as error:
        if not _is_run(place):
            raise
        return Verification((str(error),), (), (), (), False)
    if lacking := _lacking(stated):
        return Verification((f"{folder.MANIFEST} lacks {lacking}",), (), (), (), False)
    if "arms" not in stated:
        raise InputError.at(
            str(place),
            "is no run of arms, but of whatif or plan",
            "give a folder that `zerolayer run`, `evidence` or `live replay` wrote",
        )
    damaged = _damaged(place, stated)
    notes = _notes(stated)
    if damaged and stated.get("world") == "live":  # nothing sound to compute figures from
        return Verification(damaged, (), (), notes, False)
    if stated.get("world") == "live":
        figures = _recomputed(place, stated)
        return Verification(damaged, (), figures, (*notes, "live: figures from the journal"), False)
    try:
        scenario = Scenario.model_validate(stated["scenario"])
    except ValidationError as error:
        key, wrong, _ = problems.findings(error)[0]
        where = ".".join(map(str, ("scenario", *key)))
        damaged = (*damaged, f"{folder.MANIFEST}: {where}: {wrong}")
        return Verification(damaged, (), (), notes, False)
    scenario = _with_trace(place, scenario, stated, trace)
    with tempfile.TemporaryDirectory(prefix="zerolayer-verify-") as scratch:
        again = Path(scratch) / "run"
        finish = _finish(place)
        extra = _extras(scenario, stated, jobs, quiet, Path(scratch))
        if "stopping" in stated:  # why there are so many replicates: said again, not found again
            extra["stopping"] = stated["stopping"]
        run(
            scenario,
            again,
            jobs=jobs,
            quiet=quiet,
            finish=finish,
            extra=extra,
            command=str(stated.get("command", "")),
        )
        fresh = folder.read_manifest(again)
        other = _other_bytes(stated, fresh)
        figures = _figures(place, again, stated, fresh)
    return Verification(damaged, other, figures, notes, True)


def _finish(place: Path) -> Finish | None:
    """Return what wrote the files beside the tables of *place*."""
    if (place / "summary.json").is_file():
        return reports.evidence.write
    return reports.timeline.write if (place / reports.timeline.FILE).is_file() else None


def _is_run(place: Path) -> bool:
    """Return whether *place* holds a manifest, whatever is in it, and the table of a run."""
    return all((place / name).is_file() for name in (folder.MANIFEST, "requests.parquet"))


def _lacking(stated: Mapping[str, Any]) -> str:
    """Return the keys of a run of arms that its manifest lacks, "" where it is no such run."""
    if "arms" not in stated:
        return ""
    wanted = ("arms", "code", "files", "scenario", "trace")
    return ", ".join(key for key in wanted if not isinstance(stated.get(key), Mapping))


def _with_trace(
    place: Path, scenario: Scenario, stated: Mapping[str, Any], trace: str | None
) -> Scenario:
    """Return *scenario* with its trace where it lies here; its hash must be the run's."""
    if trace is None:
        return scenario
    found = traces.read(trace, format=scenario.trace.format)
    wanted = stated["trace"].get("sha256")
    if wanted and found.sha256 != wanted:
        raise InputError.at(
            trace, f"has sha256 {found.sha256}", f"the run in {place} replayed {wanted}"
        )
    config = scenario.trace.model_copy(update={"source": trace})
    return scenario.model_copy(update={"trace": config})


def _extras(
    scenario: Scenario, stated: Mapping[str, Any], jobs: int, quiet: bool, scratch: Path
) -> dict[str, Any]:
    """Run again what the run carries beside its arms; nothing comes from a store."""
    wanted = [kind for kind in KINDS if kind in stated]
    return extras(scenario, wanted, jobs=jobs, quiet=quiet, store=Store(scratch / "store"))


def _damaged(place: Path, stated: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    for name, sha256 in sorted(stated.get("files", {}).items()):
        path = place / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif manifest.file_hash(path) != sha256:
            found.append(f"{name} is not the file that the manifest names")
    summary = place / "summary.json"
    if not found and summary.is_file() and not isinstance(_json(summary), dict):
        found.append("summary.json holds no figures")
    return tuple(found)


def _notes(stated: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    code = manifest.code_version()
    if stated["code"].get("sha256") != code["sha256"]:
        notes.append("the code differs from the run's")
    changed = differences(stated.get("packages", {}), manifest.packages())
    notes += [f"{d.key} was {d.left}, is {d.right}" for d in changed]
    return tuple(notes)


def _other_bytes(stated: Mapping[str, Any], fresh: Mapping[str, Any]) -> tuple[str, ...]:
    left, right = dict(stated["files"]), dict(fresh["files"])
    return tuple(sorted(name for name in left if left[name] != right.get(name)))


def _figures(
    place: Path, again: Path, stated: Mapping[str, Any], fresh: Mapping[str, Any]
) -> tuple[Difference, ...]:
    """Compare the facts of every arm and, where there is one, the summary of the report."""
    found = [
        replace(d, key=f"{part}.{d.key}")
        for part in ("arms", "factorial", "factorial_variants", "maps", "drills")
        for d in differences(stated.get(part), fresh.get(part))
    ]
    if (place / "summary.json").is_file() and _json(place / "summary.json") is not None:
        found += differences(_json(place / "summary.json"), _json(again / "summary.json"))
    return tuple(found)


def _recomputed(place: Path, stated: Mapping[str, Any]) -> tuple[Difference, ...]:
    figures = reports.evidence.analyse(place, stated).as_dict()
    plain = json.loads(json.dumps(figures))
    stands = _json(place / "summary.json")
    return () if stands is None else tuple(differences(stands, plain))


def _json(path: Path) -> Any:
    """Return what a file holds, None where it holds no JSON: its hash tells that it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
