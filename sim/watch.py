"""What is noted of one engine's past: the integrals of its series, and what telemetry may ask."""

from typing import Any

from sim.channel import Channel
from sim.clock import FS_PER_NS
from sim.engine import Engine
from sim.memory import ContiguousKv
from sim.rates import iterations_until
from sim.series import Series

Jump = tuple[int, int, int, int, int, int, int, list[int], int]
"""Of the iterations under way: start (fs), base, slope, batch, context, how many, the number of the
first, and the classes of growth with their members."""


class Watch:
    """Follows one engine: integrates its series and notes its past as far as telemetry needs."""

    __slots__ = ("_channels", "_keep_ns", "_pages", "_queue", "_series", "engine", "trail")

    def __init__(
        self, engine: Engine, series: Series, channels: list[Channel], keep_ns: int
    ) -> None:
        self.engine = engine
        self._series = series
        self._channels = channels
        self._queue = any(channel.name == "queue" for channel in channels)
        self._keep_ns = keep_ns
        self._pages = engine.pages
        self.trail: list[tuple[Any, ...]] = []
        if channels:
            self.trail.append(self._state(0))

    def before(self, now: int) -> None:
        """The state is about to change at *now*."""
        pages = self._pages
        if pages is None:
            self._series.note(now, self.engine.kv.used_bytes)
        else:
            self._series.note(now, (pages.blocks - pages.free) * pages.bytes_per_block)

    def after(self, now: int) -> None:
        """The state has changed at *now*."""
        engine, series = self.engine, self._series
        series.busy = engine.due >= 0
        series.running = len(engine.running)
        pages = self._pages
        if pages is None:
            series.kv = engine.kv.used_bytes
        else:
            series.kv = (pages.blocks - pages.free) * pages.bytes_per_block
        if engine.waiting_count != series.waiting:
            series.wait(now, engine.waiting_count)
        if self._channels:
            self._note(now)

    def amid(self, now: int) -> None:
        """The memory is about to change at *now*, whatever iterations are under way."""
        self._series.note(now, self.engine.kv_used_at(now))

    def resume(self, now: int) -> None:
        """The memory has changed at *now*, whatever iterations are under way."""
        self.after(now)
        self._series.kv = self.engine.kv_used_at(now)

    def queued(self, now: int) -> None:
        """Only the number of waiting requests has changed."""
        engine, series = self.engine, self._series
        if now >= series.end:
            series.note(now, engine.kv_used_at(now))
        series.wait(now, engine.waiting_count)
        if self._queue:
            self._note(now)

    def _note(self, now: int) -> None:
        trail = self.trail
        if trail[-1][0] == now:
            trail.pop()
        trail.append(self._state(now))
        old, gone, last = now - self._keep_ns, 0, len(trail) - 1
        while gone < last and trail[gone + 1][0] <= old:
            gone += 1
        if gone:
            del trail[:gone]
        index = self.engine.index
        for channel in self._channels:
            channel.changed[index] = None

    def _state(self, now: int) -> tuple[Any, ...]:
        """Return (ns, waiting, running, free, largest).

        Under paged KV the free blocks and the jump under way; then, where activations come from an
        allocator, its free bytes and largest block.
        """
        engine = self.engine
        kv = engine.pages
        if kv is None:
            assert isinstance(engine.kv, ContiguousKv)
            arena = engine.kv.arena
            return (now, engine.waiting_count, len(engine.running), arena.free_bytes,
                    arena.largest_block_bytes)  # fmt: skip
        jump: Jump | None = None
        if engine.count and kv.members:
            jump = (engine.at_fs, engine.base, engine.slope, engine.decoding, engine.context,
                    engine.count, engine.iteration, kv.classes * 2, kv.members)  # fmt: skip
        state = (now, engine.waiting_count, len(engine.running), kv.free, jump)
        if engine.workspace is None:
            return state
        arena = engine.workspace.arena
        return (*state, arena.free_bytes, arena.largest_block_bytes)

    def at(self, when: int) -> tuple[Any, ...]:
        """Return the state that held at *when*, the oldest that is known where it is older."""
        trail = self.trail
        at = len(trail) - 1
        while at and trail[at][0] > when:
            at -= 1
        return trail[at]

    def mean_queue(self, when: int, window_ns: int) -> tuple[float, float]:
        """Return the time-means of waiting and running over the *window_ns* before *when*."""
        start, end = when - window_ns, when
        waiting = running = 0.0
        for state in self.trail[::-1]:
            if state[0] >= end:
                continue
            begin = max(state[0], start)
            waiting += state[1] * (end - begin)
            running += state[2] * (end - begin)
            end = begin
            if begin <= start:
                break
        span = when - max(end, start)
        return (waiting / span, running / span) if span > 0 else self.at(when)[1:3]


def free_blocks(state: tuple[Any, ...], when: int) -> int:
    """Return the free KV blocks at *when*, within the jump that *state* describes.

    Blocks for the iteration under way are taken at its start (:meth:`sim.memory.PagedKv.growth`).
    """
    free: int = state[3]
    jump: Jump | None = state[4]
    if jump is None:
        return free
    at_fs, base, slope, batch, context, count, iteration, classes, members = jump
    begun = iterations_until(when * FS_PER_NS - at_fs, base, slope, batch, context)
    if begun > count:
        begun = count
    size = len(classes) >> 1  # twice, one after the other: no span wraps around
    at = iteration % size
    free -= begun // size * members + sum(classes[at : at + begun % size])
    return free
