"""The live engine's blocks are tested at start-up, and step back where kernels are wrong."""

from dataclasses import replace

import pytest
import torch

import live.blocks
from dispatch import hardware
from kernels.interpreter.honest import honest
from kernels.plan import choose, launch_shape, model_of
from live.blocks import KernelBlocks
from live.model import load_model
from live.sequence import Job, Run, Sequence


@pytest.fixture
def blocks() -> KernelBlocks:
    return KernelBlocks(load_model("tiny", 0, "cpu"))


def test_right_kernels_pass(blocks: KernelBlocks) -> None:
    with honest():
        assert blocks.self_test() == ""


def test_wrong_kernels_are_not_used_and_say_why(blocks: KernelBlocks) -> None:
    blocks.model.dtype = torch.bfloat16  # which the plain interpreter gets wrong
    assert "self-test" in blocks.self_test()


def test_a_single_launch_that_fails_gives_way_to_five(
    blocks: KernelBlocks, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def only_mega_fails(spec: object, shape: str, *_: object) -> str:
        return "too many blocks in cooperative launch" if shape == "mega" else ""

    monkeypatch.setattr(live.blocks, "failure", only_mega_fails)
    blocks._launches = "mega"
    assert blocks.self_test() == ""
    assert blocks._launches == "split5"
    assert "decodes run as five launches" in capsys.readouterr().err


def runs_of(*jobs: tuple[str, int]) -> list[Run]:
    """Return decodes of jobs (hint, tokens that are stored)."""
    found = []
    for at, (hint, past) in enumerate(jobs):
        sequence = Sequence(Job(at, [1], 4, kernel_hint=hint))
        sequence.held.stored_tokens = past
        found.append(Run(sequence, at, 1))
    return found


def test_a_pass_takes_the_plan_of_the_hint_that_its_jobs_share(blocks: KernelBlocks) -> None:
    card = hardware.gpu("H200")
    wide = blocks.plan(card, runs_of(("throughput_optimized", 5), ("throughput_optimized", 900)))
    assert wide.hint == "throughput_optimized"
    assert wide == choose(
        model_of(blocks.spec), card, wide.hint, batch=2, length=1024, precision="fp32"
    )
    mixed = blocks.plan(card, runs_of(("throughput_optimized", 5), ("memory_efficient", 5)))
    assert mixed.hint == "latency_optimized"  # what no hint gets


def test_where_torch_is_planned_the_engine_takes_the_quicker_of_its_own_shapes(
    blocks: KernelBlocks,
) -> None:
    card = hardware.gpu("H200")
    plan = choose(model_of(blocks.spec), card, "latency_optimized")
    slow = replace(plan, shape="torch", considered=(("mega", 3.0), ("split5", 2.0), ("torch", 1.0)))
    assert launch_shape(slow) == "split5"
    assert launch_shape(replace(slow, considered=(("torch", 1.0),))) == "split5"
    assert launch_shape(plan) == plan.shape == "mega"
