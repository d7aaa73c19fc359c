"""The KV cache of one device: one real allocation, handed out by the simulator's arena.

An address of the arena is an offset into the allocation, so that its free bytes, its largest
block and its fragmentation are those of real memory.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from dispatch.arena import ContiguousArena, PagedArena
from live.held import Held, Span
from live.shapes import LlamaShape

_ALIGN = 512  # bytes; the arena's, and more than any torch dtype needs


class KvCache:
    """What both layouts share: the allocation, the arena and the books of tokens."""

    arena: ContiguousArena | PagedArena
    reserves_output: bool

    def __init__(self, shape: LlamaShape, size_bytes: int, device: torch.device) -> None:
        self.shape = shape
        self.memory = torch.empty(size_bytes, dtype=torch.uint8, device=device)
        self.dtype: torch.dtype = getattr(torch, shape.dtype)

    @property
    def size_bytes(self) -> int:
        """Bytes of the allocation."""
        return int(self.memory.numel())

    @property
    def capacity_tokens(self) -> int:
        """Tokens that fit when nothing is fragmented."""
        return self.size_bytes // self.shape.kv_bytes_per_token

    def reserve(self, held: Held, tokens: int) -> bool:
        """Make room for *tokens* in all; False, and nothing changed, where there is none."""
        raise NotImplementedError

    def release(self, held: Held) -> None:
        """Give everything back."""
        if held.address is not None:
            self.arena.free(held.address)
        held.address = held.blocks = None
        held.room_tokens = held.stored_tokens = 0

    def bind(self, spans: Sequence[Span]) -> "Attention":
        """Return the attention of one pass over *spans*, which have room already."""
        raise NotImplementedError


class Attention:
    """The attention of one pass; called once a layer by the model."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store k and v, and attend with q over everything stored."""
        raise NotImplementedError


class ContiguousKv(KvCache):
    """One block a sequence, reserved for prompt and max_tokens at once."""

    reserves_output = True

    def __init__(self, shape: LlamaShape, size_bytes: int, device: torch.device) -> None:
        super().__init__(shape, size_bytes // _ALIGN * _ALIGN, device)
        self.arena: ContiguousArena = ContiguousArena(self.size_bytes, _ALIGN)

    def reserve(self, held: Held, tokens: int) -> bool:
        """Allocate the block; it never grows."""
        if held.room_tokens >= tokens:
            return True
        assert held.address is None, "contiguous KV is reserved once"
        held.address = self.arena.allocate(tokens * self.shape.kv_bytes_per_token)
        if held.address is None:
            return False
        held.room_tokens = tokens
        return True

    def view(self, held: Held) -> Tensor:
        """Return the block as [layers, 2, room, kv_heads, head_dim]."""
        shape, start = self.shape, held.address
        assert start is not None
        size = held.room_tokens * shape.kv_bytes_per_token
        flat = self.memory[start : start + size].view(self.dtype)
        return flat.view(shape.layers, 2, held.room_tokens, shape.kv_heads, shape.head_dim)

    def bind(self, spans: Sequence[Span]) -> Attention:
        """Attend sequence by sequence over each block."""
        return _ContiguousAttention(spans, [self.view(span.held) for span in spans])


class _ContiguousAttention(Attention):
    def __init__(self, spans: Sequence[Span], views: list[Tensor]) -> None:
        self._spans = spans
        self._views = views

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out = torch.empty_like(q)
        for span, view in zip(self._spans, self._views, strict=True):
            rows = slice(span.start, span.start + span.count)
            end = span.past + span.count
            view[layer, 0, span.past : end] = k[rows]
            view[layer, 1, span.past : end] = v[rows]
            out[rows] = _attend(q[rows], view[layer, 0, :end], view[layer, 1, :end], span.past)
        return out


class PagedKv(KvCache):
    """Blocks of ``block_tokens``, taken one by one as a sequence grows."""

    reserves_output = False

    def __init__(
        self, shape: LlamaShape, size_bytes: int, device: torch.device, block_tokens: int
    ) -> None:
        self.block_tokens = block_tokens
        self.block_bytes = block_tokens * shape.kv_bytes_per_token
        count = size_bytes // self.block_bytes
        super().__init__(shape, count * self.block_bytes, device)
        self.arena: PagedArena = PagedArena(self.size_bytes, self.block_bytes)
        self._free = list(range(count - 1, -1, -1))  # which pages; the arena counts them
        tail = (shape.layers, 2, block_tokens, shape.kv_heads, shape.head_dim)
        self.pages = self.memory.view(self.dtype).view(count, *tail)

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds."""
        return self.arena.free_pages

    def reserve(self, held: Held, tokens: int) -> bool:
        """Take the blocks that are missing, all or none."""
        missing = -(-(tokens - held.room_tokens) // self.block_tokens)
        if missing <= 0:
            return True
        if held.address is None:
            held.address = self.arena.allocate(missing * self.block_bytes)
            if held.address is None:
                return False
        elif not self.arena.extend(held.address, missing):
            return False
        new = [self._free.pop() for _ in range(missing)]
        # A sequence sees its own pages only, but all of each: what another left must not be NaN.
        self.pages[new] = 0
        held.pages += new
        held.room_tokens = len(held.pages) * self.block_tokens
        held.blocks = torch.tensor(held.pages, device=self.memory.device)
        return True

    def release(self, held: Held) -> None:
        """Give the pages back."""
        self._free += reversed(held.pages)
        held.pages.clear()
        super().release(held)

    def bind(self, spans: Sequence[Span]) -> Attention:
        """Attend over gathered pages: decodes of one token in one call, chunks one by one."""
        return _PagedAttention(self, spans)


_PADDED_TOKENS = 4096  # one gather of padded tables is quicker up to about here


class _PagedAttention(Attention):
    def __init__(self, cache: PagedKv, spans: Sequence[Span]) -> None:
        self._cache = cache
        device, size = cache.memory.device, cache.block_tokens
        ones = [span for span in spans if span.count == 1]
        width = max((-(-(s.past + 1) // size) for s in ones), default=0)
        self._ones = ones if len(ones) * width * size <= _PADDED_TOKENS else []
        self._chunks = [s for s in spans if s.count > 1 or not self._ones]
        self._blocks, self._offsets = self._slots(spans, size, device)
        if self._ones:
            self._rows = torch.tensor([s.start for s in ones], device=device)
            pages = [s.held.pages[:width] for s in ones]
            tables = [row + row[:1] * (width - len(row)) for row in pages]
            self._table = torch.tensor(tables, device=device)
            length = torch.tensor([s.past + 1 for s in ones], device=device)
            span_of = torch.arange(width * size, device=device)
            self._seen = (span_of < length[:, None])[:, None, None]

    @staticmethod
    def _slots(spans: Sequence[Span], size: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return block and offset of every new token, in batch order."""
        blocks, offsets = [], []
        for span in spans:
            at = torch.arange(span.past, span.past + span.count, device=device)
            blocks.append(_blocks(span)[at // size])
            offsets.append(at % size)
        return torch.cat(blocks), torch.cat(offsets)

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        pages = self._cache.pages
        pages[self._blocks, layer, 0, self._offsets] = k
        pages[self._blocks, layer, 1, self._offsets] = v
        out = torch.empty_like(q)
        if self._ones:
            out[self._rows] = self._decode(layer, q[self._rows])
        for span in self._chunks:
            rows = slice(span.start, span.start + span.count)
            end = span.past + span.count
            found = pages[_blocks(span)[: -(-end // self._cache.block_tokens)], layer]
            keys, values = found[:, 0].flatten(0, 1)[:end], found[:, 1].flatten(0, 1)[:end]
            out[rows] = _attend(q[rows], keys, values, span.past)
        return out

    def _decode(self, layer: int, q: Tensor) -> Tensor:
        found = self._cache.pages[self._table, layer]  # [batch, blocks, 2, size, heads, dim]
        keys = found[:, :, 0].flatten(1, 2).transpose(1, 2)
        values = found[:, :, 1].flatten(1, 2).transpose(1, 2)
        return functional.scaled_dot_product_attention(
            q[:, :, None], keys, values, attn_mask=self._seen, enable_gqa=True
        )[:, :, 0]


def _blocks(span: Span) -> Tensor:
    assert span.held.blocks is not None
    return span.held.blocks


def _attend(q: Tensor, k: Tensor, v: Tensor, past: int) -> Tensor:
    """Attend [n, heads, d] over [past + n, kv_heads, d]; row i sees keys up to past + i."""
    count = q.shape[0]
    mask = None
    if count > 1:
        mask = torch.ones(count, past + count, dtype=torch.bool, device=q.device).tril(past)
    return functional.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        attn_mask=mask,
        enable_gqa=True,
    )[0].transpose(0, 1)
