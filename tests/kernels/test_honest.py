"""The interpreter's bf16 is made honest: dots widen, casts round, the rest raises."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given
from hypothesis import strategies as st
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpretedFunction

from kernels.interpreter.honest import honest, narrow, widen
from kernels.phases import slot_offset


def interpreted(function):  # type: ignore[no-untyped-def]
    return InterpretedFunction(function)


@interpreted
def add_bf16(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at) + tl.load(x + at))


@interpreted
def dot_bf16(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    value = tl.load(x + i[:, None] * N + i[None, :])
    total = tl.dot(value, tl.trans(value), tl.zeros([N, N], tl.float32), input_precision="ieee")
    tl.store(out + i[:, None] * N + i[None, :], total)


@interpreted
def offsets(pages, out, stride, N: tl.constexpr, PAGE: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, N)
    page = tl.load(pages + at)
    tl.store(out + at, slot_offset(page, at, stride, 7, PAGE))


@interpreted
def narrow_all(x, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, N)
    tl.store(out + at, tl.load(x + at).to(tl.bfloat16))


def test_bf16_arithmetic_raises_instead_of_adding_bit_patterns() -> None:
    x, out = torch.ones(16, dtype=torch.bfloat16), torch.zeros(16, dtype=torch.bfloat16)
    with honest(), pytest.raises(InterpreterError, match="widen to fp32 after the load"):
        add_bf16[(1,)](x, out, 16)


def test_a_bf16_dot_multiplies_numbers() -> None:
    x = torch.randn(16, 16).to(torch.bfloat16)
    out = torch.zeros(16, 16)
    with honest():
        dot_bf16[(1,)](x, out, 16)
    torch.testing.assert_close(out.double(), x.double() @ x.double().T, rtol=1e-6, atol=1e-6)


def test_the_plain_interpreter_is_wrong_about_both() -> None:
    """Where this fails, Triton has mended its interpreter, and the patch may go."""
    x = torch.randn(16, 16).to(torch.bfloat16)
    out = torch.zeros(16, 16)
    dot_bf16[(1,)](x, out, 16)
    assert not torch.allclose(out, (x.double() @ x.double().T).float(), rtol=0.1)


@given(st.lists(st.floats(width=32), min_size=16, max_size=16))
def test_casts_round_as_torch_does(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    wanted = x.to(torch.bfloat16)
    found = torch.from_numpy(widen(narrow(x.numpy())).copy())
    assert torch.equal(found.nan_to_num(7.0), wanted.float().nan_to_num(7.0))
    assert torch.equal(found.isnan(), wanted.isnan())


def test_a_kernels_cast_rounds_to_nearest_even() -> None:
    x = torch.randn(64)
    out = torch.zeros(64, dtype=torch.bfloat16)
    with honest():
        narrow_all[(1,)](x, out, 64)
    assert torch.equal(out, x.to(torch.bfloat16))


def test_nothing_stays_patched() -> None:
    from triton.runtime.interpreter import InterpreterBuilder

    before = dict(InterpreterBuilder.__dict__)
    with honest():
        assert InterpreterBuilder.create_dot is not before["create_dot"]
    after = {k: v for k, v in InterpreterBuilder.__dict__.items() if v is not None}
    assert after == {k: v for k, v in before.items() if v is not None}


def test_offsets_of_pages_beyond_two_to_the_thirty_one_do_not_wrap() -> None:
    pages = torch.tensor([0, 3, 2**20, 2**31 - 1], dtype=torch.int64)
    out = torch.zeros(4, dtype=torch.int64)
    stride = 2**20
    with honest():
        offsets[(1,)](pages, out, stride, 4, 16)
    wanted = [int(p) * stride + i % 16 * 7 for i, p in enumerate(pages)]
    assert out.tolist() == wanted
    assert max(wanted) > 2**50


def test_infinities_and_negative_zero_survive() -> None:
    values = np.array([np.inf, -np.inf, -0.0, 3.4e38], dtype=np.float32)
    assert widen(narrow(values)).tolist() == [np.inf, -np.inf, -0.0, np.inf]


assert triton.__version__
