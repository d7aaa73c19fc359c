"""Lengths that a source does not hold, filled for a replay, with the error of the rule stated."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dispatch import keyed
from dispatch.errors import InputError, Problem
from traces.rows import MISSING, Raw
from traces.trace import OUTPUT_ESTIMATED, PROMPT_ESTIMATED, Quirk, counted

_ENOUGH: Final = 20  # rows with both a length and a guess, to scale by and to measure the error on
_BITS: Final = {"prompt": PROMPT_ESTIMATED, "output": OUTPUT_ESTIMATED}


@dataclass(slots=True)
class Filled:
    """Both lengths without holes, which were estimated, and what is not known at all."""

    prompt: NDArray[np.int64]
    output: NDArray[np.int64]
    estimated: NDArray[np.int8] | None = None
    unknown: list[str] = field(default_factory=list)
    quirks: list[Quirk] = field(default_factory=list)
    cannot_tell: list[str] = field(default_factory=list)


def fill(
    place: str,
    raw: Raw,
    seed: int,
    partial: bool,
    guess_from: str = "bytes",
    output_error: str = "",
) -> Filled:
    """Fill missing lengths of *raw*.

    A row with a guess of its own (from bytes) takes that. Any other takes the length of a row drawn
    by *seed* among those that have one, so that mean and tail stay as they are. Where no row has a
    length the trace is refused, unless *partial*, and then the column is named in ``unknown``.
    *output_error* says how wrong outputs from bytes may be, where a reader knows that better.
    """
    filled = Filled(raw.prompt.copy(), raw.output.copy())
    marks = np.zeros(len(raw), np.int8)
    problems = []
    for name, column in (("prompt", filled.prompt), ("output", filled.output)):
        holes = column == MISSING
        if not holes.any():
            continue
        marks[holes] |= _BITS[name]
        guessed = _from_guess(raw, name, column, holes)
        left = holes & (column == MISSING)
        known = raw.prompt if name == "prompt" else raw.output
        known = known[known != MISSING]
        if left.any() and not len(known) and not guessed:
            filled.unknown.append(f"{name}_tokens")
            column[left] = 1
            problems.append(_nothing_known(place, name))
        elif left.any():
            pool = known if len(known) else column[column != MISSING]
            _draw(filled, raw, name, column, left, pool, seed)
        if guessed:
            known_error = output_error if name == "output" else ""
            _say_guess(filled, name, guessed, raw, guess_from, known_error)
    if problems and not partial:
        raise InputError(problems)
    if marks.any():
        filled.estimated = marks
    return filled


def _from_guess(raw: Raw, name: str, column: NDArray[np.int64], holes: NDArray[np.bool_]) -> int:
    """Fill *holes* from guesses, scaled to the rows that have both; return how many there were."""
    guesses = raw.extra.get(f"{name}_guess")
    if guesses is None:
        return 0
    have = holes & (guesses != MISSING)
    both = _both(raw, name)
    scale = 1.0
    if both.sum() >= _ENOUGH:
        true = raw.prompt if name == "prompt" else raw.output
        scale = float(np.median(true[both] / guesses[both]))
    raw.extra[f"{name}_guess"] = scaled = np.where(
        guesses == MISSING, MISSING, np.maximum(np.rint(guesses * scale), 1).astype(np.int64)
    )
    column[have] = scaled[have]
    return int(have.sum())


def _both(raw: Raw, name: str) -> NDArray[np.bool_]:
    true = raw.prompt if name == "prompt" else raw.output
    both: NDArray[np.bool_] = (true != MISSING) & (raw.extra[f"{name}_guess"] != MISSING)
    return both


def _draw(
    filled: Filled,
    raw: Raw,
    name: str,
    column: NDArray[np.int64],
    left: NDArray[np.bool_],
    pool: NDArray[np.int64],
    seed: int,
) -> None:
    # By place in the order of arrival: requests of one line share its number.
    draws = keyed.uniforms(keyed.stream(seed, f"missing {name}"), np.flatnonzero(left))
    column[left] = pool[np.minimum((draws * len(pool)).astype(np.int64), len(pool) - 1)]
    cap = raw.extra.get("max_tokens")
    if name == "output" and cap is not None:
        capped = left & (cap > 0)
        column[capped] = np.minimum(column[capped], cap[capped])
    rows = int(left.sum())
    error = "one length tells no error"
    if len(pool) > 1:
        share = mean_difference(pool) / float(pool.mean())
        error = f"mean absolute error {share:.0%} of the mean"
    text = (
        f"{counted(rows, 'row')} without {name} length: drawn by seed among the lengths of "
        f"the {len(pool):,} that have one, {error}"
    )
    filled.quirks.append(Quirk(f"{name}_missing", text, rows))
    filled.cannot_tell.append(
        f"the {name} length of {counted(rows, 'request')}: drawn from the others"
    )


def mean_difference(values: NDArray[np.int64]) -> float:
    """Return the mean absolute difference of two values drawn at random (Gini's)."""
    n = len(values)
    if n < 2:
        return 0.0
    weights = 2.0 * np.arange(1, n + 1) - n - 1
    return float(2.0 * np.dot(weights, np.sort(values)) / (n * (n - 1.0)))


def _say_guess(
    filled: Filled, name: str, rows: int, raw: Raw, guess_from: str, known_error: str
) -> None:
    """State the error of guesses: measured where enough rows have both, else as assumed."""
    guesses = raw.extra[f"{name}_guess"]
    true = raw.prompt if name == "prompt" else raw.output
    both = _both(raw, name)
    if both.sum() >= _ENOUGH:
        error = float(np.median(np.abs(guesses[both] - true[both]) / np.maximum(true[both], 1)))
        how = f"scaled to the {int(both.sum()):,} rows that have both, median error {error:.0%}"
    elif guess_from == "bytes":
        how = known_error or ASSUMED_ERROR[name]
    else:
        how = "the error of a single length cannot be told"
    text = f"{counted(rows, f'{name} length')} estimated from {guess_from}; {how}"
    filled.quirks.append(Quirk(f"{name}_estimated", text, rows))
    filled.cannot_tell.append(f"true {name} lengths: {rows:,} estimated from {guess_from}")


ASSUMED_ERROR: Final = {
    "prompt": "error not measurable here, taken as a factor of 1.5 either way "
    "(3 to 6 bytes a token in English text and code, plus headers)",
    "output": "error not measurable here, taken as a factor of 2 either way "
    "(a streamed event wraps a token in 100 to 250 bytes; a whole answer holds 3 to 6 a token)",
}


def _nothing_known(place: str, name: str) -> Problem:
    return Problem(
        place,
        f"no row has the length of its {name}",
        "use a gateway or OpenTelemetry log, which records token counts",
    )
