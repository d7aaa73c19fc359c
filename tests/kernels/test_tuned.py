"""A table of measured times decides before any prediction, for the card and triton it is of."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch import hardware
from dispatch.errors import InputError
from dispatch.hints import COST_PLANS, LaunchShape
from kernels import bounds, measured
from kernels.plan import choose
from kernels.spec import Tiling, decode_tiling, spec_of
from kernels.tuned import bucket, path_of, read, row

H200 = hardware.gpu("H200")
MODEL = hardware.model("llama-3.2-1b")
SPEC = spec_of(MODEL)
Put = Callable[..., None]


def one(shape: LaunchShape, us: float, batch: int = 1, length: int = 1000, **kw: Any) -> Any:
    return row(SPEC, bounds.DECODE, "bf16", batch, length, shape, us, **kw)


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Write a table for a card; its figures are the test's own and stand for no machine."""
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    measured.costs.cache_clear()

    def write(*rows: Any, triton: str = "3.6.0") -> None:
        document = {"gpu": "NVIDIA H200", "date": "2026-01-01",
                    "versions": {"triton": triton}, "rows": list(rows)}  # fmt: skip
        path_of("H200", tmp_path).write_text(json.dumps(document))

    return write


def test_the_quickest_measured_shape_is_the_plan(put: Put) -> None:
    put(one("mega", 50.0), one("split5", 30.0), one("torch", 60.0))
    found = choose(MODEL, H200, "latency_optimized", length=1000)
    assert found.shape == "split5"
    assert found.predicted_s == pytest.approx(30e-6)
    assert found.costs == "measured 2026-01-01, triton 3.6.0"


def test_fused_is_not_picked_where_it_was_measured_slower(put: Put) -> None:
    put(one("mega", 50.0), one("split5", 51.0), one("torch", 49.0))
    assert choose(MODEL, H200, length=1000).shape == "torch"


def test_without_a_measured_baseline_prediction_is_compared_with_prediction(put: Put) -> None:
    put(one("mega", 5000.0))
    assert choose(MODEL, H200, length=1000).shape == "mega"


def test_tuned_tiles_are_used_and_splits_stay(put: Put) -> None:
    wide = Tiling(bn=64, bk=128, warps=8, stages=4, warm=True, splits=3)
    put(one("mega", 9.0, tiling=wide, programs_per_sm=2), one("mega", 11.0))
    found = choose(MODEL, H200, length=1000)
    tiles = found.tiling
    assert (tiles.bn, tiles.bk, tiles.warps, tiles.stages, tiles.warm) == (64, 128, 8, 4, True)
    assert tiles.splits == decode_tiling(SPEC, 1).splits
    assert found.programs_per_sm == 2


@pytest.mark.parametrize(
    "change",
    [
        {"batch": 2}, {"length": 1100}, {"precision": "fp16"}, {"triton": "3.9.0"},
        {"gpu": hardware.gpu("H100-80G")}, {"model": hardware.model("gpt-2")},
    ],
)  # fmt: skip
def test_another_card_block_type_size_or_triton_is_predicted(
    put: Put, change: dict[str, Any]
) -> None:
    put(one("split5", 1.0), one("torch", 2.0))
    asked: dict[str, Any] = {"model": MODEL, "gpu": H200, "length": 1000}
    assert choose(**asked, triton="3.6.1").shape == "split5"
    assert choose(**{**asked, **change}).costs == "not measured"


def test_the_nearest_point_of_a_bucket_counts(put: Put) -> None:
    put(one("split5", 20.0, length=600), one("mega", 10.0, length=900))
    assert choose(MODEL, H200, length=950).shape == "mega"
    assert choose(MODEL, H200, length=640).shape == "split5"


def test_what_the_cost_model_predicts_is_untouched_by_a_table(put: Put) -> None:
    work = bounds.Work(MODEL, H200, bounds.DECODE, 1, 1000)
    before = bounds.bound(work, "fused").total_s
    put(one("mega", 1.0))
    assert bounds.bound(work, "fused").total_s == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"us": -1.0}, "row 0"), ({"us": None}, "us = None"), ({"shape": "giga"}, "giga"),
        ({"tiling": {"splits": 4}}, "tunes splits"), ({"spec": {"hidden": 3}}, "is no entry"),
        ({"batch": "many"}, "is no entry"),
    ],
)  # fmt: skip
def test_a_damaged_row_is_named(put: Put, tmp_path: Path, change: Any, told: str) -> None:
    put({**one("mega", 1.0), **change})
    with pytest.raises(InputError, match=told):
        read(path_of("H200", tmp_path))


def test_a_row_that_lacks_a_key_is_named(put: Put, tmp_path: Path) -> None:
    short = one("mega", 1.0)
    del short["dtype"]
    put(one("mega", 1.0), short)
    with pytest.raises(InputError, match=r"row 1.*lacks dtype"):
        read(path_of("H200", tmp_path))


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "h200.tuned.json"
    path.write_text("[]")
    with pytest.raises(InputError, match="is no table of kernels"):
        read(path)


@given(st.integers(1, 1 << 20))
def test_a_bucket_is_the_power_of_two_that_holds_a_count(count: int) -> None:
    assert bucket(count) // 2 < count <= bucket(count)


def test_every_launch_shape_is_a_plan_of_the_cost_model() -> None:
    assert set(COST_PLANS.values()) <= set(hardware.PLANS)
