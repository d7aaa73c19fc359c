"""A scenario file as written: its text, its overrides, and where each key came from."""

import copy
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from dispatch.errors import InputError, Problem, nearest
from scenarios.lines import LineIndex
from scenarios.overrides import Override, Path, apply, parse, show
from scenarios.problems import Finding, findings
from scenarios.schema import ArmConfig, Scenario

BUNDLED = FilePath(__file__).parent / "bundled"


def bundled_names() -> list[str]:
    """Return the names of the scenarios that come with the package."""
    return sorted(path.stem for path in BUNDLED.glob("*.toml"))


def find(source: str | FilePath) -> FilePath:
    """Return the file of a bundled name or a path; an InputError names near misses."""
    bundled = BUNDLED / f"{source}.toml"
    if "/" not in str(source) and bundled.is_file():
        return bundled
    path = FilePath(source)
    if path.is_dir():
        raise InputError.at(str(source), "is a folder", "expected a scenario file (TOML)")
    if not path.is_file():
        hint = nearest(str(source), bundled_names())
        raise InputError.at(str(source), "no such file, and no bundled scenario of that name", hint)
    return path


@dataclass(slots=True)
class Document:
    """A parsed scenario file, ready to be resolved under any number of override sets."""

    path: FilePath
    raw: dict[str, Any]
    index: LineIndex
    touched: dict[Path, str] = field(default_factory=dict)

    @classmethod
    def read(cls, source: str | FilePath) -> "Document":
        """Read and parse; a file that is no TOML names the line."""
        path = find(source)
        try:
            text = path.read_text(encoding="utf-8")
            raw = tomllib.loads(text)
        except UnicodeDecodeError as error:
            raise InputError.at(
                str(path), f"is no text (byte {error.start})", "expected TOML in UTF-8"
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise InputError(_syntax(path, str(error))) from None
        return cls(path, raw, LineIndex(text))

    def resolve(
        self,
        overrides: Sequence[str] = (),
        *,
        names: Callable[[dict[str, Any]], Iterable[Finding]] = lambda raw: (),
        check: Callable[[Scenario], Iterable[Finding]] = lambda scenario: (),
    ) -> Scenario:
        """Return the validated scenario, or raise an InputError with every problem at once.

        *names* looks at the merged document whatever its shape, *check* at a valid scenario.
        """
        parsed = [parse(text) for text in overrides]
        if problems := [p for p in parsed if isinstance(p, Problem)]:
            raise InputError(problems)
        settings = [p for p in parsed if isinstance(p, Override)]
        choice = [0] * len(settings)
        while True:
            draft = self._with(settings, choice)
            merged = draft.merged()
            try:
                scenario = Scenario.model_validate(merged)
            except ValidationError as error:
                found = findings(error)
                if _reread(draft, found, settings, choice):
                    continue
                raise InputError(draft.problems([*found, *names(merged)])) from None
            if found := list(names(merged)) or list(check(scenario)):
                raise InputError(draft.problems(found))
            return scenario

    def _with(self, settings: list[Override], choice: list[int]) -> "Document":
        draft = Document(self.path, copy.deepcopy(self.raw), self.index)
        problems: list[Problem] = []
        for setting, index in zip(settings, choice, strict=True):
            spots = apply(draft.raw, setting, setting.readings[index])
            if isinstance(spots, Problem):
                problems.append(spots)
            else:
                draft.touched.update(dict.fromkeys(spots, setting.text))
        if problems:
            raise InputError(problems)
        return draft

    def merged(self) -> dict[str, Any]:
        """Return the document with ``[defaults]`` merged under every arm."""
        whole = {key: value for key, value in self.raw.items() if key != "defaults"}
        defaults, arms = self.raw.get("defaults", {}), whole.get("arms")
        if not isinstance(defaults, dict):
            raise InputError(self.problems([(("defaults",), "is no table", "expected [defaults]")]))
        known = set(ArmConfig.model_fields) - {"name", "title"}
        if unknown := [key for key in defaults if key not in known]:
            raise InputError(
                self.problems(
                    [(("defaults", k), "unknown key", nearest(k, known)) for k in unknown]
                )
            )
        if isinstance(arms, list):
            whole["arms"] = [merge(defaults, arm) if isinstance(arm, dict) else arm for arm in arms]
        return whole

    def problems(self, found: Iterable[Finding]) -> list[Problem]:
        """Give each finding its file, line and key as the author wrote them, each once."""
        problems: dict[Problem, None] = {}
        for loc, what, way_out in found:
            path = self._origin(loc)
            problems[Problem(self._place(path), what, way_out)] = None
        return list(problems)

    def _origin(self, loc: Path) -> Path:
        """Return where a key of the merged document was written: in its arm or in defaults."""
        if len(loc) > 2 and loc[0] == "arms" and not _has(self.raw, loc):
            shared: Path = ("defaults", *loc[2:])
            if _has(self.raw, shared):
                return shared
        return loc

    def _place(self, path: Path) -> str:
        for end in range(len(path), 0, -1):
            if (text := self.touched.get(path[:end])) is not None:
                return f"--set {text}: {show(path)}"
        for spot, text in self.touched.items():
            if spot[: len(path)] == path and not _has_line(self.index, path):
                return f"--set {text}: {show(path)}"
        where = f"{shown(self.path)}:{self.index.line(path)}"
        return f"{where}: {show(path)}" if path else where


def shown(path: FilePath) -> str:
    """Write *path* as the user would: relative where it lies below the current folder."""
    here = FilePath.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def merge(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return *over* laid on *under*, table by table; lists and values replace.

    Parameters belong to the policy they were written for: another policy name drops them.
    """
    merged = dict(under)
    for key, value in over.items():
        below = under.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            if key == "policy" and value.get("name", below.get("name")) != below.get("name"):
                below = {k: v for k, v in below.items() if k != "params"}
            value = merge(below, value)
        merged[key] = value
    return merged


def _reread(
    draft: Document, found: list[Finding], settings: list[Override], choice: list[int]
) -> bool:
    """Take the next reading of each override that was read wrongly; False if none is left."""
    origins = [draft._origin(loc) for loc, _, _ in found]
    changed = False
    for number, setting in enumerate(settings):
        spots = [spot for spot, text in draft.touched.items() if text == setting.text]
        wrong = any(origin[: len(spot)] == spot for origin in origins for spot in spots)
        if wrong and choice[number] + 1 < len(setting.readings):
            choice[number] += 1
            changed = True
    return changed


def _has(raw: Any, path: Path) -> bool:
    for step in path:
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _has_line(index: LineIndex, path: Path) -> bool:
    return path in index.lines


def _syntax(path: FilePath, message: str) -> Problem:
    at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)", message)
    place = f"{shown(path)}:{at[1]}" if at and at[1] else shown(path)
    what = message[: at.start()] if at else message
    where = f" (column {at[2]})" if at and at[2] else " (at its end)" if at else ""
    return Problem(place, f"is no TOML: {what}{where}", "expected a scenario file")
