"""Generated conversations: turns that grow, system prompts that many share, prefix blocks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispatch import keyed
from traces.synthetic import TraceModel
from traces.trace import IntColumn, Trace

Starts = Callable[[TraceModel, int], Iterator[NDArray[np.float64]]]


@dataclass(slots=True)
class Conversations:
    """Draws whole conversations and returns their turns in arrival order.

    A turn's prompt is its system prompt, everything said before, and a new question; the lengths of
    the model are the question's and the answer's. What would pass ``prompt.longest`` ends the
    conversation.
    """

    chosen: TraceModel
    seed: int

    def trace(self, starts: Starts) -> Trace:
        """Return the trace; *starts* yields when conversations begin."""
        from traces.synth import _CANNOT, lengths, quirk

        chosen = self.chosen
        talks = self._talks()
        begin = _first_of(starts(chosen, self.seed), len(talks))
        turn, owner = _turns(talks)
        prompt, output = lengths(chosen, begin[owner], self.seed, 0)
        arrival = begin[owner] + self._waits(turn, output)
        system = self._system(len(talks))
        history = _before(turn, prompt.astype(np.int64) + output) + np.where(
            system[owner] >= 0, chosen.prefixes.tokens, 0
        )
        total = history + prompt
        keep = total <= chosen.prompt.longest
        if chosen.duration_s is not None:
            keep &= arrival < chosen.duration_s
        order = np.flatnonzero(keep)
        order = order[np.argsort(arrival[order], kind="stable")][: chosen.requests]
        made = Trace(
            arrival[order] - arrival[order[0]] if len(order) else arrival[order],
            total[order].astype(np.int32),
            output[order],
            session=owner[order].astype(np.int64) if chosen.sessions.turns_mean > 1 else None,
            quirks=(quirk(chosen),),
            cannot_tell=_CANNOT,
        )
        return self._with_blocks(made, owner[order], system[owner[order]])

    def _talks(self) -> IntColumn:
        """Return the number of turns of each conversation, enough for all requests."""
        mean = self.chosen.sessions.turns_mean
        draw = keyed.generator(self.seed, "turns")
        talks = int(self.chosen.requests / mean * 1.2) + 64
        while True:
            turns = draw.geometric(1.0 / mean, talks).astype(np.int64)
            # Conversations cut short by the end of the trace leave room for some more.
            if turns.sum() >= self.chosen.requests * 1.1:
                return turns
            talks *= 2

    def _waits(self, turn: IntColumn, output: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the time from a conversation's start to each of its turns."""
        model = self.chosen.sessions
        gaps = keyed.generator(self.seed, "thinking").exponential(model.think_s, len(turn))
        gaps = gaps + output * model.answer_s_per_token
        return _before(turn, gaps)

    def _system(self, talks: int) -> IntColumn:
        """Return which system prompt each conversation begins with; -1 for none."""
        model = self.chosen.prefixes
        if not model.count:
            return np.full(talks, -1, np.int64)
        draw = keyed.generator(self.seed, "system prompts")
        weights = 1.0 / np.arange(1, model.count + 1) ** model.zipf
        picks = np.searchsorted(np.cumsum(weights) / weights.sum(), draw.random(talks))
        picks = np.minimum(picks, model.count - 1)
        return np.where(draw.random(talks) < model.share, picks, -1).astype(np.int64)

    def _with_blocks(self, made: Trace, owner: IntColumn, system: IntColumn) -> Trace:
        """Add prefix blocks: whole blocks of a shared system prompt first, then the talk's own."""
        from dataclasses import replace

        size = self.chosen.block_tokens
        if not size:
            return made
        counts = -(-made.prompt_tokens.astype(np.int64) // size)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        row = np.repeat(np.arange(len(made)), counts)
        place = np.arange(int(offsets[-1])) - offsets[row]
        shared = (system[row] >= 0) & (place < self.chosen.prefixes.tokens // size)
        # One id a (kind, conversation or system prompt, place): the high bit tells kinds apart.
        hashes = np.where(
            shared, (np.int64(1) << 62) + (system[row] << 32) + place, (owner[row] << 32) + place
        )
        # A last block that is not full differs from the full one of the next turn.
        partial = (place + 1) * size > made.prompt_tokens[row]
        hashes = np.where(partial & ~shared, (np.int64(1) << 61) + row, hashes)
        return replace(
            made, block_hashes=hashes.astype(np.int64), block_offsets=offsets, block_tokens=size
        )


def _turns(talks: IntColumn) -> tuple[IntColumn, IntColumn]:
    """Return for each turn its place in its conversation, and which conversation that is."""
    owner = np.repeat(np.arange(len(talks)), talks)
    first = np.cumsum(talks) - talks
    return np.arange(len(owner)) - first[owner], owner


def _before(turn: IntColumn, values: NDArray[np.generic]) -> NDArray[np.float64]:
    """Return for each turn the sum of *values* over the turns before it in its conversation."""
    sums = np.concatenate([[0], np.cumsum(values)])[:-1]
    first = np.flatnonzero(turn == 0)
    length = np.diff(np.append(first, len(turn)))
    start = np.repeat(sums[first], length)
    return np.asarray(sums - start)


def _first_of(parts: Iterator[NDArray[np.float64]], count: int) -> NDArray[np.float64]:
    gathered: list[NDArray[np.float64]] = []
    while sum(map(len, gathered)) < count:
        gathered.append(next(parts))
    return np.concatenate(gathered)[:count]
