"""Every metric by its definition, and where users of other tools were misled."""

import numpy as np
import pytest

from dispatch.outcomes import Outcome
from reports import metrics as m
from reports.intervals import nearest_rank
from reports.tables import Requests


def cell(**columns: object) -> Requests:
    n = len(next(iter(columns.values())))  # type: ignore[arg-type]
    base: dict[str, object] = {
        "request": np.arange(n),
        "outcome": np.full(n, Outcome.finished, np.int8),
        "output_tokens": np.full(n, 11),
    }
    made = Requests("arm", 0, base | columns, {})
    made.servable = np.ones(n, np.bool_)
    return made


TIMES = {
    "arrival_s": np.array([10.0]),
    "decision_start_s": np.array([10.5]),
    "decision_end_s": np.array([10.6]),
    "started_s": np.array([11.0]),
    "first_token_s": np.array([12.0]),
    "end_s": np.array([15.0]),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ttft_s", 2.0),  # from the planned arrival, not from the send
        ("tpot_s", 0.3),  # (15 - 12) / (11 - 1)
        ("e2e_s", 5.0),
        ("ntpot_s", 5.0 / 11),
        ("dispatch_wait_s", 0.5),
        ("kernel_dispatch_s", 0.4),
    ],
)
def test_a_metric_by_its_formula(name: str, value: float) -> None:
    assert m.METRICS[name].compute(cell(**TIMES))[0] == pytest.approx(value)


def test_mean_latency_is_mean_ttft_plus_the_tokens_after_the_first() -> None:
    rng = np.random.default_rng(5)
    n = 500
    arrival, first = np.zeros(n), rng.exponential(1, n)
    made = cell(arrival_s=arrival, first_token_s=first, end_s=first + rng.uniform(1, 9, n))
    tpot = m.METRICS["tpot_s"].compute(made).mean()
    ttft = m.METRICS["ttft_s"].compute(made).mean()
    assert m.METRICS["e2e_s"].compute(made).mean() == pytest.approx(ttft + 10 * tpot)


def test_one_token_has_no_time_per_output_token() -> None:
    made = cell(**TIMES | {"output_tokens": np.array([1])})
    assert np.isnan(m.METRICS["tpot_s"].compute(made)[0])
    assert len(m.ordered(made, m.METRICS["tpot_s"])) == 0


def failing(share: float, n: int = 1000) -> Requests:
    outcome = np.full(n, Outcome.finished, np.int8)
    outcome[: round(share * n)] = Outcome.oom
    return cell(arrival_s=np.zeros(n), end_s=np.linspace(1, 2, n), outcome=outcome)


def test_failures_are_infinite_samples() -> None:
    samples = m.ordered(failing(0.02), m.METRICS["e2e_s"])
    assert len(samples) == 1000
    assert np.isinf(nearest_rank(samples, 99.0))
    assert np.isfinite(nearest_rank(samples, 97.0))


def test_attainment_divides_by_what_was_offered_not_by_what_succeeded() -> None:
    bad = m.missed(failing(0.5), {"e2e_s": 100.0})
    assert bad.mean() == 0.5


def test_in_flight_at_the_end_counts_as_missed() -> None:
    made = cell(**TIMES | {"outcome": np.array([Outcome.in_flight], np.int8)})
    assert m.missed(made, {}).all()
    assert not m.errors(made).any()


def test_context_rejects_are_no_oom_and_no_error() -> None:
    made = cell(**TIMES | {"outcome": np.array([Outcome.rejected_context], np.int8)})
    assert not m.ooms(made).any()
    assert not m.errors(made).any()


def test_a_percentile_never_exceeds_the_largest_sample() -> None:
    samples = m.ordered(failing(0.0), m.METRICS["e2e_s"])
    assert nearest_rank(samples, 99.9) <= samples[-1]
