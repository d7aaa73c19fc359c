"""Policies that place at the least load, by requests, tokens, KV use or free memory."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dispatch.credit import Credit
from dispatch.fleet import Eligible, Floats
from dispatch.graph import TopologyGraph
from dispatch.policies.scored import ScoredPolicy
from dispatch.registry import register
from dispatch.request import Request


@register("weighted_least_requests")
class WeightedLeastRequests(ScoredPolicy):
    """Places at the least n / W, requests in flight by weight; random ties.

    Signals: own books, weights. Ties: uniform, seeded. Source: nginx least_conn (cross-multiplied
    there), SGLang #28933. Known failure mode: requests count alike whatever their length.
    """

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = n / W; weights of zero are not eligible anyway."""
        np.maximum(graph.weight, 1e-300, out=out)
        np.divide(graph.n, out, out=out)


@dataclass(frozen=True, slots=True)
class LeastWorkParams:
    """``output``: how many output tokens a request counts: its max_tokens, or ``tokens`` each."""

    output: Literal["max_tokens", "fixed"] = "max_tokens"
    tokens: float = 256.0
    by_speed: bool = False


@register("least_work")
class LeastWork(ScoredPolicy):
    """Places at the fewest outstanding tokens: uncached prompt + estimated output (token load).

    Cost = sum over in flight of (uncached prompt + output estimate), divided by the device's
    tokens/s with ``by_speed``. Signals: own books. Ties: uniform, seeded. Source: join the shortest
    work; llm-d token-load scorer. Known failure mode: the estimate of the output is a guess.
    """

    Params = LeastWorkParams

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = tokens, or seconds with ``by_speed``."""
        if self.params.output == "max_tokens":
            np.add(graph.prompt_tokens, graph.output_tokens, out=out)
        else:
            np.multiply(graph.n, self.params.tokens, out=out)
            np.add(out, graph.prompt_tokens, out=out)
        if self.params.by_speed:
            np.divide(out, graph.speed, out=out)


@register("least_kv")
class LeastKv(ScoredPolicy):
    """Places at the lowest KV cache use: argmin k.

    Signals: kv. Ties: uniform, seeded; unknown comes last. Source: AIBrix least-kv-cache.
    Known failure mode: a snapshot 100 ms old multiplies the p99 of TTFT (inference-sim: +354 %).
    """

    signals = frozenset({"kv", "health"})

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = KV use."""
        np.copyto(out, graph.kv_usage)


@register("most_free")
class MostFree(ScoredPolicy):
    """Places at the most free bytes: argmax F, less what was placed since the sample.

    Under paged KV F is that of the free KV blocks, once told: the engine has taken its pool from
    the GPU at its start, and what the GPU has free beside it says nothing of the load.
    Signals: memory (or KV blocks). Ties: uniform, seeded; unknown comes last. Source: the usual
    reading of "least used GPU". Known failure mode: free bytes in fragments hold no large request.
    """

    signals = frozenset({"memory", "kv", "health"})

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = -(F - reserved)."""
        np.multiply(graph.kv_free_blocks, graph.bytes_per_block, out=out)
        by_gpu = ~graph.paged | np.isnan(out)
        np.putmask(out, by_gpu, graph.free)
        np.subtract(graph.reserved, out, out=out)


@register("llumnix")
class Llumnix(ScoredPolicy):
    """Places at the most remaining steps: argmax (free blocks - wanted by waiting) / (r + q).

    Wanted blocks are those placed here and not yet in a KV sample. An idle device has infinite
    steps. Signals: kv, queue. Ties: uniform, seeded; unknown comes last.
    Source: Llumnix dispatch_policy.py, remaining_steps.
    Known failure mode: large and small devices with the same steps get equal shares.
    """

    signals = frozenset({"kv", "queue", "health"})

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = -steps; among idle devices the one with more free blocks."""
        size = np.maximum(graph.bytes_per_block, 1e-300)
        blocks = graph.kv_free_blocks - graph.reserved / size
        busy = graph.waiting + graph.running
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            steps = np.where(busy == 0, 1e12 + blocks, blocks / busy)
        np.negative(steps, out=out)


@dataclass(frozen=True, slots=True)
class VllmDpParams:
    """``clients``: dispatchers that share the engines; each placement counts that often."""

    clients: int = 1

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ValueError(f"clients is {self.clients}; give >= 1")


@register("vllm_dp")
class VllmDp(ScoredPolicy):
    """Places at the least 4 q + r of the last snapshot plus a local credit (vLLM data parallel).

    Each own placement adds ``clients`` waiting, until a snapshot taken after it. Signals: queue.
    Ties: uniform, seeded (a fixed scan start fills rank 0 first); unknown comes last.
    Source: vLLM DP coordinator, 100 ms snapshots.
    Known failure mode: as vLLM does it, the snapshot wipes credits newer than itself, and four
    ranks get 27/5/0/0 (#48808).
    """

    signals = frozenset({"queue", "health"})
    Params = VllmDpParams

    def __init__(self, params: VllmDpParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._credit = Credit()

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = 4 (q + credit) + r."""
        np.add(graph.waiting, self._credit.up_to(graph.signals["queue"]), out=out)
        np.multiply(out, 4.0, out=out)
        np.add(out, graph.running, out=out)

    def on_start(self, request: Request, device: int, now_s: float) -> None:
        """Count the placement until a snapshot shows it."""
        self._credit.add(device, now_s, self.params.clients)


@dataclass(frozen=True, slots=True)
class SmgLeastLoadParams:
    """The gateway's defaults: mean prefill of a queued request, tokens/s, weight of KV pressure."""

    mean_prefill_tokens: float = 1024.0
    throughput_tokens_per_s: float = 2000.0
    kv_weight: float = 0.15
    by_speed: bool = True


@register("smg_least_load")
class SmgLeastLoad(ScoredPolicy):
    """Places at the least expected wait: polled queue + credit since the poll, by throughput.

    Cost = (q * mean prefill + tokens placed since the poll) / throughput + 0.15 k / (1 - k); with
    ``by_speed`` throughput follows the device's share of the mean speed. Signals: queue, kv.
    Ties: uniform, seeded; unknown queues come last, unknown KV counts as full.
    Source: SGLang gateway least_load (poll 10 s).
    Known failure mode: means hide long prompts in the queue.
    """

    signals = frozenset({"queue", "kv", "health"})
    Params = SmgLeastLoadParams

    def __init__(self, params: SmgLeastLoadParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._credit = Credit()

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost in seconds."""
        p = self.params
        speed = np.full(len(out), p.throughput_tokens_per_s)
        if p.by_speed and (mean := float(graph.speed[eligible.index].mean())) > 0:
            speed *= graph.speed / mean
        kv = np.minimum(np.nan_to_num(graph.kv_usage, nan=1.0), 1 - 1e-9)
        queued = graph.waiting * p.mean_prefill_tokens
        queued = queued + self._credit.up_to(graph.signals["queue"])
        np.divide(queued, np.maximum(speed, 1e-9), out=out)
        out += p.kv_weight * kv / (1 - kv)

    def on_start(self, request: Request, device: int, now_s: float) -> None:
        """Count the tokens until a poll shows them."""
        self._credit.add(device, now_s, float(request.prompt_tokens))


@register("always_busiest")
class AlwaysBusiest(ScoredPolicy):
    """Places at the most requests in flight: argmax n, a lower bound for every report.

    Signals: own books. Ties: configuration order. Source: none; it marks the bad end of the scale.
    Known failure mode: it is one.
    """

    ties = "order"

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = -n."""
        np.negative(graph.n, out=out)
