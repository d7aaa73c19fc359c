# mypy: disable-error-code="no-untyped-def, untyped-decorator"
"""The attention phases: split-KV for decode, flash attention for prompts; paged or contiguous.

How a context is split hangs on that context's own length alone, so that a request's numbers do not
depend on its neighbours. Contiguous KV is a table with one long page a sequence.
"""

import triton
import triton.language as tl

from kernels.phases import LOG2E, slot_offset


@triton.jit
def softmax_step(
    query, seen, tokens, in_range, top, weight, out, k, v, k_table, v_table, line, kv_head,
    page_stride, token_stride, head_stride, scale, HD: tl.constexpr, PAGE: tl.constexpr,
    HP: tl.constexpr,
):  # fmt: skip
    """Fold the keys and values of *tokens* [BT] into the running softmax of *query* [*, HP].

    *top* and *weight* are the running maximum (in log2) and sum; *seen* [*, BT] says which row
    sees which token. Returns the new (top, weight, out).
    """
    kind = k.dtype.element_ty
    dims = tl.arange(0, HP)
    wanted = in_range[:, None] & (dims < HD)[None, :]
    inside = kv_head.to(tl.int64) * head_stride + dims[None, :]
    page = tl.load(k_table + line + tokens // PAGE, mask=in_range, other=0)
    place = slot_offset(page, tokens, page_stride, token_stride, PAGE)
    keys = tl.load(k + place[:, None] + inside, mask=wanted, other=0.0)
    scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * (scale * LOG2E)
    scores = tl.where(seen, scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, axis=1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)  # a row that sees nothing: no NaN
    share = tl.exp2(scores - base[:, None])
    fade = tl.exp2(top - base)
    page = tl.load(v_table + line + tokens // PAGE, mask=in_range, other=0)
    place = slot_offset(page, tokens, page_stride, token_stride, PAGE)
    values = tl.load(v + place[:, None] + inside, mask=wanted, other=0.0)
    out = tl.dot(share.to(kind), values, out * fade[:, None], input_precision="ieee")
    return new_top, weight * fade + tl.sum(share, axis=1), out


@triton.jit
def split_length(length, SPLITS: tl.constexpr, BT: tl.constexpr, LEAST: tl.constexpr):
    """Return the tokens of one split of a context of *length* tokens: whole tiles of BT."""
    even = tl.cdiv(tl.cdiv(length, SPLITS), BT) * BT
    return tl.maximum(even, LEAST)


@triton.jit
def decode_attention(
    q, k, v, pos, seq, T, k_table, v_table, table_stride, page_stride, token_stride, head_stride,
    part, tops, count, out, scale,
    H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, HP: tl.constexpr, PAGE: tl.constexpr,
    GP: tl.constexpr, BT: tl.constexpr, SPLITS: tl.constexpr, LEAST: tl.constexpr,
):  # fmt: skip
    """Attend with one token a row; a task is (row, KV head, split), the last to end combines.

    part [T, H, SPLITS, HD] and tops [T, H, SPLITS, 2] (maximum, sum) hold unfinished splits, count
    [T, KV] says how many have ended; it is zero before and after.
    """
    GROUP: tl.constexpr = H // KV
    kind = k.dtype.element_ty
    g = tl.arange(0, GP)
    dims = tl.arange(0, HP)
    cell = (g < GROUP)[:, None] & (dims < HD)[None, :]
    for task in range(tl.program_id(0), T * KV * SPLITS, tl.num_programs(0)):
        split = task % SPLITS
        kv_head = (task // SPLITS) % KV
        row = task // (SPLITS * KV)
        length = tl.maximum(tl.load(pos + row) + 1, 0)
        each = split_length(length, SPLITS, BT, LEAST)
        splits = tl.cdiv(length, each)
        if split < splits:
            heads = kv_head * GROUP + g
            spot = (row.to(tl.int64) * H + heads) * HD
            query = tl.load(q + spot[:, None] + dims[None, :], mask=cell, other=0.0)
            query = query.to(tl.float32).to(kind)
            line = tl.load(seq + row).to(tl.int64) * table_stride
            top = tl.full([GP], float("-inf"), tl.float32)
            weight = tl.zeros([GP], tl.float32)
            total = tl.zeros([GP, HP], tl.float32)
            end = tl.minimum(length, (split + 1) * each)
            for start in range(split * each, end, BT):
                tokens = start + tl.arange(0, BT)
                in_range = tokens < end
                top, weight, total = softmax_step(
                    query, in_range[None, :] & (g < GP)[:, None], tokens, in_range, top, weight,
                    total, k, v, k_table, v_table, line, kv_head, page_stride, token_stride,
                    head_stride, scale, HD, PAGE, HP,
                )  # fmt: skip
            if splits == 1:
                done = total / weight[:, None]
                tl.store(
                    out + spot[:, None] + dims[None, :], done.to(out.dtype.element_ty), mask=cell
                )
            else:
                at = (row.to(tl.int64) * H + heads) * SPLITS + split
                tl.store(part + at[:, None] * HD + dims[None, :], total, mask=cell)
                tl.store(tops + at * 2, top, mask=g < GROUP)
                tl.store(tops + at * 2 + 1, weight, mask=g < GROUP)
                tl.debug_barrier()
                ticket = tl.atomic_add(count + row * KV + kv_head, 1, sem="acq_rel", scope="gpu")
                tl.debug_barrier()
                if ticket == splits - 1:
                    combine(part, tops, out, row, heads, g < GROUP, splits, H, HD, HP, GP, SPLITS)
                    tl.store(count + row * KV + kv_head, 0)


@triton.jit
def combine(
    part, tops, out, row, heads, ok, splits, H: tl.constexpr, HD: tl.constexpr, HP: tl.constexpr,
    GP: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Write the attention of *heads* from their splits, in the order of the splits."""
    dims = tl.arange(0, HP)
    cell = ok[:, None] & (dims < HD)[None, :]
    first = (row.to(tl.int64) * H + heads) * SPLITS
    top = tl.full([GP], float("-inf"), tl.float32)
    weight = tl.zeros([GP], tl.float32)
    total = tl.zeros([GP, HP], tl.float32)
    for split in range(0, splits):
        at = first + split
        one = tl.load(tops + at * 2, mask=ok, other=0.0)
        share = tl.load(tops + at * 2 + 1, mask=ok, other=1.0)
        piece = tl.load(part + at[:, None] * HD + dims[None, :], mask=cell, other=0.0)
        new_top = tl.maximum(top, one)
        fade, gain = tl.exp2(top - new_top), tl.exp2(one - new_top)
        total = total * fade[:, None] + piece * gain[:, None]
        weight = weight * fade + share * gain
        top = new_top
    spot = (row.to(tl.int64) * H + heads) * HD
    done = total / weight[:, None]
    tl.store(out + spot[:, None] + dims[None, :], done.to(out.dtype.element_ty), mask=cell)


@triton.jit
def prompt_attention(
    q, k, v, pos, seq, T, tile_first, tile_end, TILES, k_table, v_table, table_stride, page_stride,
    token_stride, head_stride, out, scale,
    H: tl.constexpr, KV: tl.constexpr, HD: tl.constexpr, HP: tl.constexpr, PAGE: tl.constexpr,
    BQ: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Causal flash attention; a task is (tile, head), a tile BQ rows or fewer of one sequence.

    Rows tile_first[i] to tile_end[i] of a tile have rising positions, the last one the highest.
    """
    kind = k.dtype.element_ty
    dims = tl.arange(0, HP)
    for task in range(tl.program_id(0), TILES * H, tl.num_programs(0)):
        tile = task // H
        head = task % H
        kv_head = head // (H // KV)
        first = tl.load(tile_first + tile)
        last = tl.load(tile_end + tile)
        rows = first + tl.arange(0, BQ)
        at = tl.load(pos + rows, mask=rows < last, other=-1)
        line = tl.load(seq + first).to(tl.int64) * table_stride
        spot = (rows.to(tl.int64) * H + head) * HD
        cell = (at >= 0)[:, None] & (dims < HD)[None, :]
        query = tl.load(q + spot[:, None] + dims[None, :], mask=cell, other=0.0)
        query = query.to(tl.float32).to(kind)
        top = tl.full([BQ], float("-inf"), tl.float32)
        weight = tl.zeros([BQ], tl.float32)
        total = tl.zeros([BQ, HP], tl.float32)
        length = tl.max(at, axis=0) + 1
        for start in range(0, length, BT):
            tokens = start + tl.arange(0, BT)
            seen = tokens[None, :] <= at[:, None]
            top, weight, total = softmax_step(
                query, seen, tokens, tokens < length, top, weight, total, k, v, k_table, v_table,
                line, kv_head, page_stride, token_stride, head_stride, scale, HD, PAGE, HP,
            )  # fmt: skip
        done = total / tl.where(weight == 0.0, 1.0, weight)[:, None]
        tl.store(out + spot[:, None] + dims[None, :], done.to(out.dtype.element_ty), mask=cell)
