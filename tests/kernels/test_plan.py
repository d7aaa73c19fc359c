"""Hints become plans by the cost model: never fused where predicted slower, the same for all."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dispatch import hardware
from dispatch.errors import UnknownNameError
from dispatch.request import HINTS
from kernels import bounds, measured
from kernels.plan import BlockPlan, choose, workspace_bytes
from kernels.spec import BlockSpec, Tiling
from tests.strategies import block_specs

H200 = hardware.gpu("H200")
LLAMA = hardware.model("llama-3.1-8b")


def plan(hint: str = "", batch: int = 1, length: int = 1024, **kwargs: object) -> BlockPlan:
    given = {"model": LLAMA, "gpu": H200, **kwargs}
    return choose(hint=hint, batch=batch, length=length, **given)  # type: ignore[arg-type]


@given(
    st.sampled_from(("gpt-2", "llama-3.2-1b", "llama-3.1-8b")),
    st.sampled_from(("H200", "A100-80G", "L4", "V100-32G")), st.sampled_from(("", *HINTS)),
    st.sampled_from((bounds.DECODE, bounds.PREFILL)), st.integers(1, 128), st.integers(1, 8192),
    st.sampled_from(("bf16", "fp16", "fp32", "fp8")),
)  # fmt: skip
def test_fused_is_never_picked_where_it_is_predicted_slower(
    model: str, card: str, hint: str, phase: str, batch: int, length: int, precision: str
) -> None:
    model_, gpu = hardware.model(model), hardware.gpu(card)
    found = choose(model_, gpu, hint, phase=phase, batch=batch, length=length, precision=precision)
    work = bounds.Work(model_, gpu, phase, batch, length, precision)
    assert found.predicted_s <= bounds.bound(work, "strong").total_s
    assert found.predicted_s == bounds.bound(work, found.variant).total_s
    assert found.why


def test_a_hint_changes_shape_splits_and_workspace() -> None:
    fast, wide, lean = (plan(hint, batch=8) for hint in HINTS)
    assert fast.shape == "mega"
    assert wide.shape == "split5"  # 3 % away, so that the hint decides
    assert (fast.tiling.splits, wide.tiling.splits, lean.tiling.splits) == (16, 8, 1)
    assert lean.workspace_bytes < wide.workspace_bytes < fast.workspace_bytes
    assert lean.scratch == "bfloat16"


def test_measured_costs_decide_where_a_card_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    slow_barrier = measured.Costs("H200", "2026-01-01", (("barrier_us", 9.0),), "here")
    monkeypatch.setattr(measured, "costs", lambda name: slow_barrier)
    bounds._calibration.cache_clear()
    try:
        found = plan("latency_optimized", model=hardware.model("gpt-2"))
    finally:
        bounds._calibration.cache_clear()
    assert found.shape == "split5"
    assert found.costs == "launches measured 2026-01-01"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"gpu": hardware.gpu("V100-32G")}, "compute capability 7.0"),
        ({"precision": "fp8"}, "modelled, unmeasured"),
        ({"batch": 65}, "batch 65"),
        ({"model": replace(LLAMA, positions="alibi")}, "alibi"),
        ({"ran_into": "the self-test failed"}, "the self-test failed"),
    ],
)
def test_what_no_kernel_runs_falls_back_to_torch_and_says_why(
    change: dict[str, object], told: str
) -> None:
    found = plan(**change)  # type: ignore[arg-type]
    assert found.shape == "torch"
    assert told in found.why


def test_an_unknown_hint_is_refused_with_the_near_miss() -> None:
    with pytest.raises(UnknownNameError, match="latency_optimized"):
        plan("latency_optimised")


@pytest.mark.parametrize("batch", [1, 8, 32])
def test_the_simulator_prices_the_plan_alike(batch: int) -> None:
    from sim.cost import StepCost

    found = plan("latency_optimized", batch=batch)
    cost = StepCost(H200, LLAMA, "bf16", 1, found.variant, kv_precision="bf16")
    parts = cost.parts((), (), batch, batch * 1024.0)
    blocks = parts.total_s - parts.lm_head_s - parts.host_s
    assert found.predicted_s * LLAMA.layers == pytest.approx(blocks, rel=1e-3)


@given(block_specs(), st.integers(1, 64), st.sampled_from((1, 4, 16)), st.booleans())
def test_the_workspace_is_as_large_as_the_plan_says(
    spec: BlockSpec, rows: int, splits: int, prompt: bool
) -> None:
    from kernels.launch import Workspace

    tiling = Tiling(splits=splits)
    space = Workspace(spec, rows, tiling, torch.device("cpu"), prompt=prompt)
    assert workspace_bytes(spec, tiling, rows, "float32", prompt) == space.size_bytes


def test_plans_need_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, kernels.plan; assert not {'torch', 'triton'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
