# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The kernel of one transformer block: phases LO to HI, with a barrier of all programs between.

``mega`` is one cooperative launch of all five, ``split5`` and ``prefill`` are five launches of one
phase each. The numbers are the same, bit for bit.
"""

import triton
import triton.language as tl

from kernels.ahead import start_dependent, warm_rows, warm_up
from kernels.attention import decode_attention, prompt_attention
from kernels.phases import qkv, residual_product, up, wait_for_all


@triton.jit
def block_kernel(
    x, out, pos, seq, T, tile_first, tile_end, TILES,
    norm1, norm1_b, qkv_w, qkv_b, out_w, out_b, norm2, norm2_b, up_w, up_b, down_w, down_b, rope,
    k, v, k_table, v_table, table_stride, page_stride, token_stride, head_stride,
    q_s, part_s, tops_s, count_s, attn_s, mid_s, ffn_s, bar, eps, scale, CONTEXT,
    D: tl.constexpr, H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, HP: tl.constexpr,
    F: tl.constexpr, NORM: tl.constexpr, GATED: tl.constexpr, ROPE: tl.constexpr,
    QKV_BIAS: tl.constexpr, BIAS: tl.constexpr, PAGE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GP: tl.constexpr, BT: tl.constexpr,
    BQ: tl.constexpr, SPLITS: tl.constexpr, LEAST: tl.constexpr,
    PROMPT: tl.constexpr, WARM: tl.constexpr, DEPENDENT: tl.constexpr,
    LO: tl.constexpr, HI: tl.constexpr,
):  # fmt: skip
    """Run phases LO..HI-1 of: norm+QKV+rope+append | attention | out+residual | up | down.

    WARM asks for coming weights in L2 before each barrier (attention has none: the next but one);
    DEPENDENT is a launch of one phase that may start before the launch before it has ended.
    """
    if DEPENDENT:
        start_dependent(T, qkv_w, out_w, up_w, down_w, LO, D, H, KV, HD, F, GATED, BM, BN, WARM)
    if LO <= 0 and HI > 0:
        qkv(x, pos, seq, T, norm1, norm1_b, qkv_w, qkv_b, rope, q_s, k, v, k_table, v_table,
            table_stride, page_stride, token_stride, head_stride, eps, CONTEXT,
            D, H, KV, HD, NORM, ROPE, QKV_BIAS, PAGE, BM, BN, BK)  # fmt: skip
    if LO <= 0 and HI > 1:
        if WARM:
            warm_rows(out_w, T, H * HD, D, BM, BN)
        wait_for_all(bar)
    if LO <= 1 and HI > 1:
        if PROMPT:
            prompt_attention(q_s, k, v, pos, seq, T, tile_first, tile_end, TILES, k_table, v_table,
                             table_stride, page_stride, token_stride, head_stride, attn_s, scale,
                             H, KV, HD, HP, PAGE, BQ, BT)  # fmt: skip
        else:
            decode_attention(q_s, k, v, pos, seq, T, k_table, v_table, table_stride, page_stride,
                             token_stride, head_stride, part_s, tops_s, count_s, attn_s, scale,
                             H, KV, HD, HP, PAGE, GP, BT, SPLITS, LEAST)  # fmt: skip
    if LO <= 1 and HI > 2:
        if WARM:
            warm_up(up_w, T, D, F, GATED, BM, BN)
        wait_for_all(bar)
    if LO <= 2 and HI > 2:
        residual_product(attn_s, x, pos, T, out_w, out_b, mid_s, H * HD, D, BIAS, BM, BN, BK)
    if LO <= 2 and HI > 3:
        if WARM:
            warm_rows(down_w, T, F, D, BM, BN)
        wait_for_all(bar)
    if LO <= 3 and HI > 3:
        up(mid_s, pos, T, norm2, norm2_b, up_w, up_b, ffn_s, eps, D, F, NORM, GATED, BIAS,
           BM, BN, BK)  # fmt: skip
    if LO <= 3 and HI > 4:
        wait_for_all(bar)
    if LO <= 4 and HI > 4:
        residual_product(ffn_s, mid_s, pos, T, down_w, down_b, out, F, D, BIAS, BM, BN, BK)
