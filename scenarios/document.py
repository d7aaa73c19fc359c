"""A scenario file as written: its text, its overrides, and where each key came from."""

import copy
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from dispatch.errors import InputError, Problem, nearest, short
from scenarios.lines import LineIndex
from scenarios.overrides import DEEPEST, Override, Path, apply, echo, parse, show, too_deep
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
        if path.is_symlink():
            raise InputError.at(str(source), *_link(path))
        if path.exists():
            raise InputError.at(
                str(source), "is no file but a device or a pipe", "expected a scenario file (TOML)"
            )
        hint = nearest(str(source), bundled_names())
        found = "no such file, and no bundled scenario of that name"
        raise InputError.at(short(str(source), 200), found, hint)
    return path


def _link(path: FilePath) -> tuple[str, str]:
    """Return what is wrong with a link that leads to no file, and the way out."""
    try:
        path.stat()
    except FileNotFoundError:
        return f"is a link to {path.readlink()}, which is not there", "mend or remove the link"
    except OSError:
        return "is a link that leads back to itself", "mend or remove the link"
    return "is a link to a device or a pipe", "expected a scenario file (TOML)"


Names = Callable[[dict[str, Any]], Iterable[Finding]]
Check = Callable[[Scenario], Iterable[Finding]]


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
            text = path.read_text(encoding="utf-8-sig")  # with or without a byte order mark
            raw = tomllib.loads(text)
            if too_deep(raw):
                raise RecursionError
        except UnicodeDecodeError as error:
            raise InputError.at(
                str(path), f"is no text (byte {error.start})", "expected TOML in UTF-8"
            ) from None
        except tomllib.TOMLDecodeError as error:
            raise InputError(_syntax(path, str(error))) from None
        except ValueError as error:  # a number of more digits than Python reads
            raise InputError.at(shown(path), f"holds a number that is none: {error}") from None
        except RecursionError:
            raise InputError.at(
                shown(path), "is nested too deep", f"expected at most {DEEPEST} levels"
            ) from None
        return cls(path, raw, LineIndex(text))

    def resolve(
        self,
        overrides: Sequence[str] = (),
        *,
        names: Names = lambda raw: (),
        check: Check = lambda scenario: (),
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
            result = draft._judged(names, check)
            if isinstance(result, Scenario):
                return result
            misread = _reread(draft, result, settings, choice)
            if misread is None:
                break
            choice = misread
        draft = self._with(settings, first := _first_readings(draft, result, settings, choice))
        again = draft._judged(names, check)
        if isinstance(again, Scenario):  # pragma: no cover: then it had been taken above
            return again
        raise InputError(
            draft.problems(again, lambda loc, what: self._culprit(
                settings, first, (loc, what), names, check
            ))
        )  # fmt: skip

    def _judged(self, names: Names, check: Check) -> "Scenario | list[Finding]":
        """Return the scenario of this document, or everything that is wrong with it."""
        merged = self.merged()
        try:
            scenario = Scenario.model_validate(merged)
        except ValidationError as error:
            return [*findings(error), *names(merged)]
        return list(names(merged)) or list(check(scenario)) or scenario

    def _culprit(
        self, settings: list[Override], choice: list[int], finding: tuple[Path, str],
        names: Names, check: Check,
    ) -> str | None:  # fmt: skip
        """Return the override without which *finding* would not be, None where the file has it."""
        for without in range(len(settings) - 1, -1, -1):
            kept = [n for n in range(len(settings)) if n != without]
            try:
                draft = self._with([settings[n] for n in kept], [choice[n] for n in kept])
                result = draft._judged(names, check)
            except InputError:
                continue  # one that needs the other
            found = [] if isinstance(result, Scenario) else [(loc, what) for loc, what, _ in result]
            if finding not in found:
                return settings[without].text
        return None

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

    def problems(
        self,
        found: Iterable[Finding],
        culprit: Callable[[Path, str], str | None] = lambda loc, what: None,
    ) -> list[Problem]:
        """Give each finding its file, line and key as the author wrote them, each once.

        Where neither says so itself, *culprit* names the override that a finding comes from.
        """
        problems: dict[Problem, None] = {}
        for loc, what, way_out in found:
            path = self._origin(loc)
            text = self._setting(path) or culprit(loc, what)
            if text is not None:
                place = f"{echo(text)}: {short(show(path), 100)}" if path else echo(text)
            else:
                place = self._place(path)
            problems[Problem(place, what, way_out)] = None
        return list(problems)

    def _origin(self, loc: Path) -> Path:
        """Return where a key of the merged document was written: in its arm or in defaults."""
        if len(loc) > 2 and loc[0] == "arms" and not _has(self.raw, loc):
            shared: Path = ("defaults", *loc[2:])
            if _has(self.raw, shared):
                return shared
        return loc

    def _setting(self, path: Path) -> str | None:
        """Return the override that set *path*, or what it lies in."""
        for end in range(len(path), 0, -1):
            if (text := self.touched.get(path[:end])) is not None:
                return text
        for spot, text in self.touched.items():
            if path and spot[: len(path)] == path and path not in self.index.lines:
                return text
        return None

    def _place(self, path: Path) -> str:
        where = f"{shown(self.path)}:{self.index.line(path)}"
        return f"{where}: {short(show(path), 100)}" if path else where


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


def _misread(draft: Document, found: list[Finding], setting: Override) -> bool:
    """Return whether something is wrong where *setting* put its value, or below."""
    origins = [draft._origin(loc) for loc, _, _ in found]
    spots = [spot for spot, text in draft.touched.items() if text == setting.text]
    return any(origin[: len(spot)] == spot for origin in origins for spot in spots)


def _reread(
    draft: Document, found: list[Finding], settings: list[Override], choice: list[int]
) -> list[int] | None:
    """Return the next reading of each override that was read wrongly; None if none is left."""
    fresh = [
        at + 1 if at + 1 < len(setting.readings) and _misread(draft, found, setting) else at
        for at, setting in zip(choice, settings, strict=True)
    ]
    return None if fresh == choice else fresh


def _first_readings(
    draft: Document, found: list[Finding], settings: list[Override], choice: list[int]
) -> list[int]:
    """Return *choice* but for what no reading made right: that is told as it was written."""
    return [
        0 if _misread(draft, found, setting) else at
        for at, setting in zip(choice, settings, strict=True)
    ]


def _has(raw: Any, path: Path) -> bool:
    for step in path:
        try:
            raw = raw[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _syntax(path: FilePath, message: str) -> Problem:
    at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)", message)
    place = f"{shown(path)}:{at[1]}" if at and at[1] else shown(path)
    what = message[: at.start()] if at else message
    where = f" (column {at[2]})" if at and at[2] else " (at its end)" if at else ""
    return Problem(place, f"is no TOML: {what}{where}", "expected a scenario file")
