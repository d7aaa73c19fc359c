"""Hypothesis strategies of the whole house, a heading a room."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from kernels.spec import BlockSpec
from traces.trace import Trace

# -- dispatch core ---------------------------------------------------------------------------------


@st.composite
def device_states(draw: st.DrawFn, least: int = 2, most: int = 7) -> list[dict[str, float]]:
    """Draw what telemetry and the books say of some devices, all values of a signal distinct."""
    count = draw(st.integers(least, most))

    def column(low: float, high: float) -> list[float]:
        values = st.floats(low, high, allow_subnormal=False)
        return draw(st.lists(values, min_size=count, max_size=count, unique=True))

    columns = {
        "block_gib": column(5.0, 60.0),
        "ring_s": column(5e-6, 5e-5),
        "pcie": column(0.0, 0.99),
        "waiting": column(0.0, 20.0),
        "running": column(0.0, 60.0),
        "kv": column(0.0, 0.98),
        "n": [float(n) for n in draw(st.permutations(range(count)))],
    }
    return [{key: values[i] for key, values in columns.items()} for i in range(count)]


# Traces: bytes of a trace file after damage --------------------------------------------------

_TOKENS = (
    b"null", b"-1", b"1e999", b"NaN", b"[]", b"{}", b'"x"', b"99999999999999999999", b"true",
    b"0", b'""', b"-", b"\xff\xfe", b"\x00", b",", b'"', b"\n", b"\r\n", b"Infinity", b"1.5",
    b"2030-13-45T99:00:00",
)  # fmt: skip


def mutated(data: bytes) -> st.SearchStrategy[bytes]:
    """Return *data* with up to four cuts, changes, repeats and strange values put in."""
    place = st.integers(0, len(data))
    edit = st.tuples(st.sampled_from(("cut", "set", "put", "repeat", "end")), place, place,
                     st.sampled_from(_TOKENS))  # fmt: skip
    return st.lists(edit, min_size=1, max_size=4).map(lambda edits: _edited(data, edits))


def _edited(data: bytes, edits: list[tuple[str, int, int, bytes]]) -> bytes:
    for kind, one, other, token in edits:
        low, high = min(one, other), max(one, other)
        if kind == "cut":
            data = data[:low] + data[min(high, low + 40) :]
        elif kind == "set":
            data = data[:low] + bytes([other % 256]) + data[low + 1 :]
        elif kind == "put":
            data = data[:low] + token + data[low + other % 6 :]
        elif kind == "repeat":
            data = data[:high] + data[low:high] + data[high:]
        else:
            data = data[:low]
    return data


# -- kernels: shapes of transformer blocks ---------------------------------------------------------


@st.composite
def block_specs(draw: st.DrawFn) -> BlockSpec:
    """Draw a small block of either layout; few sizes are powers of two."""
    kv_heads = draw(st.integers(1, 3))
    heads = kv_heads * draw(st.sampled_from((1, 2, 3, 7)))
    head_dim = 2 * draw(st.integers(1, 20))
    hidden, ffn = draw(st.integers(8, 80)), draw(st.integers(1, 90))
    if draw(st.booleans()):
        return BlockSpec(hidden, heads, kv_heads, head_dim, ffn, qkv_bias=draw(st.booleans()))
    return BlockSpec(hidden, heads, kv_heads, head_dim, ffn, "layer", False, False, True, True)


@st.composite
def small_traces(draw: st.DrawFn, least: int = 1, most: int = 30) -> Trace:
    """Draw a trace with or without sessions, models and prefix blocks."""
    rows = draw(st.integers(least, most))

    def ints(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=rows, max_size=rows))

    gaps = draw(st.lists(st.floats(0, 5), min_size=rows, max_size=rows))
    arrival = np.cumsum(gaps)
    columns: dict[str, Any] = {"source_row": np.arange(1, rows + 1, dtype=np.int64)}
    if draw(st.booleans()):
        columns["session"] = np.array(ints(-1, 4), np.int64)
    if draw(st.booleans()):
        columns["model"] = np.array(ints(-1, 1), np.int32)
        columns["names"] = ("llama", "secret-model")
    if draw(st.booleans()):
        counts = np.array(ints(0, 4))
        columns["block_offsets"] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        columns["block_hashes"] = np.arange(counts.sum(), dtype=np.int64) % 7
        columns["block_tokens"] = 16
    prompt, output = (np.array(ints(1, 99), np.int32) for _ in range(2))
    source = {"path": "/home/x/log", "epoch_ns": 5}
    return Trace(
        arrival - arrival[0], prompt, output, name="drawn", sha256="f" * 64, source=source,
        **columns,
    )  # fmt: skip
