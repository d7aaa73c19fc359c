"""Scores of whole serving stacks: Dynamo, llm-d, Mooncake, Preble."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dispatch import keyed
from dispatch.fleet import Bools, Eligible, Floats
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.prefix_aware import PrefixScored
from dispatch.policy import Choice
from dispatch.registry import register
from dispatch.request import Request

_NUDGE = 1e-9  # what an unknown signal costs beyond the worst that is known


@dataclass(frozen=True, slots=True)
class DynamoParams:
    """Dynamo's weights and defaults; ``temperature`` 0 takes the least cost.

    ``overlap_decay`` is lambda; only device-resident prefixes are known here.
    """

    cost: Literal["kv", "lmetric"] = "kv"
    block_tokens: int = 16
    overlap_credit: float = 1.0
    prefill_load_scale: float = 1.0
    active_request_weight: float = 0.0
    overlap_decay: float = 0.0
    temperature: float = 0.0
    index_blocks: int = 1_000_000

    def __post_init__(self) -> None:
        if self.block_tokens < 1 or self.temperature < 0 or self.overlap_decay < 0:
            raise ValueError("give block_tokens >= 1, temperature and overlap_decay >= 0")


@register("dynamo_kv")
class DynamoKv(PrefixScored):
    """Places at the least prefill + decode blocks, prefix hits credited (NVIDIA Dynamo).

    Cost = scale * max(active prefill blocks + prompt blocks - credit * decay * overlap, 0) + decode
    blocks + w * n, decay = 1 / (1 + lambda * excess prefill blocks / prompt blocks). ``lmetric``:
    adjusted prefill blocks * (decode blocks + 1). Temperature T: p ~ exp(-(cost - min) / (span T)).
    Decode blocks are those of the prompts in flight. Signals: own books. Ties: uniform, seeded.
    Source: Dynamo kv-router default selector. Known failure mode: unlike GPUs count alike.
    """

    Params = DynamoParams

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost in blocks."""
        p: DynamoParams = self.params
        size = float(p.block_tokens)
        prompt = max(1, math.ceil(request.prompt_tokens / size))
        prefill = graph.prefill_tokens / size
        excess = prefill - float(prefill[eligible.index].min())
        decay = 1.0 / (1.0 + p.overlap_decay * excess / prompt)
        overlap = p.overlap_credit * decay * self.matched / size
        adjusted = np.maximum(prefill + prompt - overlap, 0.0)
        decode = np.ceil(graph.prompt_tokens / size)
        if p.cost == "lmetric":
            np.multiply(adjusted, decode + 1.0, out=out)
        else:
            np.add(p.prefill_load_scale * adjusted, decode, out=out)
            out += p.active_request_weight * graph.n

    def _broken(self, request: Request, tied: Bools, first: int) -> int:
        """Draw by temperature where there is one."""
        temperature: float = self.params.temperature
        cost = self._cost
        open_ = np.flatnonzero(cost < 1e300)
        if not temperature or len(open_) < 2:
            return super()._broken(request, tied, first)
        above = cost[open_] - cost[first]
        span = float(above.max())
        if span == 0:
            return super()._broken(request, tied, first)
        weight = np.exp(-above / (span * temperature))
        mark = keyed.uniform(self._key, request.id, request.attempt) * float(weight.sum())
        return int(open_[min(int(np.searchsorted(np.cumsum(weight), mark)), len(open_) - 1)])


@dataclass(frozen=True, slots=True)
class LlmdParams:
    """``profile``: ``default`` 2 queue + 2 kv + 3 prefix; ``optimized``: affinity filter + tokens;

    ``load_aware``: 0.5 (1 - waiting / 128). The other values are those of the optimised baseline.
    """

    profile: Literal["default", "optimized", "load_aware"] = "default"
    queue_weight: float = 2.0
    kv_weight: float = 2.0
    prefix_weight: float = 3.0
    affinity_threshold: float = 0.8
    ttft_penalty_s: float = 18.0
    prefill_tokens_per_s: float = 15928.0
    token_limit: float = 4194304.0
    queue_limit: float = 128.0
    index_blocks: int = 1_000_000


@register("llmd")
class Llmd(PrefixScored):
    """Places at the largest weighted score of queue, KV use and prefix (llm-d endpoint picker).

    default: 2 (maxQ - q)/(maxQ - minQ) + 2 (1 - k) + 3 matched/total, queue score 1 if all equal.
    optimized: only devices that hold >= 0.8 of the prompt, unless their best TTFT = tokens in
    flight / 15928 exceeds the others' by 18 s; among them 1 - min(1, tokens / 4194304).
    load_aware: 0.5 (1 - waiting / 128). An unknown signal scores 0 and loses a tie (there: best,
    #2822).
    Signals: queue, kv. Ties: uniform, seeded. Source: llm-d pkg/epp, max-score picker.
    Known failure mode: the queue score stretches a difference of one request to the whole scale.
    """

    signals = frozenset({"queue", "kv", "health"})
    Params = LlmdParams

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = -score."""
        p: LlmdParams = self.params
        if p.profile == "optimized":
            self._optimized(request, graph, eligible, out)
            return
        if p.profile == "load_aware":
            np.divide(graph.waiting, p.queue_limit, out=out)
            np.clip(out, 0.0, 1.0, out=out)
            np.multiply(out - 1.0, 0.5, out=out)  # NaN: unknown, after all that are known
            return
        waiting = graph.waiting[eligible.index]
        told = waiting[~np.isnan(waiting)]
        queue = np.where(np.isnan(graph.waiting), 0.0, 1.0)
        if len(told) and told.max() > told.min():
            queue *= np.nan_to_num((told.max() - graph.waiting) / (told.max() - told.min()))
        kv = np.nan_to_num(1.0 - graph.kv_usage, nan=0.0)
        prefix = self.matched / max(request.prompt_tokens, 1)
        score = p.queue_weight * queue + p.kv_weight * kv + p.prefix_weight * prefix
        np.negative(score, out=out)
        out[np.isnan(graph.waiting) | np.isnan(graph.kv_usage)] += _NUDGE

    def _optimized(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats
    ) -> None:
        p: LlmdParams = self.params
        tokens = graph.prompt_tokens + graph.output_tokens
        np.minimum(tokens / p.token_limit, 1.0, out=out)
        out -= 1.0
        share = self.matched / max(request.prompt_tokens, 1)
        sticky = eligible.mask & (share >= p.affinity_threshold)
        others = eligible.mask & ~sticky
        if not sticky.any():
            return
        ttft = graph.prompt_tokens / p.prefill_tokens_per_s
        late = float(ttft[sticky].min()) - (float(ttft[others].min()) if others.any() else math.inf)
        if late <= p.ttft_penalty_s:
            out[~sticky] = np.inf


@dataclass(frozen=True, slots=True)
class MooncakeParams:
    """``ttft_slo_s`` and ``tbt_slo_s``: predicted misses are rejected; 0 asks nothing.

    ``transfer_bytes_per_s``: what KV moves at; TBT is taken as base + per_request * (n + 1).
    """

    balancing_threshold: float = 2.0
    transfer_bytes_per_s: float = 50e9
    ttft_slo_s: float = 0.0
    tbt_slo_s: float = 0.0
    tbt_base_s: float = 0.02
    tbt_per_request_s: float = 0.0005
    index_blocks: int = 1_000_000


@register("mooncake")
class Mooncake(PrefixScored):
    """Places at the least predicted TTFT and rejects what would miss its SLO (Mooncake conductor).

    TTFT = T_transfer + T_queue + T_prefill; where best match / own match exceeds the threshold, the
    missing prefix is transferred. Seconds follow from each device's tokens/s. Signals: own books.
    Ties: uniform, seeded. Source: Mooncake, FAST '25, algorithm 1.
    Known failure mode: the transfer time is a line rate; the network is shared.
    """

    Params = MooncakeParams

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the least TTFT, or reason ``slo``."""
        p: MooncakeParams = self.params
        choice = super().choose(request, graph, now_s)
        device = choice.device
        if device < 0:
            return choice
        tbt = p.tbt_base_s + p.tbt_per_request_s * (int(graph.n[device]) + 1)
        late = p.ttft_slo_s and choice.scores[0] > p.ttft_slo_s
        if late or (p.tbt_slo_s and tbt > p.tbt_slo_s):
            return self._none(Reason.slo, choice.candidates)
        return choice

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = predicted TTFT in seconds."""
        p: MooncakeParams = self.params
        speed = np.maximum(graph.speed, 1e-9)
        best = float(self.matched[eligible.index].max())
        moved = self.matched * p.balancing_threshold < best
        missing = np.where(moved, best - self.matched, 0.0)
        transfer = missing * graph.kv_bytes_per_token / p.transfer_bytes_per_s
        prefix = np.where(moved, best, self.matched)
        prefill = np.maximum(request.prompt_tokens - prefix, 0.0) / speed
        np.add(transfer + graph.prefill_tokens / speed, prefill, out=out)


@dataclass(frozen=True, slots=True)
class PrebleParams:
    """``window_s``: history that counts; ``decode_tokens``: median output; ``steal``: max/min."""

    window_s: float = 180.0
    decode_tokens: float = 200.0
    tpot_s: float = 0.03
    steal: float = 2.0
    index_blocks: int = 1_000_000

    def __post_init__(self) -> None:
        if self.window_s <= 0 or self.steal < 1:
            raise ValueError("give window_s > 0 and steal >= 1")


@register("preble")
class Preble(PrefixScored):
    """Exploits a prefix longer than what is left, else explores the least loaded (Preble E2).

    L = prefill seconds sent within the window (cache misses only) + n * median output * TPOT.
    Matched more than half the prompt: the longest match, ties to the lower L, unless its L exceeds
    steal * min L, then the least L; else argmin L. Signals: own books. Ties: uniform, seeded.
    Source: Preble global_scheduler_with_time.py. Known failure mode: the window forgets slowly.
    """

    Params = PrebleParams

    def __init__(self, params: PrebleParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._sent: deque[tuple[float, int, float]] = deque()
        self._prefill_s: Floats = np.zeros(0)
        self._next_s = 0.0

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the exploited or explored device."""
        if len(self._prefill_s) != graph.count:
            grown = np.zeros(graph.count - len(self._prefill_s))
            self._prefill_s = np.concatenate([self._prefill_s, grown])
        while self._sent and self._sent[0][0] < now_s - self.params.window_s:
            _, device, seconds = self._sent.popleft()
            self._prefill_s[device] = max(0.0, self._prefill_s[device] - seconds)
        choice = super().choose(request, graph, now_s)
        if choice.device >= 0:
            uncached = request.prompt_tokens - choice.cached_tokens
            self._next_s = max(uncached, 0) / max(float(graph.speed[choice.device]), 1e-9)
        return choice

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = L, with non-owners ruled out where a prefix is exploited."""
        p: PrebleParams = self.params
        np.multiply(graph.n, p.decode_tokens * p.tpot_s, out=out)
        out += self._prefill_s
        best = float(self.matched[eligible.index].max())
        if best <= request.prompt_tokens - best:
            return
        owners = eligible.mask & (self.matched == best)
        for device in request.tried:
            owners[device] = False
        if owners.any() and out[owners].min() <= p.steal * max(out[eligible.index].min(), 1e-9):
            out[~owners] = np.inf

    def on_start(self, request: Request, device: int, now_s: float) -> None:
        """Note the prefill seconds that the device is sent."""
        super().on_start(request, device, now_s)
        self._sent.append((now_s, device, self._next_s))
        self._prefill_s[device] += self._next_s
