"""What a run says of C6 and C7: modelled and called so, or measured where a card has a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from dispatch import hardware
from kernels import bounds, evidence, measured
from kernels.evidence import Block, claims

LLAMA = hardware.model("llama-3.1-8b")
H200, V100 = hardware.gpu("H200"), hardware.gpu("V100-32G")


def test_a_model_is_called_a_model_and_never_holds() -> None:
    found = claims([Block(LLAMA, H200), Block(LLAMA, hardware.gpu("H100-80G"))])
    for claim in ("C6", "C7"):
        assert found[claim]["status"] == evidence.MEASURED_NOT
        assert found[claim]["measured"].startswith("modelled")
    assert [row["gpu"] for row in found["blocks"]] == ["H200", "H100-80G"]


def test_the_figures_are_those_of_the_bounds() -> None:
    found = claims([Block(LLAMA, H200)])["blocks"][0]["against"]["three_stage_graph"]
    work = bounds.Work(LLAMA, H200, bounds.DECODE, 8, 1024)
    assert found["speedup"] == round(bounds.verdict(work, "three_stage_graph").speedup, 4)


def test_a_replica_of_many_gpus_is_judged_by_the_share_of_one() -> None:
    whole, share = Block(LLAMA, H200), Block(LLAMA, H200, tp=4)
    assert share.share.layer_weights * 4 == LLAMA.layer_weights
    a, b = (claims([x])["blocks"][0]["against"]["strong"]["speedup"] for x in (whole, share))
    assert b > a  # a smaller block has more fixed cost to save


def test_a_fleet_without_a_card_for_the_kernels_says_so() -> None:
    found = claims([Block(LLAMA, V100)])
    assert "8.0 or later" in found["C6"]["measured"]
    assert found["blocks"] == []


@pytest.mark.parametrize(("theirs", "status"), [(24.0, "holds"), (22.0, "does not hold")])
def test_a_measured_file_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: float, status: str
) -> None:
    def row(variant: str, us: float) -> dict[str, Any]:
        return {"kind": "time", "phase": "decode", "model": "gpt-2", "batch": 1, "length": 128,
                "variant": variant, "us": us}  # fmt: skip

    document = {
        "gpu": "NVIDIA H200", "date": "2026-01-01", "costs": {}, "versions": {"triton": "3.6.0"},
        "rows": [row("fused", 10.0), row("three_stage_graph", theirs)],
    }  # fmt: skip
    (tmp_path / "h200.json").write_text(json.dumps(document))
    monkeypatch.setattr(measured, "FOLDER", tmp_path)
    measured.costs.cache_clear()
    bounds._calibration.cache_clear()
    found = claims([Block(LLAMA, H200)])
    measured.costs.cache_clear()
    bounds._calibration.cache_clear()
    assert found["C6"]["status"] == status
    assert "measured on NVIDIA H200" in found["C6"]["measured"]
    assert found["C7"]["status"] == evidence.MEASURED_NOT
