"""Bytes that the plan counts are the bytes that the interpreter sees loaded and stored."""

from contextlib import nullcontext

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import counts
from kernels.interpreter.honest import Hooks, Traffic
from kernels.launch import Workspace
from kernels.spec import BlockSpec, Tiling
from tests.kernels.blocks import GPT, LLAMA, Case, batch_of, case, execute
from tests.strategies import block_specs

TILES = Tiling(bm=16, bn=32, bk=64, bt=16, bq=16, splits=3, least=16)
WITHIN = 0.02


class Kept(Workspace):
    """A workspace whose scratch survives from one launch of a phase to the next."""

    def poison(self) -> None:
        """Leave what the last phase wrote."""


def traffic(c: Case, prompt: bool) -> list[Traffic]:
    """Run phase after phase, and count each."""
    space = Kept(c.spec, len(c.x), TILES, c.x.device, prompt=prompt)
    found = []
    for at in range(5):
        seen = Traffic()

        def around(hooks: Hooks, seen: Traffic = seen) -> nullcontext[None]:
            hooks.traffic = seen
            return nullcontext()

        shape = "prefill" if prompt else "split5"
        execute(c, shape, 1, TILES, space, around, phases=[(at, at + 1)])
        found.append(seen)
    return found


def assert_counted(c: Case, prompt: bool) -> None:
    batch = batch_of(c, prompt, TILES)
    width = c.x.element_size()
    told = counts.Pass(tuple(batch.pos.tolist()), width, 4, 4, page_tokens=c.cache.page_tokens)
    if prompt:
        tiles = list(zip(batch.tile_first.tolist(), batch.tile_end.tolist(), strict=True))
        parts = counts.prompt(c.spec, TILES, told, tiles)
    else:
        parts = counts.decode(c.spec, TILES, told)
    for name, seen in zip(counts.PHASES, traffic(c, prompt), strict=True):
        part = parts[name]
        assert part.loaded == pytest.approx(seen.loaded, rel=WITHIN), name
        assert part.stored == pytest.approx(seen.stored, rel=WITHIN), name
        assert part.distinct == pytest.approx(seen.distinct_loaded, rel=WITHIN), name
        assert part.stored == pytest.approx(seen.distinct_stored, rel=WITHIN), name


@pytest.mark.parametrize("spec", [LLAMA, GPT], ids=["llama", "gpt"])
@pytest.mark.parametrize("page", [0, 16], ids=["contiguous", "paged"])
def test_every_phase_of_a_decode_moves_what_is_counted(spec: BlockSpec, page: int) -> None:
    assert_counted(case(spec, [45, 3, -1], page=page), prompt=False)


@pytest.mark.parametrize("spec", [LLAMA, GPT], ids=["llama", "gpt"])
def test_every_phase_of_a_prompt_moves_what_is_counted(spec: BlockSpec) -> None:
    assert_counted(case(spec, [0, 9], page=16, new=[20, 4]), prompt=True)


@settings(max_examples=2)
@given(block_specs(), st.lists(st.integers(0, 50), min_size=1, max_size=2))
def test_any_decode_moves_what_is_counted(spec: BlockSpec, lengths: list[int]) -> None:
    assert_counted(case(spec, lengths, torch.float32, page=16), prompt=False)


def test_weights_are_nearly_all_that_a_decode_must_read() -> None:
    from dispatch import hardware
    from kernels import bounds
    from kernels.spec import decode_tiling, spec_of

    model = hardware.model("llama-3.1-8b")
    spec = spec_of(model)
    parts = counts.decode(spec, decode_tiling(spec, 1), counts.Pass((1023,)))
    work = bounds.Work(model, hardware.gpu("H200"), bounds.DECODE, 1, 1024)
    assert counts.total(parts).distinct == pytest.approx(bounds.least_bytes(work), rel=0.01)
