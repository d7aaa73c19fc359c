"""Iterations are priced by plain floats that equal the roofline, or by the roofline itself."""

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from arms import arm, run, trace

from dispatch.hardware import gpu, model
from sim import fleet
from sim.cost import StepCost
from sim.pace import Pace

KINDS = [
    ("A100-80G", "llama-3.1-8b", "fp16", 1, "fused"),
    ("H100-80G", "llama-3.1-70b", "fp8", 4, "fused"),
    ("V100-32G", "llama-2-13b", "fp16", 2, "three_stage"),
]
chunks = st.lists(st.tuples(st.integers(1, 3000), st.integers(0, 4000)), min_size=1, max_size=4)


def cost(kind):
    card, shape, *rest = kind
    return StepCost(gpu(card), model(shape), *rest)


PACES = {kind: Pace(cost(kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]} {kind[1]} {kind[4]}")
def test_every_kind_of_replica_here_is_priced_by_floats(kind):
    assert PACES[kind].exact


@given(kind=st.sampled_from(KINDS), parts=chunks, batch=st.integers(0, 200),
       tokens=st.integers(1, 2000))  # fmt: skip
def test_the_price_is_that_of_the_roofline_for_any_batch(kind, parts, batch, tokens):
    new, past = zip(*parts, strict=True)
    context = float(batch * tokens)
    expected = PACES[kind].cost.mixed_s(new, past, batch, context)
    assert PACES[kind].mixed_s(new, past, batch, context) == pytest.approx(expected, rel=1e-9)


def test_where_the_floats_differ_the_roofline_is_asked_every_time(monkeypatch):
    """Somebody has changed a formula there and not here: slower, never wrong."""
    kind, asked = KINDS[0], []
    monkeypatch.setattr(Pace, "_prefill_s", lambda self, new, past: 1.0)
    roofline = StepCost.mixed_s

    def counted(self, *batch):
        asked.append(batch)
        return roofline(self, *batch)

    monkeypatch.setattr(StepCost, "mixed_s", counted)
    pace = Pace(cost(kind))
    assert not pace.exact
    assert pace.mixed_s((700,), (0,), 3, 900.0) == PACES[kind].mixed_s((700,), (0,), 3, 900.0)
    assert len(asked) == 1


def test_a_run_whose_floats_differ_gives_the_same_rows(monkeypatch):
    offered, setup = trace([0.0, 0.1, 0.2, 5.0], [900, 20, 3000, 7], [30, 200, 5, 60]), arm(count=1)
    _, fast, _, _ = run(offered, setup)
    fleet._pace.cache_clear()
    monkeypatch.setattr(Pace, "_agrees", lambda self, *probe: False)
    _, slow, _, _ = run(offered, setup)
    fleet._pace.cache_clear()
    assert (fast["device"] == slow["device"]).all()
    for column in ("started_s", "first_token_s", "end_s"):
        assert fast[column].to_numpy() == pytest.approx(slow[column].to_numpy(), abs=3e-9)


def test_what_a_process_has_priced_before_changes_no_run():
    """Prices are kept by kind of replica for later runs of a process; they hang on nothing else."""
    offered = trace([0.0, 0.05, 0.1], [700, 30, 2000], [80, 10, 40])
    setups = [
        arm(count=1, gpu=card, engine={"kernel_plan": plan})
        for card, plan in itertools.product(("A100-80G", "H100-80G"), ("fused", "split5"))
    ]
    fleet._pace.cache_clear()
    cold = []
    for setup in setups:
        fleet._pace.cache_clear()
        cold.append(run(offered, setup)[1])
    warm = [run(offered, setup)[1] for setup in reversed(setups)][::-1]
    assert all(a.equals(b) for a, b in zip(cold, warm, strict=True))
    assert len({rows["end_s"].iloc[0] for rows in cold}) == len(setups)  # none takes another's


def test_a_gpu_of_the_same_name_and_other_figures_has_prices_of_its_own():
    from dataclasses import replace

    card, shape = gpu("A100-80G"), model("llama-3.1-8b")
    slower = replace(card, bandwidth_bytes_per_s=card.bandwidth_bytes_per_s / 2)
    one, two = (
        fleet._pace(c, shape, "fp16", 1, "fused", None, 8, None) for c in (card, slower)
    )  # fmt: skip
    assert one is not two
    assert two.decode_line(8)[0] > 1.5 * one.decode_line(8)[0]
