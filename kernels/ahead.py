# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""What a program may do before its phase's inputs are there: weights wait for nobody.

Everything here is a hint to the machine and has no meaning for results. Under the interpreter,
which knows no assembly, and below compute capability 9.0 (dependent launches) it is left out.
"""

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from kernels.phases import qkv_rows, up_rows

LINE_BYTES = tl.constexpr(128)
LINES = tl.constexpr(8)  # of each row of weights: 16 rows are 16 KiB a program, 2 MiB on 132 SMs


@triton.jit
def warm(w, w_rows, w_ok, K: tl.constexpr):
    """Ask for the first lines of w[w_rows] (rows of K elements) in L2; nothing is waited for."""
    LINE: tl.constexpr = LINE_BYTES * 8 // w.dtype.element_ty.primitive_bitwidth
    cols = tl.arange(0, LINES) * LINE
    place = (w + w_rows.to(tl.int64)[:, None] * K + cols[None, :]).to(tl.int64)
    wanted = (w_ok[:, None] & (cols < K)[None, :]).to(tl.int32)
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
        "=r,l,r", [place, wanted], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit
def warm_qkv(w, T, D: tl.constexpr, H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr,
             BM: tl.constexpr, BN: tl.constexpr):  # fmt: skip
    """Warm the first tile of QKV weights of this program."""
    rows, ok = qkv_rows(tl.program_id(0) // tl.cdiv(T, BM), H, KV, HD, BN)
    warm(w, rows, ok, D)


@triton.jit
def warm_up(w, T, D: tl.constexpr, F: tl.constexpr, GATED: tl.constexpr, BM: tl.constexpr,
            BN: tl.constexpr):  # fmt: skip
    """Warm the first tile of FFN up weights of this program."""
    rows, ok = up_rows(tl.program_id(0) // tl.cdiv(T, BM), F, GATED, BN)
    warm(w, rows, ok, D)


@triton.jit
def warm_rows(w, T, K: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Warm the first tile of weights [D, K] of this program."""
    rows = (tl.program_id(0) // tl.cdiv(T, BM)) * BN + tl.arange(0, BN)
    warm(w, rows, rows < D, K)


@triton.jit
def start_dependent(
    T, qkv_w, out_w, up_w, down_w, LO: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
    KV: tl.constexpr, HD: tl.constexpr, F: tl.constexpr, GATED: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, WARM: tl.constexpr,
):  # fmt: skip
    """Begin a dependent launch of phase LO: let the next one come, warm weights, then wait.

    The wait ends when the launch before has ended and its stores are seen; that one waited for its
    own, so nothing is read or written too soon. Weights are read-only and need no wait.
    """
    gdc_launch_dependents()
    if WARM:
        if LO == 0:
            warm_qkv(qkv_w, T, D, H, KV, HD, BM, BN)
        elif LO == 2:
            warm_rows(out_w, T, H * HD, D, BM, BN)
        elif LO == 3:
            warm_up(up_w, T, D, F, GATED, BM, BN)
        elif LO == 4:
            warm_rows(down_w, T, F, D, BM, BN)
    gdc_wait()
