"""What tier 0 says, in words, when placements or figures move."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dispatch.errors import InputError
from reports.gate.verdict import Verdict
from scenarios.gate import exact
from scenarios.load import load


def case(devices: list[int], digest: str = "a", **metrics: Any) -> exact.Case:
    return {
        "requests": len(devices),
        "decisions": len(devices),
        "digest": digest,
        "placements": exact.pack(np.asarray(devices, np.int16)),
        "metrics": {"finished": 3, "p99 TTFT": 1.0, **metrics},
    }


def test_equal_cases_pass() -> None:
    (check,) = exact.compare({"s/a": case([0, 1, 2])}, {"s/a": case([0, 1, 2])})
    assert (check.verdict, check.detail) == (Verdict.passed, "equal")


def test_a_moved_quantile_and_moved_placements_are_said_in_words() -> None:
    head = case([0, 2, 1], "b", **{"p99 TTFT": 1.031})
    (check,) = exact.compare({"s/a": case([0, 1, 2])}, {"s/a": head})
    assert check.verdict is Verdict.regression
    assert check.detail == "p99 TTFT +3.1 %, 2 of 3 placements differ, first at request 1"


def test_a_retry_that_ends_on_the_same_device_is_still_told() -> None:
    told = exact.difference(case([0, 1]), case([0, 1], "b"))
    assert "another sequence of decisions" in told


def test_the_last_bits_of_another_cpu_are_no_change() -> None:
    assert exact.difference(case([0]), case([0], **{"p99 TTFT": 1.0 + 1e-12})) == ""


def test_counts_are_compared_exactly() -> None:
    assert exact.difference(case([0]), case([0], finished=2)) == "finished 3 → 2"


def test_a_metric_that_is_gone_is_never_a_pass() -> None:
    head = case([0])
    del head["metrics"]["p99 TTFT"]
    assert "missing metric p99 TTFT" in exact.difference(case([0]), head)


@pytest.mark.parametrize("name", ["only-base", "only-head"])
def test_a_case_on_one_side_alone_is_never_a_pass(name: str) -> None:
    base, head = {"s/a": case([0])}, {"s/a": case([0])}
    (base if name == "only-base" else head)[name] = case([0])
    assert exact.compare(base, head)[0].verdict is Verdict.regression


def test_a_baseline_reads_back_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "gate.json"
    exact.write_baseline(file, {"s/a": case([3, 1])})
    assert exact.read_baseline(file) == {"s/a": case([3, 1])}


def damaged(**changes: object) -> str:
    return json.dumps({"schema": 1, "cases": {"s/a": {**case([1]), **changes}}})


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[1]", "\0",
        json.dumps({"schema": 99, "cases": {}}),
        json.dumps({"schema": 1, "cases": []}),
        json.dumps({"schema": 1, "cases": {"s/a": {}}}),
        json.dumps({"schema": 1, "cases": {"counters": {}}}),
        damaged(placements="no base64"), damaged(placements="AAAA"),
    ],
)  # fmt: skip
def test_a_foreign_baseline_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    file = tmp_path / "gate.json"
    file.write_text(text)
    with pytest.raises(InputError, match=r"gate\.json.*accept"):
        exact.read_baseline(file)


def test_a_missing_baseline_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--accept"):
        exact.read_baseline(tmp_path / "gate.json")


def test_the_same_scenario_observed_twice_is_equal_and_another_policy_is_not() -> None:
    plain = exact.observe(load("migration-2023q3", ["trace.limit=200", "replicates=1"]), 200)
    again = exact.observe(load("migration-2023q3", ["trace.limit=200", "replicates=1"]), 200)
    assert {c.detail for c in exact.compare(plain, again)} == {"equal"}
    changed = ["trace.limit=200", "replicates=1", "arms.1.policy.name=round_robin"]
    other = exact.observe(load("migration-2023q3", changed), 200)
    told = {c.name: c.detail for c in exact.compare(plain, other)}
    assert "placements differ, first at request" in told["migration-2023q3/direct"]
    assert told["migration-2023q3/legacy"] == "equal"
