"""Hypothesis strategies of the whole house, a heading a room."""

from hypothesis import strategies as st

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
