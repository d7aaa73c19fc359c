"""One pool of KV blocks for running requests and the prefix cache, as vLLM keeps it.

A full block of a prompt is known by its hash and held once, however many requests run with it;
each of them counts as a holder. A block without a holder stays readable and is free all the same:
it goes when its room is needed. Held + idle + empty is the pool, at any moment.
"""

from typing import Literal

from sortedcontainers import SortedSet

from dispatch.errors import InputError, InvariantError
from sim.memory import PagedKv
from sim.prefixes import Prefixes
from sim.sequence import DECODE, Sequence


class Residents:
    """Blocks by hash: how many hold each, and which of those without a holder goes next.

    "lru": released longest ago; "lfu": held the fewest times since it came in, of those the longest
    ago; "length": the deepest in its prompt, of those the longest ago. A request releases its last
    block first, so that a prompt goes from its end.
    """

    def __init__(self, evict: Literal["lru", "lfu", "length"]) -> None:
        self._evict = evict
        self._holders: dict[int, int] = {}
        self._weights: dict[int, int] = {}
        self._places: dict[int, tuple[int, int, int]] = {}  # of the idle, in the line
        self._line: SortedSet = SortedSet()  # (weight, released, hash), the next to go first
        self._clock = 0

    @property
    def held(self) -> int:
        """Blocks that somebody holds."""
        return len(self._holders) - len(self._places)

    @property
    def idle(self) -> int:
        """Blocks that nobody holds."""
        return len(self._places)

    def match(self, hashes: tuple[int, ...], limit: int) -> int:
        """Return how many leading *hashes* are here, up to *limit*."""
        holders = self._holders
        for place in range(min(limit, len(hashes))):
            if hashes[place] not in holders:
                return place
        return min(limit, len(hashes))

    def is_idle(self, block: int) -> bool:
        """Return whether *block* is here and nobody holds it."""
        return block in self._places

    def idle_among(self, hashes: tuple[int, ...]) -> int:
        """Return how many of *hashes*, all of them here, nobody holds."""
        return sum(not self._holders[block] for block in hashes)

    def hold(self, hashes: tuple[int, ...]) -> None:
        """Count one more holder of each of *hashes*, all of them here."""
        for block in hashes:
            place = self._places.pop(block, None)
            if place is not None:
                self._line.remove(place)
            self._holders[block] += 1
            if self._evict == "lfu":
                self._weights[block] += 1

    def bring(self, block: int, depth: int) -> bool:
        """Take in *block* with one holder; False where it is here already."""
        if block in self._holders:
            return False
        self._holders[block] = 1
        self._weights[block] = {"lru": 0, "lfu": 1, "length": -depth}[self._evict]
        return True

    def release(self, hashes: list[int]) -> int:
        """Count one holder less of each of *hashes*, last first; return how many became idle."""
        idle = 0
        for block in reversed(hashes):
            if self._holders[block] < 1:
                raise InvariantError(f"block {block} is released by somebody who does not hold it")
            self._holders[block] -= 1
            if not self._holders[block]:
                self._clock += 1
                place = self._places[block] = (self._weights[block], self._clock, block)
                self._line.add(place)
                idle += 1
        return idle

    def evict(self) -> int:
        """Forget the idle block that goes next and return its hash."""
        block: int = self._line[0][2]
        self.forget(block)
        return block

    def forget(self, block: int) -> None:
        """Forget *block*, which nobody holds."""
        if self._holders[block]:
            raise InvariantError(f"block {block} is freed while it is held")
        self._line.remove(self._places.pop(block))
        del self._holders[block], self._weights[block]

    def clear(self) -> None:
        """Forget everything, as a restart does."""
        for part in (self._holders, self._weights, self._places, self._line):
            part.clear()


class SharedKv(PagedKv):
    """Paged KV whose full prompt blocks are held once for all that run with them.

    ``free`` counts blocks that nobody holds, idle ones included: what the engine can hand out, and
    what it tells as free. A block of the trace is a whole number of KV blocks, or is refused.
    """

    def __init__(
        self, capacity_tokens: int, bytes_per_token: float, block_tokens: int, whole: bool,
        evict: Literal["lru", "lfu", "length"],
    ) -> None:  # fmt: skip
        super().__init__(capacity_tokens, bytes_per_token, block_tokens, whole)
        self.residents = Residents(evict)
        self.unit = 1  # KV blocks that one block of the trace takes
        self._held: dict[Sequence, list[int]] = {}
        self._brought: dict[Sequence, list[int]] = {}  # of these, what it computes itself
        self._own: dict[Sequence, int] = {}  # KV blocks that a prompt under way has to itself
        self._shared: dict[Sequence, int] = {}  # KV blocks of its context that are not its own

    def found(self, sequence: Sequence) -> tuple[int, int]:
        """Return the leading blocks of *sequence* that are here, and the tokens they spare it.

        At least the last token is computed, and with it the KV block that it is in.
        """
        size = self.block_tokens
        self.unit, rest = divmod(sequence.block_tokens, size)
        if rest:
            raise InputError.at(
                "engine.block_tokens",
                f"is {size}, and the trace's blocks of {sequence.block_tokens} tokens are no "
                "whole number of these",
                "set a divisor, or engine.prefix_sharing = false",
            )
        full = sequence.prompt // sequence.block_tokens
        count = self.residents.match(sequence.hashes, full)
        return count, min(count * sequence.block_tokens, (sequence.prompt - 1) // size * size)

    def need(self, sequence: Sequence, chunk: int) -> int:
        """Return the blocks that the next *chunk* tokens of a prefill take off the free ones."""
        if not sequence.hashes or sequence in self._held:
            return super().need(sequence, chunk)
        count, spared = self.found(sequence)
        last = min(spared + chunk, sequence.target)
        if self.whole:
            last = sequence.prompt + sequence.max_tokens
        idle = self.residents.idle_among(sequence.hashes[:count])
        return self._count(last) - spared // self.block_tokens + self.unit * idle

    def take(self, sequence: Sequence, chunk: int, growth: int) -> bool:
        """Reserve blocks for *chunk* more tokens of a prefill; False where too few are free."""
        if not sequence.hashes:
            return super().take(sequence, chunk, growth)
        need = self.need(sequence, chunk)
        if need > self.free - growth:
            return False
        self.free -= need
        if sequence not in self._held:
            count, spared = self.found(sequence)
            known = sequence.hashes[:count]
            need -= self.unit * self.residents.idle_among(known)
            self.residents.hold(known)
            self._held[sequence] = list(known)
            self._own[sequence] = 0
            self._shared[sequence] = spared // self.block_tokens
        self._own[sequence] += need
        if sequence.computed + chunk == sequence.target:
            self._bring(sequence)
        return True

    def _bring(self, sequence: Sequence) -> None:
        """Let others share what *sequence* is about to compute: every full block of its prompt."""
        held, brought = self._held[sequence], self._brought.setdefault(sequence, [])
        full = sequence.prompt // sequence.block_tokens
        for depth in range(len(held), min(full, len(sequence.hashes))):
            if self.residents.bring(sequence.hashes[depth], depth):
                held.append(sequence.hashes[depth])
                brought.append(sequence.hashes[depth])
                self._own[sequence] -= self.unit
                self._shared[sequence] += self.unit

    def give_back(self, sequence: Sequence, chunk: int) -> None:
        """Undo :meth:`take` of *chunk* tokens that are not computed after all."""
        before = self.free
        super().give_back(sequence, chunk)
        if sequence in self._own:
            self._own[sequence] -= self.free - before

    def drop(self, sequence: Sequence, iteration: int) -> None:
        """Give back what *sequence* has to itself, and let go of what it shares."""
        held = self._held.pop(sequence, None)
        if held is None:
            super().drop(sequence, iteration)
            return
        own, shared = self._own.pop(sequence), self._shared.pop(sequence)
        residents = self.residents
        self.free += self.unit * residents.release(held)
        if sequence.state == DECODE:
            if not self.whole:
                own = self._count(sequence.rel + iteration) - shared
        elif sequence.computed < sequence.target:  # what it was to compute has not come about
            for block in self._brought.pop(sequence, ()):
                if residents.is_idle(block):
                    residents.forget(block)
        self._brought.pop(sequence, None)
        self.free += own

    def trim(self) -> None:
        """Evict what is idle where its room has been taken."""
        residents = self.residents
        while residents.idle * self.unit > self.free:
            residents.evict()

    def clear(self) -> None:
        """Give everything back: the process is gone."""
        super().clear()
        self.residents.clear()
        for part in (self._held, self._brought, self._own, self._shared):
            part.clear()


class SharedPrefixes(Prefixes):
    """What an engine asks for a prefix, where the memory itself knows what is there."""

    def __init__(self, kv: SharedKv) -> None:
        super().__init__("lru", 0, None)
        self.shared_kv = kv

    def match(self, sequence: Sequence) -> None:
        """Let *sequence* begin after the full blocks that are there."""
        self.shared_kv.trim()
        self._found, spared = self.shared_kv.found(sequence)
        sequence.computed = sequence.cached = spared

    def admit(self, sequence: Sequence) -> None:
        """Count the hit of *sequence*, which was just matched and let in."""
        self._count_hit(sequence)

    def trim(self, sequence: Sequence) -> None:
        """Nothing: the memory itself keeps count."""

    def clear(self) -> None:
        """Nothing: the memory itself forgets."""
