"""Tuning tried on a CPU: every candidate runs, wrong ones are not kept, the rest is a table."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dispatch.errors import NotMeasurable
from kernels import tuned
from kernels.gpu import check, tune
from kernels.gpu.clock import Clock
from kernels.interpreter.honest import honest
from kernels.spec import BlockSpec, Tiling
from tests.kernels.blocks import WIDE_TILES
from zerolayer.verbs.kernels_tune import tune as verb

SPEC = BlockSpec(16, 2, 1, 16, 16)


def rows(**change: Any) -> list[dict[str, Any]]:
    given: dict[str, Any] = {"spec": SPEC, "cold_bytes": 1.0, "quick": True, "repeats": 1,
                             **change}  # fmt: skip
    with honest():
        return list(tune.rows(Clock(torch.device("cpu")), "gpt-2", 1, 5, **given))


@pytest.mark.slow
def test_candidates_become_a_table_that_plans_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [("mega", WIDE_TILES, 1), ("split5", replace(WIDE_TILES, warm=True), 1)]
    monkeypatch.setattr(tune, "candidates", lambda *_: few)  # as the interpreter takes its time
    found = rows()
    assert {row["kind"] for row in found} == {"tuned"}
    path = check.write_to(check.document("NVIDIA H200", found), tmp_path / "h200.tuned.json")
    assert set(tuned.read(path).find(SPEC, "decode", "bf16", 1, 5)) == {"mega", "split5", "torch"}
    assert json.loads(path.read_text())["gpu"] == "NVIDIA H200"


def test_a_candidate_that_is_off_or_does_not_run_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[int] = []

    def timed(*_: Any) -> tuple[torch.Tensor, float]:
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of resource: shared memory")
        return torch.ones(1) * len(calls) if len(calls) == 2 else torch.ones(1), 1e-3

    monkeypatch.setattr(tune, "_timed", timed)
    failed = [row for row in rows() if row["kind"] == "failed"]
    assert "off by" in failed[0]["error"]
    assert failed[1]["error"] == "RuntimeError: out of resource: shared memory"
    assert len(failed) == 2


def test_candidates_beyond_the_budget_are_named() -> None:
    assert {row["kind"] for row in rows(budget_s=-1.0)} == {"tuned", "left_out"}


def test_no_candidate_changes_how_a_context_is_split() -> None:
    base = Tiling()
    for _, tiling, _ in tune.candidates(base):
        assert (tiling.splits, tiling.least, tiling.bt, tiling.bm) == (16, base.least, 64, base.bm)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_tuned_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(NotMeasurable, match="nothing was measured"):
        verb(output=tmp_path)
    assert not list(tmp_path.iterdir())
