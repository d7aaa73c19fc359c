"""From the columns of a trace to requests, a few thousand rows at a time."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from dispatch.errors import InputError
from dispatch.request import Request
from sim.call import Call
from sim.clock import S
from sim.config import Setup
from traces.trace import Trace

_CHUNK: Final = 4096


def max_tokens(trace: Trace, setup: Setup, context: Any, rows: slice) -> Any:
    """Return max_tokens of *rows*: min(the trace's or the default, context - prompt).

    It never looks at the true output; below 1 the prompt is beyond the context.
    """
    room = context - trace.prompt_tokens[rows].astype(np.int64)
    asked: Any = setup.max_tokens_default
    if trace.max_tokens is not None:
        given = trace.max_tokens[rows]
        asked = np.where(given > 0, given, setup.max_tokens_default)
    return np.minimum(room, asked)


class Parts:
    """A trace in pieces of rising arrival times, each loaded when it is needed and then let go."""

    def __init__(self, traces: Trace | Iterable[Trace]) -> None:
        self._coming = iter([traces] if isinstance(traces, Trace) else traces)
        self._ready: deque[tuple[int, Trace]] = deque()
        self.rows = 0  # loaded so far
        self.first_s = 0.0
        self.last_s = 0.0

    def pull(self) -> bool:
        """Load the next piece that is not empty; False where there is none."""
        for part in self._coming:
            if not len(part):
                continue
            first_s = float(part.arrival_s[0])
            if not self.rows:
                self.first_s = first_s
            elif first_s < self.last_s:
                raise InputError.at(
                    "trace", f"a part begins at {first_s} s, after one that ends at {self.last_s}",
                    "give the parts in the order of their arrivals",
                )  # fmt: skip
            self._ready.append((self.rows, part))
            self.rows += len(part)
            self.last_s = float(part.arrival_s[-1])
            return True
        return False

    def calls(self, setup: Setup, contexts: dict[str, int]) -> Iterator[Call]:
        """Yield the requests of every part, loading more as they are asked for."""
        while self._ready or self.pull():
            first_row, part = self._ready.popleft()
            yield from calls(part, setup, contexts, first_row)


def calls(
    trace: Trace, setup: Setup, contexts: dict[str, int], first_row: int = 0
) -> Iterator[Call]:
    """Yield the requests of *trace* in order; ``max_tokens`` below 1 marks a prompt too long.

    Rows count from *first_row*. *contexts* gives the context limit by model; the empty name is that
    of a request without one.
    """
    named = any(pool.model is not None for pool in setup.fleet.pools)
    default = setup.model.name if named else ""
    deadline_s = setup.wait.deadline_s
    names = trace.names
    for start in range(0, len(trace), _CHUNK):
        rows = slice(start, min(start + _CHUNK, len(trace)))
        count = rows.stop - start
        arrival = trace.arrival_s[rows].tolist()
        arrival_ns = np.rint(trace.arrival_s[rows] * S).astype(np.int64).tolist()
        prompt = trace.prompt_tokens[rows].tolist()
        output = trace.output_tokens[rows].tolist()
        models = _named(trace.model, names, rows, default, count) if named else [""] * count
        context = (
            np.array([contexts.get(m, contexts[""]) for m in models]) if named else contexts[""]
        )
        limit = max_tokens(trace, setup, context, rows).tolist()
        precision = _named(trace.precision, names, rows, "", count)
        hint = _named(trace.kernel_hint, names, rows, "", count)
        session = _plain(trace.session, rows, -1, count)
        priority = _plain(trace.priority, rows, 0, count)
        source: Sequence[int] = range(first_row + start + 1, first_row + start + count + 1)
        if trace.source_row is not None:
            source = trace.source_row[rows].tolist()
        for i in range(count):
            row = first_row + start + i
            blocks = trace.blocks(start + i) if trace.block_hashes is not None else ()
            request = Request(
                row, arrival[i], prompt[i], limit[i], models[i], session[i], blocks,
                trace.block_tokens or 512, precision[i], hint[i], priority[i], "",
                arrival[i] + deadline_s,
            )  # fmt: skip
            call = Call(row, arrival_ns[i], arrival[i], min(output[i], limit[i]), request)
            call.source_row = source[i]
            yield call


def _named(column: Any, names: tuple[str, ...], rows: slice, default: str, count: int) -> list[str]:
    if column is None:
        return [default] * count
    return [names[i] if i >= 0 else default for i in column[rows].tolist()]


def _plain(column: Any, rows: slice, default: int, count: int) -> list[int]:
    return [default] * count if column is None else list(column[rows].tolist())
