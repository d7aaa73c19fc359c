"""Intervals, margins, floors and corrections, each by its definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.intervals import (
    Interval,
    Verdict3,
    fieller,
    holm,
    nearest_rank,
    no_worse,
    p_worse,
    paired,
    paired_ratio,
    rate_difference,
    sample_floor,
    seeds_to_decide,
    t_interval,
    welch,
)
from reports.student import t_quantile


@pytest.mark.parametrize(("percent", "least"), [(90, 64), (95, 130), (99, 662), (99.9, 4603)])
def test_a_percentile_needs_the_samples_that_the_binomial_asks(percent: float, least: int) -> None:
    assert sample_floor(percent) == least


def test_the_floor_is_tight() -> None:
    def one_beyond(n: int) -> float:
        return 0.99**n + n * 0.01 * 0.99 ** (n - 1)

    assert one_beyond(662) <= 0.01 < one_beyond(661)


def test_a_t_interval_by_hand() -> None:
    interval = t_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.7764451 * math.sqrt(2.5) / math.sqrt(5)
    assert (interval.mean, interval.low) == pytest.approx((3.0, 3.0 - half))


def test_pairing_takes_out_what_both_arms_share() -> None:
    shared = np.array([1.0, 5.0, 9.0, 2.0, 7.0])
    interval = paired(shared + 1 + np.array([0.1, -0.1, 0, 0.05, -0.05]), shared)
    assert interval.low > 0.8
    assert interval.high < 1.2


def test_one_replicate_has_a_mean_and_no_interval() -> None:
    interval = t_interval([4.0])
    assert interval.mean == 4.0
    assert not interval.known
    assert no_worse(interval, 10.0) is Verdict3.unsure


def test_an_infinite_percentile_gives_no_ratio() -> None:
    assert not paired_ratio([math.inf, 1.0], [1.0, 1.0]).known


def test_a_ratio_is_the_geometric_mean_of_pairs() -> None:
    assert paired_ratio([2.0, 8.0], [1.0, 1.0]).mean == pytest.approx(4.0)


def test_zero_failures_in_both_arms_is_no_proof_where_requests_are_few() -> None:
    zero = np.zeros(5, np.int64)
    few = rate_difference(zero, zero, np.full(5, 100), 0.95).scaled(100)
    many = rate_difference(zero, zero, np.full(5, 19366), 0.95).scaled(100)
    assert no_worse(few, 0.01) is Verdict3.unsure
    assert no_worse(many, 0.01) is Verdict3.safe


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (-1.0, 0.9, Verdict3.safe),
        (-1.0, 1.1, Verdict3.unsure),
        (1.1, 2.0, Verdict3.unsafe),
        (math.nan, math.nan, Verdict3.unsure),
    ],
)
def test_non_inferiority_is_decided_by_the_whole_interval(
    low: float, high: float, answer: Verdict3
) -> None:
    assert no_worse(Interval(0.0, low, high, 5, 1.0), 1.0) is answer


def test_the_p_value_and_the_interval_agree_at_the_border() -> None:
    interval = t_interval([1.0, 2.0, 3.0, 4.0, 6.0])
    assert p_worse(interval, interval.low) == pytest.approx(0.025, abs=1e-9)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, math.nan])[:3] == pytest.approx([0.03, 0.06, 0.06])
    assert math.isnan(holm([0.01, math.nan])[1])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    assert all(a >= p for a, p in zip(adjusted, ps, strict=True))
    assert [a for _, a in sorted(zip(ps, adjusted, strict=True))] == sorted(adjusted)


def test_more_seeds_are_advised_where_the_mean_sits_nearer_to_the_margin() -> None:
    near = seeds_to_decide(t_interval([0.8, 0.9, 1.0, 1.1, 1.2]), 1.2)
    far = seeds_to_decide(t_interval([0.8, 0.9, 1.0, 1.1, 1.2]), 3.0)
    assert near is not None
    assert far is not None
    assert near > far
    assert seeds_to_decide(t_interval([0.5, 1.5, 1.0]), 1.0) is None


def test_the_advised_number_of_seeds_decides_nine_times_in_ten() -> None:
    rng = np.random.default_rng(3)
    n = seeds_to_decide(Interval(0.0, -1, 1, 5, 1.0), 0.8)
    assert n is not None
    safe = sum(no_worse(t_interval(rng.normal(0, 1, n)), 0.8) is Verdict3.safe for _ in range(600))
    assert safe >= 0.86 * 600


def test_welch_by_its_formula() -> None:
    interval = welch([1.0, 2.0, 3.0], [4.0, 6.0, 8.0, 10.0])
    assert interval.mean == pytest.approx(5.0)
    x, y = 1 / 3, (20 / 3) / 4  # variances of the means
    df = (x + y) ** 2 / (x**2 / 2 + y**2 / 3)
    assert interval.low == pytest.approx(5.0 - t_quantile(0.975, df) * math.sqrt(x + y))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.floats(0.1, 100))
def test_a_nearest_rank_percentile_is_a_sample_and_never_above_the_largest(
    values: list[float], percent: float
) -> None:
    ordered = np.sort(np.array(values))
    found = nearest_rank(ordered, percent)
    assert found in ordered
    assert found <= ordered[-1]
    assert (ordered <= found).mean() >= percent / 100 - 1e-9


def test_a_ratio_of_paired_means_is_covered_as_often_as_it_says() -> None:
    """Fieller's interval is exact for normal pairs: 3,000 draws of five pairs with ratio 0.5."""
    draw = np.random.default_rng(3)
    covered = known = 0
    for _ in range(3000):
        lower = draw.normal(4.0, 1.0, 5)
        upper = 0.5 * lower + draw.normal(0.0, 0.5, 5)
        found = fieller(upper, lower)
        known += found.known
        covered += found.low <= 0.5 <= found.high
    assert known > 2900
    assert 0.93 <= covered / known <= 0.97


def test_a_ratio_to_a_mean_that_may_be_zero_is_no_figure() -> None:
    assert not fieller([1.0, 2.0, 1.5], [-1.0, 1.0, 0.1]).known
