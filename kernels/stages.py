# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The elementwise kernels of the three-stage pipeline, one launch each, everything through memory.

They are the baseline, as plain and as decent as such kernels are: one program a row, fp32 inside.
"""

import triton
import triton.language as tl


@triton.jit
def norm_kernel(x, out, gain, shift, eps, D: tl.constexpr, DP: tl.constexpr, LAYER: tl.constexpr):
    """Normalise one row of x [T, D]."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, DP)
    inside = cols < D
    value = tl.load(x + row * D + cols, mask=inside, other=0.0).to(tl.float32)
    if LAYER:
        value = tl.where(inside, value - tl.sum(value, axis=0) / D, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, axis=0) / D + eps)
    value = value * scale * tl.load(gain + cols, mask=inside, other=0.0).to(tl.float32)
    if LAYER:
        value += tl.load(shift + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * D + cols, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def rope_append_kernel(
    parts, pos, rope, k, v, ROOM, CONTEXT, H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr,
    HALFP: tl.constexpr, ROPE: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Rotate one head of one row of parts [T, (H + 2 KV) HD] in place; copy keys and values.

    k and v are [sequences, KV, ROOM, HD]; row r is token r % TOKENS of sequence r // TOKENS.
    """
    row = tl.program_id(0)
    head = tl.program_id(1) + tl.zeros([HALFP], tl.int32)
    HALF: tl.constexpr = HD // 2
    i = tl.arange(0, HALFP)
    inside = i < HALF
    at = tl.load(pos + row)
    here = parts + row.to(tl.int64) * ((H + 2 * KV) * HD) + head * HD + i
    a = tl.load(here, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(here + HALF, mask=inside, other=0.0).to(tl.float32)
    if ROPE:
        turned = inside & (head < H + KV)
        cos = tl.load(rope + at * HALF + i, mask=turned, other=1.0).to(tl.float32)
        sin = tl.load(rope + (CONTEXT + at) * HALF + i, mask=turned, other=0.0).to(tl.float32)
        a, b = a * cos - b * sin, b * cos + a * sin
    kind = parts.dtype.element_ty
    tl.store(here, a.to(kind), mask=inside & (head < H))
    tl.store(here + HALF, b.to(kind), mask=inside & (head < H))
    is_k, is_v = (head >= H) & (head < H + KV), head >= H + KV
    line = (row // TOKENS).to(tl.int64) * KV
    spot = ((line + head - H) * ROOM + at) * HD + i
    tl.store(k + spot, a.to(kind), mask=inside & is_k)
    tl.store(k + spot + HALF, b.to(kind), mask=inside & is_k)
    spot = ((line + head - H - KV) * ROOM + at) * HD + i
    tl.store(v + spot, a.to(kind), mask=inside & is_v)
    tl.store(v + spot + HALF, b.to(kind), mask=inside & is_v)


@triton.jit
def softmax_kernel(
    scores, pos, scale, LENGTH, ROWS: tl.constexpr, KV: tl.constexpr, TOKENS: tl.constexpr,
    STEP: tl.constexpr,
):  # fmt: skip
    """Scale, mask and softmax one row of scores [sequences, KV, ROWS, LENGTH] in place."""
    line = tl.program_id(0).to(tl.int64)
    sequence = line // (KV * ROWS)
    at = tl.load(pos + sequence * TOKENS + line % TOKENS)
    row = scores + line * LENGTH
    top = tl.full([STEP], float("-inf"), tl.float32)
    for start in range(0, LENGTH, STEP):
        cols = start + tl.arange(0, STEP)
        value = tl.load(row + cols, mask=(cols < LENGTH) & (cols <= at), other=float("-inf"))
        top = tl.maximum(top, value.to(tl.float32) * scale)
    best = tl.max(top, axis=0)
    weight = tl.zeros([STEP], tl.float32)
    for start in range(0, LENGTH, STEP):
        cols = start + tl.arange(0, STEP)
        value = tl.load(row + cols, mask=(cols < LENGTH) & (cols <= at), other=float("-inf"))
        weight += tl.exp(value.to(tl.float32) * scale - best)
    total = tl.sum(weight, axis=0)
    for start in range(0, LENGTH, STEP):
        cols = start + tl.arange(0, STEP)
        value = tl.load(row + cols, mask=(cols < LENGTH) & (cols <= at), other=float("-inf"))
        share = tl.exp(value.to(tl.float32) * scale - best) / total
        tl.store(row + cols, share.to(scores.dtype.element_ty), mask=cols < LENGTH)


@triton.jit
def activation_kernel(lifted, out, COUNT, F: tl.constexpr, GATED: tl.constexpr, STEP: tl.constexpr):
    """SwiGLU of lifted [T, 2 F], or GELU of [T, F], to out [T, F]."""
    at = tl.program_id(0).to(tl.int64) * STEP + tl.arange(0, STEP)
    inside = at < COUNT
    if GATED:
        here = lifted + (at // F) * (2 * F) + at % F
        gate = tl.load(here, mask=inside, other=0.0).to(tl.float32)
        lift = tl.load(here + F, mask=inside, other=0.0).to(tl.float32)
        value = gate * tl.sigmoid(gate) * lift
    else:
        value = tl.load(lifted + at, mask=inside, other=0.0).to(tl.float32)
        value *= tl.sigmoid(1.5957691216057308 * (value + 0.044715 * value * value * value))
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def add_kernel(x, y, out, COUNT, STEP: tl.constexpr):
    """Write x + y."""
    at = tl.program_id(0).to(tl.int64) * STEP + tl.arange(0, STEP)
    inside = at < COUNT
    a = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (a + b).to(out.dtype.element_ty), mask=inside)
