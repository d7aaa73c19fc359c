"""Iterations of whole models: sums, plans, precision, and what is said to be extrapolated."""

from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch import hardware
from dispatch.hardware import PLANS, Roofline, calibration, plan
from dispatch.hardware.plans import extra_bytes, pass_bytes, score_traffic
from sim.cost import StepCost

A100, H100 = hardware.gpu("A100-80G"), hardware.gpu("H100-80G")
SMALL = hardware.model("llama-2-13b")


def roofline(name: str, tp: int = 1, gpu: hardware.Gpu = A100, precision: str = "fp16") -> Roofline:
    chosen = plan(name)
    cal = calibration(gpu, name, "vllm" if chosen.graphed else "eager-2023")
    return Roofline(gpu, SMALL, precision, "fp16", tp, chosen, cal)


prompts = st.lists(st.integers(1, 4096), max_size=4)
plans = st.sampled_from(sorted(PLANS))


@given(plans, prompts, st.integers(0, 64), st.integers(1, 4096), st.sampled_from([1, 2, 4]))
def test_the_parts_are_never_negative_and_add_up(
    name: str, new: list[int], batch: int, context: int, tp: int
) -> None:
    parts = roofline(name, tp).parts(new, [0] * len(new), batch, float(batch * context))
    assert all(value >= 0 for value in asdict(parts).values())
    assert parts.total_s == pytest.approx(sum(asdict(parts).values()))
    assert (parts.total_s > 0) == bool(new or batch)


@given(prompts.filter(bool), st.integers(1, 2048), st.integers(0, 32))
def test_a_longer_prompt_never_takes_less_time(new: list[int], more: int, batch: int) -> None:
    cost = roofline("strong")
    past = [0] * len(new)
    longer = [new[0] + more, *new[1:]]
    assert cost.parts(longer, past, batch, batch * 100.0).total_s >= (
        cost.parts(new, past, batch, batch * 100.0).total_s
    )


@given(st.integers(1, 128), st.integers(1, 4096), st.integers(1, 4096))
def test_more_context_never_decodes_quicker(batch: int, context: int, more: int) -> None:
    cost = roofline("fused")
    at = [cost.parts((), (), batch, float(batch * c)).total_s for c in (context, context + more)]
    assert at[1] >= at[0]


@given(st.integers(1, 2048), st.integers(0, 64))
def test_three_stages_differ_from_the_fused_block_by_launches_and_bytes_alone(
    tokens: int, batch: int
) -> None:
    staged, fused = roofline("three_stage_graph"), roofline("fused")
    a = staged.parts((tokens,), (0,), batch, batch * 500.0)
    b = fused.parts((tokens,), (0,), batch, batch * 500.0)
    for same in ("projections_s", "collectives_s", "lm_head_s", "host_s"):
        assert getattr(a, same) == getattr(b, same)
    # A fused plan calls no attention library: that library's start and combine go with launches.
    c = staged.attention
    calls = 2 if batch else 1
    most = SMALL.layers * (calls * c.start_us + c.combine_us) * 1e-6
    assert 0 <= a.attention_s - b.attention_s <= most * (1 + 1e-9)
    moved = extra_bytes(SMALL, "three_stage_graph", 1, tokens + batch, 0.0)
    assert a.elementwise_s >= b.elementwise_s
    assert moved > extra_bytes(SMALL, "fused", 1, tokens + batch, 0.0) == 0
    assert a.launches_s - b.launches_s == pytest.approx(
        SMALL.layers * (plan("three_stage_graph").prefill_launches - plan("fused").prefill_launches)
        * staged.cal.launch.graph_us * 1e-6
    )  # fmt: skip


def test_scores_are_moved_only_where_they_stay_in_memory() -> None:
    assert score_traffic(SMALL, "three_stage", 1, 1e9) == 4 * 1e9 * SMALL.heads * 2
    assert score_traffic(SMALL, "fused", 1, 1e9) == 0.0


def test_the_bytes_of_norms_follow_from_the_hidden_size() -> None:
    """Two norms a layer, each reads and writes tokens x hidden 16-bit values."""
    assert pass_bytes(SMALL, "strong", 1, 4096)["norm"] == 2 * 2 * 4096 * 5120 * 2


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_a_decode_line_is_the_iteration_within_a_few_per_cent(batch: int) -> None:
    cost = StepCost(A100, SMALL, "fp16", 1, "fused")
    base, slope = cost.decode_line(batch)
    for context in (256, 700, 1024, 2048):
        whole = cost.parts((), (), batch, float(batch * context)).total_s
        assert base + slope * batch * context == pytest.approx(whole, rel=0.04)


def test_fp8_halves_the_bytes_of_a_decode_and_the_flops_of_a_prompt() -> None:
    wide, narrow = roofline("strong", gpu=H100), roofline("strong", gpu=H100, precision="fp8")
    assert narrow.projections_s(1) == pytest.approx(wide.projections_s(1) / 2, rel=0.05)
    assert narrow.projections_s(8192) == pytest.approx(wide.projections_s(8192) / 2, rel=0.1)


def test_int4_weights_are_read_in_far_fewer_bytes_and_multiplied_at_16_bits() -> None:
    wide, narrow = roofline("strong"), roofline("strong", precision="int4")
    assert narrow.projections_s(1) < wide.projections_s(1) / 2
    assert narrow.projections_s(8192) == pytest.approx(wide.projections_s(8192), rel=0.1)


def test_grouped_queries_read_as_many_bytes_as_they_have_kv_heads() -> None:
    wide = replace(SMALL, name="grouped", kv_heads=SMALL.kv_heads // 8)
    cal = calibration(A100, "strong")
    many = Roofline(A100, SMALL, "fp16", "fp16", 1, plan("strong"), cal)
    few = Roofline(A100, wide, "fp16", "fp16", 1, plan("strong"), cal)
    at = [r.parts((), (), 64, 64 * 4000.0).attention_s for r in (many, few)]
    assert at[0] > 4 * at[1]


def test_a_degraded_ring_slows_collectives_and_nothing_else() -> None:
    whole, slow = roofline("strong", 4), roofline("strong", 4).with_ring(3.0)
    a, b = (r.parts((500,), (0,), 4, 900.0) for r in (whole, slow))
    assert b.collectives_s == pytest.approx(3 * a.collectives_s)
    assert replace(b, collectives_s=0.0) == replace(a, collectives_s=0.0)


def test_host_times_follow_the_host_of_the_gpu_once_however_often_the_ring_changes() -> None:
    one = roofline("strong", 2, gpu=H100)
    assert one.with_ring(2.0).with_ring(0.5).cal.host == one.cal.host
    assert one.cal.host.iteration_us == pytest.approx(0.7 * one.given.host.iteration_us)


def test_a_gpu_without_a_fit_says_that_it_is_extrapolated() -> None:
    assert any("extrapolated" in note for note in StepCost(hardware.gpu("L4"), SMALL).extrapolated)


def test_shapes_outside_the_measured_range_say_so() -> None:
    wide = replace(SMALL, name="vast", hidden=200_000)
    notes = StepCost(A100, wide, kernel_plan="strong").extrapolated
    assert any("gemm" in note and "outside the measured" in note for note in notes)


@pytest.mark.parametrize("card", ["A100-80G", "H100-80G"])
def test_constants_name_their_card_source_date_and_residual(card: str) -> None:
    cal = calibration(hardware.gpu(card), "strong", "vllm")
    for section in ("gemm", "attention", "collective", "custom", "elementwise"):
        fit = cal.fits[section]
        assert fit.source != "assumed"
        assert fit.date.startswith("20")
        assert fit.rows > 30
        assert 0 < fit.median_error < 0.15
        assert 0 < fit.held_out_error < 0.15
        assert fit.files
        assert fit.range
