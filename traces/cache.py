"""Prefix-cache hit rates of a trace under one cache, by blocks and by tokens."""

from dataclasses import dataclass

import numpy as np

from dispatch.errors import InputError
from dispatch.prefix_cache import Evict, PrefixCache
from traces.trace import Trace


@dataclass(frozen=True, slots=True)
class HitRates:
    """What one cache over all requests of a trace finds.

    ``hit_rate_blocks`` = matched blocks / blocks; ``hit_rate_tokens`` = matched tokens / prompt
    tokens, a matched last block counting only the tokens it holds; ``hit_rate_requests`` = mean
    over requests of matched tokens / prompt tokens.
    """

    requests: int
    blocks: int
    hit_blocks: int
    hit_rate_blocks: float
    hit_rate_tokens: float
    hit_rate_requests: float
    distinct_blocks: int


def hit_rates(
    trace: Trace, capacity_blocks: int | None, evict: Evict = "lru", *, place: str = ""
) -> HitRates:
    """Run *trace* through one cache of *capacity_blocks* (None: without bound).

    *place* is what an error names, the name of the trace where it is empty.
    """
    if trace.block_hashes is None or trace.block_offsets is None or not len(trace.block_hashes):
        raise InputError.at(
            place or trace.name,
            "has no prefix blocks, so no cache can be simulated",
            "use a trace with hash ids (Mooncake, Bailian, AIPerf, Weka, RAGPulse)",
        )
    cache = PrefixCache(capacity_blocks, evict)
    blocks = trace.block_hashes.tolist()
    edges = trace.block_offsets.tolist()
    matched = np.zeros(len(trace), np.int64)
    for row in range(len(trace)):
        mine = blocks[edges[row] : edges[row + 1]]
        matched[row] = cache.match(mine)
        cache.touch(mine)
    counts = np.diff(trace.block_offsets)
    tokens = np.minimum(matched * trace.block_tokens, trace.prompt_tokens)
    return HitRates(
        requests=len(trace),
        blocks=int(counts.sum()),
        hit_blocks=int(matched.sum()),
        hit_rate_blocks=float(matched.sum() / counts.sum()),
        hit_rate_tokens=float(tokens.sum() / trace.prompt_tokens.sum()),
        hit_rate_requests=float((tokens / trace.prompt_tokens).mean()),
        distinct_blocks=len(np.unique(trace.block_hashes)),
    )
