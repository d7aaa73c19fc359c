"""The exact distributions against published tables and independent sums."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.student import beta_cdf, binomial_bounds, t_quantile, t_sf


@pytest.mark.parametrize(
    ("p", "df", "published"),
    [
        (0.975, 1, 12.706),
        (0.975, 4, 2.776),
        (0.95, 9, 1.833),
        (0.995, 30, 2.750),
        (0.9, 120, 1.289),
    ],
)
def test_t_quantiles_are_those_of_the_printed_tables(p: float, df: int, published: float) -> None:
    assert t_quantile(p, df) == pytest.approx(published, abs=6e-4)


def closed_sum(t: float, df: int) -> float:
    """Abramowitz & Stegun 26.7.3-4: P(|T| <= t) for whole df."""
    angle = math.atan(t / math.sqrt(df))
    cos2 = math.cos(angle) ** 2
    if df % 2:
        term, total = math.cos(angle), 0.0
        for j in range(1, df // 2 + 1):
            total += term
            term *= cos2 * 2 * j / (2 * j + 1)
        return 2 / math.pi * (angle + math.sin(angle) * total)
    term, total = 1.0, 0.0
    for j in range(df // 2):
        total += term
        term *= cos2 * (2 * j + 1) / (2 * j + 2)
    return math.sin(angle) * total


@given(st.floats(0.001, 60), st.integers(1, 60))
def test_t_tails_equal_the_closed_sums_for_whole_degrees_of_freedom(t: float, df: int) -> None:
    assert 1 - 2 * t_sf(t, df) == pytest.approx(closed_sum(t, df), abs=1e-12)


@given(st.floats(0.001, 0.999), st.floats(0.6, 500))
def test_a_quantile_undoes_its_tail(p: float, df: float) -> None:
    assert 1 - t_sf(t_quantile(p, df), df) == pytest.approx(p, abs=1e-9)


@given(st.integers(1, 60), st.data())
def test_the_beta_function_sums_the_binomial(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n))
    p = data.draw(st.floats(0.01, 0.99))
    at_least = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert beta_cdf(p, k, n - k + 1) == pytest.approx(at_least, abs=1e-10)


def test_zero_of_n_is_bounded_by_the_rule_of_three() -> None:
    low, high = binomial_bounds(0, 1000, 0.95)
    assert low == 0.0
    assert high == pytest.approx(1 - 0.025 ** (1 / 1000), rel=1e-9)


def test_exact_bounds_cover_their_share_at_least_as_often_as_they_say() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for k in rng.binomial(40, 0.1, 400):
        low, high = binomial_bounds(int(k), 40, 0.95)
        hits += low <= 0.1 <= high
    assert hits >= 0.94 * 400


@pytest.mark.parametrize("p", [0.0, 1.0, -1.0])
def test_a_share_outside_zero_and_one_has_no_quantile(p: float) -> None:
    with pytest.raises(ValueError):
        t_quantile(p, 4)
