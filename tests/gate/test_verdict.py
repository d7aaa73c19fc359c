"""When a paired ratio is a regression, a pass, or neither."""

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.gate import render
from reports.gate.verdict import Check, GateResult, Verdict, control, interval, judge

PAIRS = 11


def test_the_interval_is_the_second_smallest_to_the_second_largest_ratio() -> None:
    assert interval([1.0, 0.5, 1.1, 0.9, 1.2, 9.0, 1.05]) == (1.05, 0.9, 1.2)


@pytest.mark.parametrize(("pairs", "rank"), [(6, 2), (11, 2), (15, 3), (21, 5), (31, 9)])
def test_more_pairs_narrow_the_interval_to_the_ranks_of_the_sign_test(
    pairs: int, rank: int
) -> None:
    # Ranks of the 98.8 % interval of a median: 1 - 2 P(Binomial(n, 1/2) < rank), by scipy.stats.
    ratios = [float(n) for n in range(1, pairs + 1)]
    assert interval(ratios)[1:] == (rank, pairs + 1 - rank)


def test_ten_percent_more_in_every_pair_is_a_regression() -> None:
    assert judge("p50", [10_000.0] * PAIRS, [11_000.0] * PAIRS).verdict is Verdict.regression


def test_pairs_on_slow_and_fast_cores_do_not_hide_a_slower_head() -> None:
    base = [10_000.0] * 5 + [15_000.0] * 6
    head = [13_000.0] * 5 + [19_500.0] * 2 + [15_000.0] + [19_500.0] * 3
    assert judge("p99", base, head).verdict is Verdict.regression


def test_the_same_times_pass() -> None:
    assert judge("p50", [10_000.0] * PAIRS, [10_000.0] * PAIRS).verdict is Verdict.passed


def test_a_wide_interval_around_a_large_estimate_is_inconclusive() -> None:
    head = [9_000.0, 9_000.0, 9_500.0] + [11_000.0] * 5 + [14_000.0] * 3
    assert judge("p50", [10_000.0] * PAIRS, head).verdict is Verdict.inconclusive


def test_a_difference_below_the_timer_floor_passes() -> None:
    check = judge("p50", [1_000.0] * PAIRS, [1_100.0] * PAIRS)
    assert check.verdict is Verdict.passed
    assert "below the floor" in check.detail


@given(st.lists(st.floats(0.5, 2.0), min_size=6, max_size=30))
def test_the_estimate_lies_in_its_interval_for_any_ratios(ratios: list[float]) -> None:
    estimate, low, high = interval(ratios)
    assert low <= estimate <= high


@given(st.floats(1e3, 1e6), st.floats(1.06, 3.0))
def test_a_slower_head_never_passes_above_the_floor(base: float, factor: float) -> None:
    check = judge("p50", [base] * PAIRS, [base * factor] * PAIRS, floor=0.0)
    assert check.verdict is Verdict.regression


def test_too_few_pairs_are_refused_by_number() -> None:
    with pytest.raises(ValueError, match="5 pairs are too few"):
        judge("p50", [1.0] * 5, [1.0] * 5)


def test_no_samples_are_refused_and_never_pass() -> None:
    with pytest.raises(ValueError, match="do not pair"):
        judge("p50", [], [])


def test_a_base_that_differs_from_itself_makes_the_environment_unfit() -> None:
    assert control("control", [1.05, 1.06, 1.04]).verdict is Verdict.inconclusive
    assert control("control", [1.01, 0.99, 1.0]).verdict is Verdict.passed


def result(*verdicts: Verdict) -> GateResult:
    checks = [Check(2, f"check{i}", v, "+9.4 % [+6.1 %, +12.0 %]") for i, v in enumerate(verdicts)]
    return GateResult(checks, {"python": "3.11"}, 4.2)


def test_a_regression_wins_over_everything_else() -> None:
    found = result(Verdict.passed, Verdict.inconclusive, Verdict.regression)
    assert found.exit_code() == 1
    assert render.sentence(found).startswith("gate: REGRESSION: check2 +9.4 %")


def test_inconclusive_is_three_unless_told_to_pass() -> None:
    found = result(Verdict.passed, Verdict.inconclusive)
    assert (found.exit_code("fail"), found.exit_code("pass")) == (3, 0)


def test_junit_has_a_case_a_check_and_a_sentence_a_failure() -> None:
    suite = ET.fromstring(render.to_junit(result(Verdict.passed, Verdict.regression)))
    assert [suite.get("tests"), suite.get("failures")] == ["2", "1"]
    assert suite.find(".//failure").get("message") == "check1 +9.4 % [+6.1 %, +12.0 %]"  # type: ignore[union-attr]


def test_annotations_name_only_what_did_not_pass_and_are_escaped() -> None:
    found = GateResult([Check(2, "p99: decision", Verdict.regression, "100 %\nworse")])
    assert render.to_annotations(found) == (
        "::error title=p99%3A decision REGRESSION::100 %25%0Aworse\n"
    )


def test_the_title_of_a_timed_annotation_carries_the_change() -> None:
    check = judge("decision p99", [10_000.0] * PAIRS, [11_000.0] * PAIRS)
    assert render.to_annotations(GateResult([check])) == (
        "::error title=decision p99 +10.0 %25 [+10.0 %25%2C +10.0 %25]"
        "::REGRESSION: 10.00 µs → 11.00 µs\n"
    )


def test_the_summary_is_a_table_with_a_row_a_check() -> None:
    text = render.to_markdown(result(Verdict.passed, Verdict.inconclusive))
    assert text.count("\n| 2 |") == 2


def test_json_turns_missing_numbers_into_null() -> None:
    assert '"estimate": null' in render.to_json(result(Verdict.passed))
