"""The bars of a GPU's result: judged where measured, and never passed over where not."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import kernels as bench
from dispatch import hardware
from kernels import bounds


def times(**change: float) -> list[dict[str, Any]]:
    """Return figures, the test's own, that hold every bar; *change* by variant."""
    found = []
    for model, batch, length in bench.DECODES:
        us = {"fused": 10.0, "strong": 20.0, "three_stage_graph": 30.0, **change}
        found += [
            {"kind": "time", "phase": "decode", "model": model, "batch": batch, "length": length,
             "variant": variant, "us": value}
            for variant, value in us.items()
        ]  # fmt: skip
    return found


def moved(factor: float = 1.0) -> list[dict[str, Any]]:
    found = []
    for model, batch, length in bench.DECODES:
        work = bounds.Work(hardware.model(model), hardware.gpu("H200"), "decode", batch, length)
        found.append({"kind": "bytes", "variant": "fused", "shape": [model, batch, length],
                      "dram_bytes": factor * bounds.least_bytes(work)})  # fmt: skip
    return found


RIGHT = [{"kind": "right", "what": "mega", "wrong": ""}]


def judge(tmp_path: Path, *rows: dict[str, Any]) -> int:
    path = tmp_path / "h200.json"
    path.write_text(json.dumps({"gpu": "NVIDIA H200", "rows": list(rows)}))
    return bench.main([str(path)])


def test_all_bars_hold(tmp_path: Path) -> None:
    assert judge(tmp_path, *times(), *moved(), *RIGHT) == 0


@pytest.mark.parametrize(
    "rows",
    [
        [*times(fused=10.0, strong=9.0), *moved(), *RIGHT],
        [*times(three_stage_graph=22.0), *moved(), *RIGHT],
        [*times(fused=200.0, strong=400.0, three_stage_graph=600.0), *moved(), *RIGHT],
        [*times(), *moved(1.06), *RIGHT],
        [*times(), *moved(), {"kind": "right", "what": "mega", "wrong": "off by 1"}],
    ],
)
def test_each_bar_can_fail(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert judge(tmp_path, *rows) == 1


@pytest.mark.parametrize("rows", [[*times(), *RIGHT], [*moved(), *RIGHT], [*times(), *moved()]])
def test_what_was_not_measured_neither_holds_nor_fails(
    tmp_path: Path, rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(tmp_path, *rows) == 4
    assert "unmeasured" in capsys.readouterr().out


def test_a_missing_file_and_a_damaged_one_are_told_apart(tmp_path: Path) -> None:
    assert bench.main([str(tmp_path / "none.json")]) == 4
    (tmp_path / "bad.json").write_text("{}")
    assert bench.main([str(tmp_path / "bad.json")]) == 2


def test_the_bars_cover_the_shapes_that_are_measured() -> None:
    from kernels.gpu.shapes import DECODES

    assert set(bench.DECODES) == set(DECODES)
