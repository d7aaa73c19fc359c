"""Catalogue entries against what is published of them elsewhere."""

from pathlib import Path

import pytest

from dispatch import hardware
from dispatch.errors import InputError, UnknownNameError

# Totals printed by the Hugging Face model pages or `numel()` of the published checkpoints.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "qwen2.5-7b": 7_615_616_512,
    "gpt2": 124_439_808,
    "gpt-2-large": 774_030_080,
    "llama-3.2-1b": 1_235_814_400,
}
# NVIDIA datasheets, dense: HBM GB/s, FP16 TFLOP/s, NVLink GB/s a direction, PCIe GB/s a direction.
DATASHEET = {
    "V100-16G": (900, 125, 150, 16),
    "A100-40G": (1555, 312, 300, 32),
    "A100-80G": (2039, 312, 300, 32),
    "H100-80G": (3350, 989, 450, 64),
    "H200": (4800, 989, 450, 64),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_shape_gives_the_published_parameter_count(name: str) -> None:
    shape = hardware.model(name)
    assert shape.counted_parameters == PUBLISHED[name]
    assert shape.parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", sorted(hardware.models()))
def test_every_stated_parameter_count_follows_from_its_shape(name: str) -> None:
    shape = hardware.model(name)
    assert shape.counted_parameters == pytest.approx(shape.parameters, rel=0.002)


@pytest.mark.parametrize("name", sorted(DATASHEET))
def test_gpus_have_the_rates_of_their_datasheets(name: str) -> None:
    card = hardware.gpu(name)
    bandwidth, dense, nvlink, pcie = DATASHEET[name]
    assert card.bandwidth_bytes_per_s == bandwidth * 1e9
    assert card.flops["fp16"] == pytest.approx(dense * 1e12, rel=0.005)
    assert card.nvlink_bytes_per_s == nvlink * 1e9
    assert card.pcie_bytes_per_s == pcie * 1e9


def test_every_gpu_says_where_its_figures_come_from() -> None:
    for card in hardware.gpus().values():
        assert {"rates", "memory", "price"} <= set(card.sources), card.name


def test_a_sibling_is_a_known_gpu_of_the_same_generation() -> None:
    for card in hardware.gpus().values():
        if card.sibling:
            like = hardware.gpu(card.sibling)
            assert (like.compute_capability, like.sibling) == (card.compute_capability, "")


def test_kv_of_a_token_is_what_engines_print() -> None:
    """131,072 bytes a token for Llama-3.1-8B at 16 bits, as vLLM's block count implies."""
    assert hardware.model("llama-3.1-8b").kv_bytes_per_token("bf16") == 131_072
    assert hardware.model("llama-3.1-8b").kv_bytes_per_token("fp8") == 65_536


def test_a_user_adds_a_gpu_and_a_model_by_a_file_alone(tmp_path: Path) -> None:
    bundled = Path(hardware.gpu("A100-80G").origin).read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(bundled.replace('name = "A100-80G"', 'name = "MINE"'))
    assert hardware.gpu(str(mine)).name == "MINE"
    shape = tmp_path / "small.toml"
    shape.write_text(Path(hardware.model("gpt-2").origin).read_text())
    assert hardware.model(str(shape)).layers == 12


def test_a_bad_gpu_file_names_every_bad_key(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('name = "M"\nmemory_byte = 5\nsms = -1\n[tflops]\nfp16 = 3\n')
    with pytest.raises(InputError) as caught:
        hardware.gpu(str(mine))
    text = str(caught.value)
    for part in ("memory_bytes", "did you mean memory_bytes", "sms = -1", "fp32", str(mine)):
        assert part in text


def test_an_unknown_gpu_gets_its_near_miss() -> None:
    with pytest.raises(UnknownNameError, match="did you mean H100-80G"):
        hardware.gpu("H100-80")
