"""The block as an opaque operator, and the self-test that stands before it."""

import pytest
import torch

import kernels.launch
from kernels import ops, selftest
from kernels.interpreter.honest import honest
from kernels.launch import Workspace, require_capability
from kernels.spec import BlockSpec
from tests.kernels.blocks import GPT, LLAMA, WIDE_TILES, batch_of, case, execute

CPU = torch.device("cpu")


@pytest.mark.parametrize("spec", [LLAMA, GPT], ids=["llama", "gpt"])
def test_compiled_equals_eager_and_holds_one_operator(spec: BlockSpec) -> None:
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    c, eager = case(spec, [20]), case(spec, [20])
    space = Workspace(spec, 1, WIDE_TILES, CPU)

    batch = batch_of(c, False, WIDE_TILES)
    block = ops.bind(spec, c.weights, c.rope, c.cache, batch, space, WIDE_TILES, "split5", 1)

    def twice(x: torch.Tensor) -> torch.Tensor:
        return 2 * block(x)

    with honest():
        found = torch.compile(twice, backend=keep, fullgraph=True)(c.x)
    assert torch.equal(found, 2 * execute(eager))
    calls = [n for n in graphs[0].graph.nodes if "zerolayer" in str(n.target)]
    assert len(calls) == 1


@pytest.mark.parametrize("shape", ["split5", "mega", "prefill"])
@pytest.mark.parametrize("spec", [LLAMA, GPT], ids=["llama", "gpt"])
def test_the_self_test_passes_where_kernels_are_right(shape: str, spec: BlockSpec) -> None:
    with honest():
        told = selftest.failure(spec, shape, torch.bfloat16, CPU, tiling=WIDE_TILES)  # type: ignore[arg-type]
    assert told == ""


def test_the_self_test_fails_on_the_interpreters_own_bf16() -> None:
    told = selftest.failure(LLAMA, "split5", torch.bfloat16, CPU, tiling=WIDE_TILES)
    assert "self-test" in told


def test_a_launch_that_raises_is_a_reason_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("too many blocks in cooperative launch")

    monkeypatch.setattr(selftest, "run", broken)
    told = selftest.failure(LLAMA, "mega", torch.float32, CPU)
    assert told == ("mega self-test raised RuntimeError: too many blocks in cooperative launch")


def test_an_old_card_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels.launch.torch.cuda, "get_device_capability", lambda _: (7, 5))
    monkeypatch.setattr(kernels.launch.torch.cuda, "get_device_name", lambda _: "T4")
    with pytest.raises(kernels.launch.InputError, match=r"T4: compute capability 7\.5; the fused"):
        require_capability(torch.device("cuda"))
