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
