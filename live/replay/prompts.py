"""Prompts of the right token length, which share prefixes where the trace's block hashes do."""

from dispatch import keyed
from traces.trace import Trace


class Prompts:
    """Makes the token ids of each row of *trace*, below *vocab*; equal hashes give equal blocks."""

    def __init__(self, trace: Trace, vocab: int, seed: int = 0) -> None:
        self._trace = trace
        self._vocab = vocab
        self._shared = keyed.stream(seed, "replay.block")
        self._own = keyed.stream(seed, "replay.own")

    def ids(self, row: int) -> list[int]:
        """Return the prompt of *row*: shared blocks first, then tokens of its own."""
        trace = self._trace
        wanted = int(trace.prompt_tokens[row])
        size = trace.block_tokens or 1
        ids: list[int] = []
        for block in trace.blocks(row):
            if len(ids) + size > wanted:
                break
            ids += self._run(self._shared, block, size)
        return ids + self._run(self._own, row, wanted - len(ids))

    def _run(self, key: int, id_: int, count: int) -> list[int]:
        """Return *count* ids that hang on (key, id) alone: a step through the vocabulary."""
        if count <= 0:
            return []
        draw = keyed.bits(key, id_)
        start, step = draw % self._vocab, 1 + (draw >> 20) % 97
        return [(start + step * at * (1 + (draw >> 40) % 13)) % self._vocab for at in range(count)]
