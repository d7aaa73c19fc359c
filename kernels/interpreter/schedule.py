"""Run the programs of one launch interleaved, so that barriers and tickets mean something on a CPU.

Triton's interpreter runs programs one after another: a barrier of two programs would hang, and of
one proves nothing. Here every program is a thread and one baton moves between them, at atomics and,
with a chance, at any load or store, in an order drawn from a seed. Where every live program has
polled and none has written since, that is a deadlock and is raised. The kernel is the very one that
a GPU runs.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

import numpy as np

from kernels.interpreter.honest import Hooks

Order = Literal["ahead", "reverse", "random"]
ORDERS: Final[tuple[Order, ...]] = ("ahead", "reverse", "random")


class Deadlock(Exception):
    """Every program that still runs waits, and none has written since it last looked."""


class _Stopped(BaseException):
    """Ends a program whose launch has failed elsewhere."""


class Schedule:
    """The order in which programs move: *order* picks the next, *chance* the switches between."""

    def __init__(self, order: Order = "random", seed: int = 0, chance: float = 0.0) -> None:
        self.order, self.seed, self.chance = order, seed, chance
        self.switches = 0
        self.launches = 0

    def __repr__(self) -> str:
        return f"Schedule({self.order!r}, seed={self.seed}, chance={self.chance})"


@contextmanager
def interleaved(hooks: Hooks, schedule: Schedule) -> Iterator[Schedule]:
    """Run every launch of the block by *schedule*; needs the hooks of ``honest``."""
    from triton.runtime import interpreter

    executor = interpreter.GridExecutor
    plain = executor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        shape = self.grid if not callable(self.grid) else None
        assert shape is not None, "give the grid as numbers"
        total = int(np.prod(shape))
        if total == 1:
            return plain(self, *args, **kwargs)
        schedule.launches += 1
        real, grid = self.fn, _Grid(hooks, schedule, interpreter.interpreter_builder, total)
        self.fn = grid.collecting(real)
        try:
            return plain(self, *args, **kwargs)
        except interpreter.InterpreterError as error:
            raise grid.failure or error from error
        finally:
            self.fn = real

    executor.__call__ = call
    try:
        yield schedule
    finally:
        executor.__call__ = plain


class _Grid:
    """Programs of one launch as threads; only the holder of the baton runs."""

    def __init__(self, hooks: Hooks, schedule: Schedule, builder: Any, total: int) -> None:
        self.hooks, self.schedule, self.builder, self.total = hooks, schedule, builder, total
        self.random = random.Random(f"{schedule.seed}/{schedule.launches}")
        self.places: list[tuple[int, int, int]] = []
        self.live: list[int] = []
        self.current = -1
        self.turns = [threading.Semaphore(0) for _ in range(total)]
        self.done = threading.Semaphore(0)
        self.writes = 0
        self.polled: dict[int, tuple[int, bool]] = {}  # writes at the last poll, and polled twice
        self.failure: BaseException | None = None

    def collecting(self, real: Callable[..., Any]) -> Any:
        """Return a stand-in for the kernel: it gathers programs and, at the last, runs them all."""

        def collect(**args: Any) -> None:
            self.places.append(self.builder.grid_idx)
            if len(self.places) == self.total:
                self._run(real, args)

        import inspect

        collect.__signature__ = inspect.signature(real)  # type: ignore[attr-defined]
        return _Named(collect, real)

    def _run(self, real: Callable[..., Any], args: dict[str, Any]) -> None:
        self.live = list(range(self.total))
        threads = [
            threading.Thread(target=self._program, args=(at, real, args), daemon=True)
            for at in range(self.total)
        ]
        self.hooks.before_atomic, self.hooks.after_atomic = self._before_atomic, self._after_atomic
        self.hooks.before_access = self._before_access
        for thread in threads:
            thread.start()
        try:
            self._hand(self._pick())
            self.done.acquire()
        finally:
            for thread in threads:
                thread.join()
            self.hooks.before_atomic = self.hooks.after_atomic = None
            self.hooks.before_access = None
        if self.failure is not None:
            raise self.failure

    def _program(self, at: int, real: Callable[..., Any], args: dict[str, Any]) -> None:
        self.turns[at].acquire()
        try:
            if self.failure is None:
                self.builder.grid_idx = self.places[at]
                real(**args)
        except _Stopped:
            pass
        except BaseException as error:
            self.failure = self.failure or error
        self.live.remove(at)
        self.writes += 1
        if self.live:
            self._hand(self._pick())
        else:
            self.done.release()

    def _pick(self) -> int:
        order = self.schedule.order
        if order == "random":
            return self.random.choice(self.live)
        if order == "reverse":
            later = [p for p in reversed(self.live) if p < self.current]
            return later[0] if later else self.live[-1]
        later = [p for p in self.live if p > self.current]
        return later[0] if later else self.live[0]

    def _hand(self, at: int) -> None:
        self.current = at
        self.schedule.switches += 1
        self.turns[at].release()

    def _switch(self) -> None:
        me, after = self.current, self._pick()
        if after != me:
            self._hand(after)
            self.turns[me].acquire()
            self.builder.grid_idx = self.places[me]
        if self.failure is not None:
            raise _Stopped

    def _before_atomic(self, ptr: Any, value: Any) -> None:
        if np.any(value.data):
            self.polled.pop(self.current, None)
        self._switch()

    def _after_atomic(self, ptr: Any, value: Any, found: Any) -> None:
        if np.any(value.data):
            self.writes += 1
            return
        before = self.polled.get(self.current, (-1, False))
        self.polled[self.current] = (self.writes, before[0] == self.writes)
        if all(self.polled.get(p) == (self.writes, True) for p in self.live):
            self.failure = Deadlock(
                f"{len(self.live)} of {self.total} programs wait for ever under {self.schedule!r}"
            )
            raise _Stopped

    def _before_access(self, is_store: bool) -> None:
        self.polled.pop(self.current, None)
        self.writes += is_store
        if self.schedule.chance and self.random.random() < self.schedule.chance:
            self._switch()


class _Named:
    """A callable that looks like the kernel where the executor inspects it."""

    def __init__(self, call: Callable[..., Any], real: Any) -> None:
        self._call = call
        self.__signature__ = call.__signature__  # type: ignore[attr-defined]
        self.__name__ = real.__name__
        self.__globals__ = real.__globals__
        self.__annotations__ = real.__annotations__

    def __call__(self, **args: Any) -> Any:
        return self._call(**args)
