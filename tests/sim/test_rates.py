"""Times of iterations in whole femtoseconds, and how many of them a span of time holds."""

from hypothesis import given
from hypothesis import strategies as st

from sim.rates import iterations_fs, iterations_until


@given(
    base=st.integers(1, 10**14),
    slope=st.integers(0, 10**9),
    batch=st.integers(1, 1024),
    stored=st.integers(0, 10**7),
    count=st.integers(1, 10**6),
    off=st.integers(-2, 2) | st.integers(-(10**12), 10**12),
)
def test_as_many_iterations_have_begun_as_their_exact_sum_says(
    base: int, slope: int, batch: int, stored: int, count: int, off: int
) -> None:
    line = (base, slope, batch, batch + stored)
    elapsed = iterations_fs(count, *line) + off
    begun = iterations_until(elapsed, *line)
    assert iterations_fs(begun, *line) > elapsed
    assert begun == 1 or iterations_fs(begun - 1, *line) <= elapsed
