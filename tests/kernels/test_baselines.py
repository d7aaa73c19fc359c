"""The baselines compute the same block, in as many kernels as their definitions say."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dispatch import hardware
from kernels import baselines
from kernels.interpreter.honest import honest
from kernels.spec import BlockSpec
from kernels.variants import VARIANTS
from tests.kernels.blocks import GPT, LLAMA, Case, case, error, expected

LIMITS = {torch.bfloat16: 1.5e-2, torch.float32: 1e-5}
VIEWS = (
    "view", "transpose", "permute", "expand", "slice", "select", "t.default", "split", "unbind",
    "unsqueeze", "detach", "alias", "empty", "_unsafe_view", "arange", "lift",
)  # fmt: skip


def dense(c: Case) -> baselines.Dense:
    tokens, length = c.new[0], max(c.lengths) + c.new[0]
    shape = (len(c.lengths), c.spec.kv_heads, length + 2, c.spec.head_dim)
    k, v = torch.zeros(shape, dtype=c.x.dtype), torch.zeros(shape, dtype=c.x.dtype)
    for line, (keys, values) in enumerate(c.past):
        k[line, :, : len(keys)] = keys.transpose(0, 1)
        v[line, :, : len(values)] = values.transpose(0, 1)
    pos = [n + t for n in c.lengths for t in range(tokens)]
    return baselines.Dense(k, v, torch.tensor(pos, dtype=torch.int32), length)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("spec", [LLAMA, GPT], ids=["llama", "gpt"])
@pytest.mark.parametrize("new", [1, 5])
@pytest.mark.parametrize("name", ["three_stage", "hf_style", "strong"])
def test_a_baseline_is_the_same_block(
    name: str, new: int, spec: BlockSpec, dtype: torch.dtype
) -> None:
    c = case(spec, [6, 6], dtype, new=[new, new])
    run: Callable[..., torch.Tensor] = getattr(baselines, name)
    with honest():
        out = run(c.spec, c.weights, c.rope, c.x, dense(c))
    assert error(out, expected(c)[0]) <= LIMITS[dtype]


def test_three_stages_are_thirteen_kernels() -> None:
    c = case(LLAMA, [3])
    held = dense(c)
    with honest():
        baselines.three_stage(c.spec, c.weights, c.rope, c.x, held)
    assert len(held.steps) == hardware.PLANS["three_stage"].decode_launches == 13


class Counting(TorchDispatchMode):
    """Counts operators that a GPU would launch a kernel for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func).removeprefix("aten.")
        if not name.startswith(VIEWS):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("spec", "model"), [(LLAMA, "llama-3.1-8b"), (GPT, "gpt-2")])
def test_the_copying_style_launches_about_what_the_bounds_count(
    spec: BlockSpec, model: str
) -> None:
    c = case(spec, [6])
    held = dense(c)
    held.prepare(c.rope, c.x.dtype)
    with Counting() as seen:
        baselines.hf_style(c.spec, c.weights, c.rope, c.x, held)
    counted = VARIANTS["hf"].launches(hardware.model(model), "decode")
    assert abs(len(seen.names) - counted) <= 0.1 * counted, seen.names
