# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The phases of a transformer block as Triton functions, shared by all three launch shapes.

Rows are new tokens: ``pos[row]`` is a token's position (-1: a padded slot, neither read nor stored,
its output zero) and ``seq[row]`` its line of the page tables. Weights are [out, in]. Rotary pairs
and gate/up pairs are interleaved into the rows of one tile, so that a tile holds both partners.

Arithmetic is fp32 and rounds once, where a tensor-core operand or a result is written. Offsets of
rows and pages are int64 before they are multiplied.
"""

import triton
import triton.language as tl

RMS, LAYER = tl.constexpr(1), tl.constexpr(2)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def wait_for_all(bar):
    """Return once every program of the grid has come here; *bar* is one int32 and resets itself.

    Arrivals of one round add up to 2^31, which flips the top bit; the next round flips it back.
    The poll is an atomic whose value is used: a volatile load would carry no acquire.
    """
    count = tl.num_programs(0)
    if count > 1:
        tl.debug_barrier()
        step = tl.where(tl.program_id(0) == 0, 2147483647 - (count - 2), 1)
        old = tl.atomic_add(bar, step, sem="acq_rel", scope="gpu")
        now = old
        while (now ^ old) >= 0:
            now = tl.atomic_add(bar, 0, sem="acquire", scope="gpu")
        tl.debug_barrier()


@triton.jit
def slot_offset(page, token, page_stride, token_stride, PAGE: tl.constexpr):
    """Return the element offset of *token* (its position) inside *page*, in int64."""
    inside = (token % PAGE).to(tl.int64) * token_stride
    return page.to(tl.int64) * page_stride + inside


@triton.jit
def row_statistics(
    x, rows, ok, eps, D: tl.constexpr, NORM: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Return mean and 1 / deviation of *rows* [BM] of x [*, D]; two passes, so none cancels."""
    at = x + rows.to(tl.int64)[:, None] * D
    mean = tl.zeros([BM], tl.float32)
    if NORM == LAYER:
        for k in range(0, D, BK):
            cols = k + tl.arange(0, BK)
            seen = ok[:, None] & (cols < D)[None, :]
            mean += tl.sum(tl.load(at + cols[None, :], mask=seen, other=0.0).to(tl.float32), axis=1)
        mean = mean / D
    square = tl.zeros([BM], tl.float32)
    for k in range(0, D, BK):
        cols = k + tl.arange(0, BK)
        seen = ok[:, None] & (cols < D)[None, :]
        value = tl.load(at + cols[None, :], mask=seen, other=0.0).to(tl.float32)
        value = tl.where(seen, value - mean[:, None], 0.0)  # after the mean: masked lanes count not
        square += tl.sum(value * value, axis=1)
    return mean, 1.0 / tl.sqrt(square / D + eps)


@triton.jit
def product(
    a, rows, ok, mean, scale, gain, shift, w, w_rows, w_ok, K: tl.constexpr, NORM: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Return a[rows] @ w[w_rows].T as fp32 [BM, BN]; NORM normalises a while it is loaded."""
    kind = w.dtype.element_ty
    at = a + rows.to(tl.int64)[:, None] * K
    w_at = w + w_rows.to(tl.int64)[:, None] * K
    total = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        cols = k + tl.arange(0, BK)
        inside = cols < K
        weight = tl.load(w_at + cols[None, :], mask=w_ok[:, None] & inside[None, :], other=0.0)
        seen = ok[:, None] & inside[None, :]
        value = tl.load(at + cols[None, :], mask=seen, other=0.0).to(tl.float32)
        if NORM != 0:
            factor = tl.load(gain + cols, mask=inside, other=0.0).to(tl.float32)
            value = (value - mean[:, None]) * scale[:, None] * factor[None, :]
            if NORM == LAYER:
                value += tl.load(shift + cols, mask=inside, other=0.0).to(tl.float32)[None, :]
        total = tl.dot(value.to(kind), tl.trans(weight), total, input_precision="ieee")
    return total


@triton.jit
def add_bias(total, bias, w_rows, w_ok, BIAS: tl.constexpr):
    """Return *total* [BM, BN] with the bias of its rows of weights added."""
    if BIAS:
        total += tl.load(bias + w_rows, mask=w_ok, other=0.0).to(tl.float32)[None, :]
    return total


@triton.jit
def qkv_rows(
    tile, H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Return the rows of QKV weights of one *tile* of outputs and which exist: rotary pairs."""
    HALF: tl.constexpr = HD // 2
    j = tile * BN + tl.arange(0, BN)
    pair = j // 2
    return (pair // HALF) * HD + pair % HALF + (j % 2) * HALF, pair < (H + 2 * KV) * HALF


@triton.jit
def up_rows(tile, F: tl.constexpr, GATED: tl.constexpr, BN: tl.constexpr):
    """Return the rows of FFN up weights of one *tile* and which exist: gate and up in turn."""
    j = tile * BN + tl.arange(0, BN)
    unit = j // 2 if GATED else j
    return (j % 2) * F + unit if GATED else unit, unit < F


@triton.jit
def qkv(
    x, pos, seq, T, gain, shift, w, bias, rope, q, k, v, k_table, v_table, table_stride,
    page_stride, token_stride, head_stride, eps, CONTEXT,
    D: tl.constexpr, H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, NORM: tl.constexpr,
    ROPE: tl.constexpr, BIAS: tl.constexpr, PAGE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Norm, QKV projection, rotary embedding; q [T, H, HD] to scratch, k and v to the cache."""
    HALF: tl.constexpr = HD // 2
    PAIRS: tl.constexpr = (H + 2 * KV) * HALF
    tiles = tl.cdiv(T, BM)
    for task in range(tl.program_id(0), tiles * tl.cdiv(PAIRS, BN // 2), tl.num_programs(0)):
        rows = (task % tiles) * BM + tl.arange(0, BM)
        at = tl.load(pos + rows, mask=rows < T, other=-1)
        ok = at >= 0
        mean, scale = row_statistics(x, rows, ok, eps, D, NORM, BM, BK)
        w_rows, w_ok = qkv_rows(task // tiles, H, KV, HD, BN)
        total = product(x, rows, ok, mean, scale, gain, shift, w, w_rows, w_ok, D, NORM, BM, BN, BK)
        total = add_bias(total, bias, w_rows, w_ok, BIAS)
        a, b = tl.split(tl.reshape(total, [BM, BN // 2, 2]))
        pair = (task // tiles) * (BN // 2) + tl.arange(0, BN // 2)
        head, i = pair // HALF, pair % HALF
        valid = ok[:, None] & (pair < PAIRS)[None, :]
        if ROPE:
            turned = valid & (head < H + KV)[None, :]
            angle = at.to(tl.int64)[:, None] * HALF + i[None, :]
            cos = tl.load(rope + angle, mask=turned, other=1.0).to(tl.float32)
            sin_at = rope + CONTEXT.to(tl.int64) * HALF
            sin = tl.load(sin_at + angle, mask=turned, other=0.0).to(tl.float32)
            a, b = a * cos - b * sin, b * cos + a * sin
        is_q, is_v = head < H, head >= H + KV
        out = q + rows.to(tl.int64)[:, None] * (H * HD) + (head * HD + i)[None, :]
        tl.store(out, a.to(q.dtype.element_ty), mask=valid & is_q[None, :])
        tl.store(out + HALF, b.to(q.dtype.element_ty), mask=valid & is_q[None, :])
        line = tl.load(seq + rows, mask=ok, other=0).to(tl.int64) * table_stride + at // PAGE
        inside = i[None, :] + ((head - H) * head_stride)[None, :]
        page = tl.load(k_table + line, mask=ok, other=0)
        out = k + slot_offset(page, at, page_stride, token_stride, PAGE)[:, None] + inside
        keep = valid & ((head >= H) & (head < H + KV))[None, :]
        tl.store(out, a.to(k.dtype.element_ty), mask=keep)
        tl.store(out + HALF, b.to(k.dtype.element_ty), mask=keep)
        page = tl.load(v_table + line, mask=ok, other=0)
        inside = i[None, :] + ((head - H - KV) * head_stride)[None, :]
        out = v + slot_offset(page, at, page_stride, token_stride, PAGE)[:, None] + inside
        tl.store(out, a.to(v.dtype.element_ty), mask=valid & is_v[None, :])
        tl.store(out + HALF, b.to(v.dtype.element_ty), mask=valid & is_v[None, :])


@triton.jit
def residual_product(
    a, x, pos, T, w, bias, out, K: tl.constexpr, D: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Write x + a @ w.T + bias, [T, D]; a padded slot's row is zero."""
    tiles = tl.cdiv(T, BM)
    for task in range(tl.program_id(0), tiles * tl.cdiv(D, BN), tl.num_programs(0)):
        rows = (task % tiles) * BM + tl.arange(0, BM)
        ok = tl.load(pos + rows, mask=rows < T, other=-1) >= 0
        cols = (task // tiles) * BN + tl.arange(0, BN)
        none = tl.zeros([BM], tl.float32)
        total = product(
            a, rows, ok, none, none, w, w, w, cols, cols < D, K, 0, BM, BN, BK
        )  # fmt: skip
        total = add_bias(total, bias, cols, cols < D, BIAS)
        inside = (cols < D)[None, :]
        at = rows.to(tl.int64)[:, None] * D + cols[None, :]
        total += tl.load(x + at, mask=ok[:, None] & inside, other=0.0).to(tl.float32)
        total = tl.where(ok[:, None], total, 0.0)
        tl.store(out + at, total.to(out.dtype.element_ty), mask=(rows < T)[:, None] & inside)


@triton.jit
def up(
    x, pos, T, gain, shift, w, bias, h, eps, D: tl.constexpr, F: tl.constexpr, NORM: tl.constexpr,
    GATED: tl.constexpr, BIAS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Norm, FFN up projection and activation: SwiGLU of gate and up rows, or GELU (tanh form)."""
    WIDTH: tl.constexpr = BN // 2 if GATED else BN
    tiles = tl.cdiv(T, BM)
    for task in range(tl.program_id(0), tiles * tl.cdiv(F, WIDTH), tl.num_programs(0)):
        rows = (task % tiles) * BM + tl.arange(0, BM)
        ok = tl.load(pos + rows, mask=rows < T, other=-1) >= 0
        mean, scale = row_statistics(x, rows, ok, eps, D, NORM, BM, BK)
        w_rows, w_ok = up_rows(task // tiles, F, GATED, BN)
        total = product(x, rows, ok, mean, scale, gain, shift, w, w_rows, w_ok, D, NORM, BM, BN, BK)
        total = add_bias(total, bias, w_rows, w_ok, BIAS)
        if GATED:
            gate, lift = tl.split(tl.reshape(total, [BM, BN // 2, 2]))
            value = gate * tl.sigmoid(gate) * lift
        else:
            inner = 1.5957691216057308 * (total + 0.044715 * total * total * total)
            value = total * tl.sigmoid(inner)
        cols = (task // tiles) * WIDTH + tl.arange(0, WIDTH)
        out = h + rows.to(tl.int64)[:, None] * F + cols[None, :]
        tl.store(out, value.to(h.dtype.element_ty), mask=ok[:, None] & (cols < F)[None, :])
