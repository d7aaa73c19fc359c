"""The live engine's blocks are tested at start-up, and step back where kernels are wrong."""

import pytest
import torch

import live.blocks
from kernels.interpreter.honest import honest
from live.blocks import KernelBlocks
from live.model import load_model


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
