"""The engine on the Triton kernels, under their interpreter: the same tokens as on plain torch."""

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed")

from kernels.interpreter.honest import honest
from live.config import LiveEngine
from live.engine import Engine
from live.model import Llama, random_weights
from live.sequence import Event, Job, Kind
from live.shapes import LlamaShape

SHAPE = LlamaShape("test", 48, 2, 4, 2, 12, 80, 64, 128)
MODEL = Llama(SHAPE, random_weights(SHAPE, 3), "cpu")


def tokens(kernels: str, **limits: Any) -> dict[int, list[int]]:
    """Two prompts in chunks, then decodes side by side, one of them ending early."""
    events: list[Event] = []
    setup = LiveEngine(**{"block_tokens": 4, "kernels": kernels, **limits})
    engine = Engine(MODEL, setup, 400 * SHAPE.kv_bytes_per_token, events.extend)
    for id_, prompt, output in ((1, 9, 5), (2, 14, 3)):
        engine.submit(Job(id_, [(id_ * 7 + i) % 64 for i in range(prompt)], output))
    while engine.busy:
        engine.step()
    assert [e.kind for e in events if e.is_end] == [Kind.finished] * 2
    return {id_: [t for e in events if e.id == id_ for t in e.tokens] for id_ in (1, 2)}


@pytest.mark.parametrize("kv", ["paged", "contiguous"])
def test_kernels_give_the_tokens_that_torch_gives(kv: str) -> None:
    with honest():
        found = tokens("triton", kv=kv, max_num_batched_tokens=8)
    assert found == tokens("torch", kv=kv, max_num_batched_tokens=8)


def test_a_cpu_device_takes_plain_torch_unless_told() -> None:
    events: list[Event] = []
    assert Engine(MODEL, LiveEngine(), 1 << 16, events.extend).blocks is None


def test_a_pass_stores_the_same_keys_and_values_to_rounding() -> None:
    stored = {}
    for kernels in ("triton", "torch"):
        engine = Engine(MODEL, LiveEngine(kernels=kernels), 1 << 16, lambda events: None)  # type: ignore[arg-type]
        engine.cache.memory.zero_()
        engine.submit(Job(1, list(range(20)), 1))
        with honest():
            engine.step()
        stored[kernels] = engine.cache.memory.view(torch.float32)
    assert stored["torch"].count_nonzero() > 20 * 2 * 2 * 24 * 0.9
    torch.testing.assert_close(stored["triton"], stored["torch"], rtol=2e-5, atol=2e-5)
