"""The bench of decisions: what it prints, not how fast this machine is."""

import json
from typing import Any

import pytest

from dispatch.errors import InputError
from zerolayer import decision_bars, decisions
from zerolayer.verbs.bench_dispatch import dispatch


def _json(capsys: pytest.CaptureFixture[str], **given: Any) -> dict[str, Any]:
    assert dispatch(seconds=0.001, json=True, **given) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_each_row_has_its_figures_beside_the_floor_and_the_legacy_path(
    capsys: pytest.CaptureFixture[str],
) -> None:
    body = _json(capsys, policy="topology", devices="8,50")
    assert [(r["policy"], r["devices"]) for r in body["rows"]] == [
        ("topology", 8),
        ("topology", 50),
        ("legacy", 8),
        ("legacy", 50),
    ]
    for row in body["rows"]:
        assert 0 < row["floor_us"] < row["p50_us"] <= row["p99_us"]
        assert row["decisions"] >= 200


def test_the_cost_of_sampling_is_reported_with_its_bar(capsys: pytest.CaptureFixture[str]) -> None:
    body = _json(capsys, policy="random", devices="2")
    assert body["sampling"]["devices"] == 1000
    assert body["sampling"]["core_ratio"] > 0
    (bar,) = body["bars"]  # those of the topology policy need its rows
    assert (bar["at_most"], bar["holds"]) == (0.02, bar["figure"] <= 0.02)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"policy": "topolgy"}, "unknown policy 'topolgy'; did you mean topology"),
        ({"devices": "8,x"}, "found '8,x', 0.1; give e.g. 8,1000"),
        ({"devices": "0"}, "give e.g. 8,1000"),
        ({"devices": ""}, "give e.g. 8,1000"),
        ({"seconds": 0.0}, "give e.g. 8,1000"),
        ({"seconds": float("nan")}, "give e.g. 8,1000"),
    ],
)
def test_wrong_use_is_refused_by_name(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        dispatch(**given)


@pytest.mark.parametrize("mixed", [False, True])
def test_no_allocation_of_a_decision_grows_with_the_number_of_devices(mixed: bool) -> None:
    small, large = (decisions.allocations("topology", n, mixed=mixed)[0] for n in (100, 2000))
    assert large - small < decision_bars.GROWTH_BAR_BYTES


def test_a_missed_bar_says_so() -> None:
    assert str(decision_bars.Bar("p50 us", 13.0, 12.0)) == "p50 us: 13 (bar 12): DOES NOT HOLD"
