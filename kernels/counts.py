"""Bytes that each phase of the block loads and stores, counted from shapes and tiles.

``touched`` is what load and store instructions move, re-reads included: most of those hit L2.
``distinct`` counts each byte once a phase: what a cold cache must bring. A test holds both against
what the interpreter sees the kernels do.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kernels.spec import BlockSpec, Tiling

PHASES = ("qkv", "attention", "out", "up", "down")
_INDEX = 4  # bytes of a position, a line, a counter
_PAGE = 8  # bytes of an entry of a page table


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of one phase; stores are never repeated."""

    loaded: int
    distinct: int
    stored: int


@dataclass(frozen=True, slots=True)
class Pass:
    """What a launch sees: positions of its rows (-1: padded), widths of tensors in bytes."""

    positions: tuple[int, ...]
    width: int = 2  # weights, activations, cache
    scratch: int = 4  # q, attention, FFN activation; the residual between phases is always fp32
    table: int = 4  # cos and sin
    page_tokens: int = 1 << 30  # contiguous: one page a sequence

    @property
    def valid(self) -> int:
        """Rows that are no padding."""
        return sum(p >= 0 for p in self.positions)

    @property
    def rows(self) -> int:
        """All rows."""
        return len(self.positions)


def decode(spec: BlockSpec, tiling: Tiling, batch: Pass) -> dict[str, Bytes]:
    """Return the bytes of every phase of one decode."""
    return {**_shared(spec, tiling, batch), "attention": _decode_attention(spec, tiling, batch)}


def prompt(
    spec: BlockSpec, tiling: Tiling, batch: Pass, tiles: Sequence[tuple[int, int]]
) -> dict[str, Bytes]:
    """Return the bytes of every phase of a pass whose attention runs in *tiles* of rows."""
    return {**_shared(spec, tiling, batch), "attention": _prompt_attention(spec, batch, tiles)}


def total(parts: dict[str, Bytes]) -> Bytes:
    """Return the sum over phases."""
    return Bytes(
        sum(p.loaded for p in parts.values()), sum(p.distinct for p in parts.values()),
        sum(p.stored for p in parts.values()),
    )  # fmt: skip


def _shared(spec: BlockSpec, t: Tiling, b: Pass) -> dict[str, Bytes]:
    width = b.width
    return {
        "qkv": _qkv(spec, t, b),
        "out": _residual(b, t, spec.q_width, b.scratch, width, spec.hidden, 4, spec.bias),
        "up": _up(spec, t, b),
        "down": _residual(b, t, spec.ffn, b.scratch, 4, spec.hidden, width, spec.bias),
    }


def _tiles(rows: int, size: int) -> int:
    return -(-rows // size)


def _normed(spec: BlockSpec, t: Tiling, b: Pass, outputs: int, across: int, source: int) -> Bytes:
    """Return loads of norm and projection: *outputs* rows of weights in *across* tiles.

    The input, of *source* bytes an element, is read for its statistics and again for the product,
    by every tile of outputs; the weights by every tile of rows.
    """
    layer = spec.norm == "layer"
    down = _tiles(b.rows, t.bm)
    vectors = spec.hidden * b.width * (2 if layer else 1)
    weights = outputs * spec.hidden * b.width
    rows = b.valid * spec.hidden * source
    passes = 3 if layer else 2
    loaded = down * weights + across * (passes * rows + down * vectors + b.rows * _INDEX)
    return Bytes(loaded, weights + rows + vectors + b.rows * _INDEX, 0)


def _qkv(spec: BlockSpec, t: Tiling, b: Pass) -> Bytes:
    outputs = spec.q_width + 2 * spec.kv_width
    across = _tiles(outputs // 2, t.bn // 2)
    base = _normed(spec, t, b, outputs, across, b.width)
    bias = outputs * b.width if spec.qkv_bias else 0
    half = spec.head_dim // 2
    turned = 2 * b.valid * (spec.heads + spec.kv_heads) * half * b.table if spec.rope else 0
    angles = 2 * len({p for p in b.positions if p >= 0}) * half * b.table if spec.rope else 0
    lines = b.valid * (_INDEX + 2 * _PAGE)
    return Bytes(
        base.loaded + _tiles(b.rows, t.bm) * bias + turned + across * lines,
        base.distinct + bias + angles + b.valid * (_INDEX + _PAGE),
        b.valid * (spec.q_width * b.scratch + 2 * spec.kv_width * b.width),
    )


def _up(spec: BlockSpec, t: Tiling, b: Pass) -> Bytes:
    across = _tiles(spec.ffn, t.bn // 2 if spec.gated else t.bn)
    base = _normed(spec, t, b, spec.up_rows, across, 4)
    bias = spec.up_rows * b.width if spec.bias else 0
    return Bytes(
        base.loaded + _tiles(b.rows, t.bm) * bias, base.distinct + bias,
        b.valid * spec.ffn * b.scratch,
    )  # fmt: skip


def _residual(
    b: Pass, t: Tiling, inputs: int, source: int, added: int, outputs: int, kept: int, bias: bool
) -> Bytes:
    across, down = _tiles(outputs, t.bn), _tiles(b.rows, t.bm)
    weights = outputs * (inputs + int(bias)) * b.width
    rows = b.valid * inputs * source
    add = b.valid * outputs * added
    return Bytes(
        down * weights + across * (rows + b.rows * _INDEX) + add,
        weights + rows + b.rows * _INDEX + add, b.rows * outputs * kept,
    )  # fmt: skip


def _decode_attention(spec: BlockSpec, t: Tiling, b: Pass) -> Bytes:
    heads, size = spec.group, spec.head_dim
    loaded = b.rows * spec.kv_heads * t.splits * _INDEX
    distinct, stored = b.rows * _INDEX, 0
    for position in b.positions:
        length = max(position + 1, 0)
        splits = t.split_count(length)
        query, line = heads * size * b.scratch, _INDEX
        context = length * (2 * size * b.width + 2 * _PAGE)
        each = splits * (query + line) + context
        own = query + length * 2 * size * b.width
        put = heads * size * b.scratch if splits else 0
        if splits > 1:
            partial = splits * heads * (size + 2) * 4
            each, own, put = each + partial, own + partial, put + partial + _INDEX
        loaded += spec.kv_heads * each
        pages = -(-length // b.page_tokens)
        distinct += (spec.kv_heads * own + pages * _PAGE + line) if splits else 0
        stored += spec.kv_heads * put
    return Bytes(loaded, distinct, stored)


def _prompt_attention(spec: BlockSpec, b: Pass, tiles: Sequence[tuple[int, int]]) -> Bytes:
    loaded, stored = 0, 0
    for first, end in tiles:
        length = max(b.positions[first:end]) + 1
        rows = (end - first) * (_INDEX + spec.head_dim * b.scratch)
        context = length * (2 * spec.head_dim * b.width + 2 * _PAGE)
        loaded += spec.heads * (3 * _INDEX + rows + context)
        stored += spec.heads * (end - first) * spec.head_dim * b.scratch
    longest: dict[int, int] = {}  # a sequence's last tile sees all of its context
    for first, end in tiles:
        start = first - b.positions[first]
        longest[start] = max(longest.get(start, 0), max(b.positions[first:end]) + 1)
    context = sum(longest.values()) * (2 * spec.kv_width * b.width)
    rows = b.valid * (spec.q_width * b.scratch + _INDEX) + 2 * len(tiles) * _INDEX
    return Bytes(loaded, context + rows, stored)
