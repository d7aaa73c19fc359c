"""Any table with a column map: CSV, JSON lines or Parquet, with dotted paths into objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dispatch.errors import InputError, Problem, nearest
from traces import values
from traces.assemble import Facts
from traces.formats.base import Base, Format, Options, Record
from traces.rows import MISSING, BadRow, Row
from traces.trace import CACHED, FAILED

ROLES: Final = (
    "arrival", "prompt", "output", "model", "session", "max_tokens", "status", "priority",
    "precision", "kernel_hint", "request", "duration", "ttft", "blocks",
)  # fmt: skip
_GOOD: Final = frozenset(
    {"", "ok", "success", "succeeded", "true", "finished", "completed", "stop"}
)
_CACHED: Final = frozenset({"cached", "cache_hit", "hit"})
_ARRIVAL: Final = (
    "arrival", "arrival_time", "arrived_at", "arrival_timestamp", "arrival_s", "arrival_time_s",
    "arrival_ms", "arrival_time_ms", "arrival_ns", "arrival_us", "timestamp", "timestamp_ms",
    "timestamp_s", "timestamp_ns", "timestamp_us", "start_time", "request_time", "created_at",
    "time", "ts", "ts_ms", "time_s",
)  # fmt: skip
_PROMPT: Final = (
    "prompt_tokens", "input_tokens", "prompt_len", "input_len", "input_length", "prompt_length",
    "context_tokens", "num_prefill_tokens", "prompt_size", "in_tokens", "input_toks", "prompt",
)  # fmt: skip
_OUTPUT: Final = (
    "output_tokens", "completion_tokens", "output_len", "output_length", "generated_tokens",
    "generation_tokens", "num_decode_tokens", "token_size", "out_tokens", "output_toks", "output",
)  # fmt: skip


def unit_of(name: str) -> str | None:
    """Return the unit that a column name ends in, None where it names none."""
    for unit in ("ns", "us", "ms", "s"):
        if name.lower().endswith(f"_{unit}"):
            return unit
    return None


@dataclass(frozen=True, slots=True)
class Guess:
    """Columns that a map can be made of by their names alone."""

    columns: dict[str, str]
    why: str


def guess(names: Iterable[str]) -> Guess | None:
    """Return a map for columns of the usual names, None unless all three that matter are there."""
    by_name = {name.strip().lower(): name for name in names}
    found = {}
    for role, usual in (("arrival", _ARRIVAL), ("prompt", _PROMPT), ("output", _OUTPUT)):
        hit = next((by_name[name] for name in usual if name in by_name), None)
        if hit is None:
            return None
        found[role] = hit
    for role in ("model", "session", "max_tokens", "status", "priority", "precision",
                 "kernel_hint", "duration", "ttft"):  # fmt: skip
        hit = by_name.get(role, by_name.get(f"{role}_s"))
        if hit is not None:
            found[role] = hit
    listed = ", ".join(f"{role}={name}" for role, name in found.items())
    return Guess(found, f"its columns have usual names, taken as --map {listed}")


def parse_map(text: str) -> dict[str, str]:
    """Return ``role=column,...`` as a map; every wrong role is named with its near miss."""
    found: dict[str, str] = {}
    problems = []
    for part in text.split(","):
        role, sign, column = part.strip().partition("=")
        if not sign or not column:
            problems.append(Problem("--map", f"{part!r} is no role=column"))
        elif role not in ROLES:
            problems.append(Problem("--map", f"unknown role {role!r}", nearest(role, ROLES)))
        elif role in found:
            problems.append(Problem("--map", f"role {role!r} is given twice"))
        else:
            found[role] = column
    if not problems and "arrival" not in found:
        problems.append(Problem("--map", "names no arrival", "add arrival=COLUMN"))
    if problems:
        raise InputError(problems)
    return found


class Columns(Base):
    """Rows by a column map; a time without a unit must be ISO or count from 1970."""

    def __init__(self, options: Options, columns: Mapping[str, str] | None = None) -> None:
        self._map = dict(columns or options.columns)
        self._unit = options.unit or unit_of(self._map.get("arrival", ""))
        self._found: str | None = None

    def rows(self, record: Record) -> Iterable[Row]:
        row = Row(
            arrival_ns=self._time_ns(record),
            prompt=self._length(record, "prompt"),
            output=self._length(record, "output"),
            max_tokens=values.tokens(self._get(record, "max_tokens"), "max_tokens") or MISSING,
            request=values.text(self._get(record, "request")) or None,
            session=values.text(self._get(record, "session")) or None,
            model=values.text(self._get(record, "model")),
            precision=values.text(self._get(record, "precision")),
            kernel_hint=values.text(self._get(record, "kernel_hint")),
            duration_s=self._seconds(record, "duration"),
            ttft_s=self._seconds(record, "ttft"),
        )
        row.priority = max(0, values.tokens(self._get(record, "priority"), "priority"))
        row.status = _status(self._get(record, "status"))
        if row.status:
            row.output = MISSING
        blocks = self._get(record, "blocks")
        if blocks is not None:
            row.blocks = values.block_ids(list(blocks), self._map["blocks"])
        return (row,)

    def _get(self, record: Record, role: str) -> Any:
        """Return the value of a role: the column of that name, else a path into objects."""
        name = self._map.get(role)
        if name is None:
            return None
        if name in record:
            return record[name]
        node: Any = record
        for key in name.split("."):
            if not isinstance(node, dict) or key not in node:
                return None
            node = node[key]
        return node

    def _length(self, record: Record, role: str) -> int:
        if role not in self._map:
            return MISSING
        count = values.tokens(self._get(record, role), self._map[role])
        if count == 0:
            raise BadRow(f"{self._map[role]} is 0; a request has at least one token")
        if count == MISSING and "status" not in self._map and role == "prompt":
            raise BadRow(f"{self._map[role]} is missing")
        return count

    def _seconds(self, record: Record, role: str) -> float:
        name = self._map.get(role, "")
        return values.seconds(self._get(record, role), name, unit_of(name) or "s")

    def _time_ns(self, record: Record) -> int:
        value = self._get(record, "arrival")
        name = self._map["arrival"]
        if self._unit is not None:
            return values.time_ns(value, self._unit, name)
        unit = None if values.is_absent(value) else values.epoch_unit(value)
        if unit is not None and unit != (self._found or unit):
            raise BadRow(
                f"{name} is {values.clip(value)}, in {unit}; those above are in {self._found}"
            )
        if unit is None and not values.is_absent(value):
            raise BadRow(
                f"{name} is {values.clip(value)}: neither ISO nor a time since 1970; "
                "say what it counts, --unit s (or ms, us, ns)"
            )
        self._found = unit
        return values.time_ns(value, unit or "s", name)

    def facts(self) -> Facts:
        limits = [
            text
            for role, text in (
                ("status", "requests that failed, were dropped or retried, if the table has none"),
                ("max_tokens", "the max_tokens that callers asked for"),
                ("session", "which requests belong to one conversation"),
                ("model", "which model a request asked for"),
                ("blocks", "which prompts share a prefix: it has no prefix blocks"),
            )
            if role not in self._map
        ]
        return Facts("columns", cannot_tell=tuple(limits))


def _status(value: Any) -> int:
    if values.is_absent(value):
        return 0
    if isinstance(value, bool):
        return 0 if value else FAILED
    text = str(value).strip().lower()
    if text in _CACHED:
        return CACHED
    if text.isdigit():
        return 0 if text == "0" or 200 <= int(text) < 300 else FAILED
    return 0 if text in _GOOD else FAILED


COLUMNS: Final = Format(
    "columns", "any CSV, JSON lines or Parquet with --map arrival=...,prompt=...,output=...",
    "csv", Columns,
)  # fmt: skip
FORMATS: Final = (COLUMNS,)
