"""From the columns of a trace to requests, a few thousand rows at a time."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

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


def calls(trace: Trace, setup: Setup, contexts: dict[str, int]) -> Iterator[Call]:
    """Yield the requests of *trace* in order; ``max_tokens`` below 1 marks a prompt too long.

    *contexts* gives the context limit by model; the empty name is that of a request without one.
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
        for i in range(count):
            row = start + i
            blocks = trace.blocks(row) if trace.block_hashes is not None else ()
            request = Request(
                row, arrival[i], prompt[i], limit[i], models[i], session[i], blocks,
                trace.block_tokens or 512, precision[i], hint[i], priority[i], "",
                arrival[i] + deadline_s,
            )  # fmt: skip
            yield Call(row, arrival_ns[i], arrival[i], min(output[i], limit[i]), request)


def _named(column: Any, names: tuple[str, ...], rows: slice, default: str, count: int) -> list[str]:
    if column is None:
        return [default] * count
    return [names[i] if i >= 0 else default for i in column[rows].tolist()]


def _plain(column: Any, rows: slice, default: int, count: int) -> list[int]:
    return [default] * count if column is None else list(column[rows].tolist())
