"""Policies that weigh a probable prefix hit against load: SGLang, AIBrix, vLLM production-stack."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dispatch import keyed
from dispatch.fleet import Eligible, Floats, Ints
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import ScoredPolicy, in_flight, no_device, untried
from dispatch.policy import BasePolicy, Choice
from dispatch.prefix_index import PrefixIndex
from dispatch.registry import register
from dispatch.request import Request


class PrefixAware(BasePolicy):
    """Common ground: an index of what was sent where, and the eligible devices not yet tried."""

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self.index = PrefixIndex(getattr(self.params, "index_blocks", 1_000_000))
        self._key = keyed.stream(seed, f"policy.{self.name}")
        self._graph: TopologyGraph | None = None

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the chosen device, with the prompt tokens taken to be cached there."""
        self._graph = graph
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        devices = untried(request, eligible)
        if not len(devices):
            return self._none(Reason.no_device, eligible.count)
        found = self.index.matched(request, graph)
        matched = {d: t for d, t in found.items() if eligible.cells[d] and d not in request.tried}
        device = self.pick(request, graph, devices, matched)
        choice = self._place(device, len(devices))
        choice.cached_tokens = min(matched.get(device, 0), request.prompt_tokens)
        return choice

    def pick(
        self, request: Request, graph: TopologyGraph, devices: Ints, matched: dict[int, int]
    ) -> int:
        """Return one of *devices*; *matched* holds the cached prompt tokens of some of them."""
        raise NotImplementedError

    def on_start(self, request: Request, device: int, now_s: float) -> None:
        """Note what the device is sent."""
        assert self._graph is not None
        self.index.insert(request, device, self._graph)


_SETS = {"cli": (0.3, 64.0, 1.5), "struct": (0.5, 32.0, 1.1)}


@dataclass(frozen=True, slots=True)
class CacheAwareParams:
    """Thresholds (cache, balance_abs, balance_rel): the CLI's (0.3, 64, 1.5), the struct's others.

    A value given overrides that of the set. ``overload_token_usage`` and ``balance_token_usage``
    of 1 switch the KV triggers off. ``on_miss``: ``smallest_tree`` is the older, faulty form.
    """

    defaults: Literal["cli", "struct"] = "cli"
    cache_threshold: float | None = None
    balance_abs_threshold: float | None = None
    balance_rel_threshold: float | None = None
    overload_token_usage: float = 1.0
    balance_token_usage: float = 1.0
    on_miss: Literal["min_load", "smallest_tree"] = "min_load"
    index_blocks: int = 1_000_000


@register("cache_aware")
class CacheAware(PrefixAware):
    """Goes where the prefix is, unless loads are out of balance (SGLang cache-aware routing).

    Imbalanced iff max n - min n > abs and max n > rel * min n: least (n, processed, index). Hottest
    KV above overload_token_usage or spread above balance_token_usage: least KV. Else a match rate
    above cache_threshold: the best match; else least n. Ties: the lower n, fewer processed, then
    configuration order. Signals: own books, kv. Source: SGLang gateway cache_aware; defaults of its
    CLI 0.3/64/1.5 and struct 0.5/32/1.1.
    Known failure mode: ``on_miss = smallest_tree`` sends cold prompts to a busy node (#14305).
    """

    signals = frozenset({"kv", "health"})
    Params = CacheAwareParams

    def __init__(self, params: CacheAwareParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        p: CacheAwareParams = self.params
        given = (p.cache_threshold, p.balance_abs_threshold, p.balance_rel_threshold)
        self._cache, self._abs, self._rel = (
            default if value is None else value
            for value, default in zip(given, _SETS[p.defaults], strict=True)
        )
        self._balances_kv = min(p.overload_token_usage, p.balance_token_usage) < 1

    def pick(
        self, request: Request, graph: TopologyGraph, devices: Ints, matched: dict[int, int]
    ) -> int:
        """Return by balance first, by match then."""
        n = graph.n[devices]
        most, least = int(n.max()), int(n.min())
        if most - least > self._abs and most > self._rel * least:
            return self._idlest(graph, devices, n)
        kv = graph.kv_usage[devices]
        if self._balances_kv and not np.isnan(kv).all():
            coolest = float(np.nanmin(kv))
            if self._hot(float(np.nanmax(kv)), coolest):
                tied = devices[kv == coolest]
                return int(tied[graph.n[tied].argmin()])
        enough = self._cache * request.prompt_tokens
        known = [d for d, tokens in matched.items() if tokens > enough]
        if known:
            return min(known, key=lambda d: (-matched[d], int(graph.n[d]), d))
        if self.params.on_miss == "smallest_tree":
            every: list[int] = devices.tolist()
            return min(every, key=lambda d: (self.index.held.get(d, 0), d))
        return self._idlest(graph, devices, n)

    def _idlest(self, graph: TopologyGraph, devices: Ints, n: Ints) -> int:
        """Return the least (n, processed, index)."""
        tied = devices[n == n.min()]
        return int(tied[graph.placed[tied].argmin()])

    def _hot(self, hottest: float, coolest: float) -> bool:
        p: CacheAwareParams = self.params
        over = p.overload_token_usage < 1 and hottest > p.overload_token_usage
        return over or (p.balance_token_usage < 1 and hottest - coolest > p.balance_token_usage)


@dataclass(frozen=True, slots=True)
class AibrixPrefixParams:
    """``spread`` (A) and ``sigmas`` (k): the code says 8 and 1, its README 16 and 2."""

    spread: float = 8.0
    sigmas: float = 1.0
    index_blocks: int = 1_000_000


@register("aibrix_prefix")
class AibrixPrefix(PrefixAware):
    """Goes to the best prefix match that is not overloaded (AIBrix prefix-cache).

    max n - min n > A: least n. Else the best match among devices with n <= mean + k * sigma; no
    match: least n. Ties: the lower n among matches; uniform, seeded, else. Signals: own books.
    Source: AIBrix prefix_cache.go, A = 8, k = 1 in code (16 and 2 in its README).
    Known failure mode: sigma of two busy nodes lets a third hot one pass.
    """

    Params = AibrixPrefixParams

    def pick(
        self, request: Request, graph: TopologyGraph, devices: Ints, matched: dict[int, int]
    ) -> int:
        """Return the best match within mean + k sigma, else the least loaded."""
        n = graph.n[devices]
        if n.max() - n.min() <= self.params.spread:
            limit = n.mean() + self.params.sigmas * n.std()
            known = [d for d in matched if graph.n[d] <= limit]
            if known:
                return min(known, key=lambda d: (-matched[d], int(graph.n[d]), d))
        tied = devices[n == n.min()]
        return int(tied[int(keyed.uniform(self._key, request.id, request.attempt) * len(tied))])


class PrefixScored(ScoredPolicy):
    """A cost column that also knows how many prompt tokens each device probably holds."""

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self.index = PrefixIndex(getattr(self.params, "index_blocks", 1_000_000))
        self.matched: Floats = np.empty(0)
        self._graph: TopologyGraph | None = None

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the least cost, with the prompt tokens taken to be cached there."""
        self._graph = graph
        self.matched = np.zeros(graph.count)
        for device, tokens in self.index.matched(request, graph).items():
            self.matched[device] = tokens
        choice = super().choose(request, graph, now_s)
        if choice.device >= 0:
            choice.cached_tokens = int(self.matched[choice.device])
        return choice

    def on_start(self, request: Request, device: int, now_s: float) -> None:
        """Note what the device is sent."""
        assert self._graph is not None
        self.index.insert(request, device, self._graph)

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost from :attr:`matched` and the graph."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class LoadAwareParams:
    """``beta``: what load costs against a full match."""

    beta: float = 1.0
    index_blocks: int = 1_000_000


@register("load_aware")
class LoadAware(PrefixScored):
    """Places at the largest m/P - beta * (n - mean n) / max(1, mean n).

    Signals: own books. Ties: uniform, seeded. Source: vLLM production-stack loadaware (#1035).
    Known failure mode: a small mean makes the load term jump by whole units.
    """

    Params = LoadAwareParams

    def cost(self, request: Request, graph: TopologyGraph, eligible: Eligible, out: Floats) -> None:
        """Cost = -score."""
        mean = in_flight(graph, eligible) / eligible.count
        np.subtract(graph.n, mean, out=out)
        out *= self.params.beta / max(1.0, mean)
        out -= self.matched / max(request.prompt_tokens, 1)
