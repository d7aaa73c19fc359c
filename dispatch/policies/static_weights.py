"""Smooth weighted round robin with passive failure handling, as nginx does it."""

import math
from dataclasses import dataclass, field
from typing import Literal

from dispatch import keyed
from dispatch.fleet import Eligible
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import no_device
from dispatch.policy import BasePolicy, Choice
from dispatch.registry import register
from dispatch.request import Request


@dataclass(frozen=True, slots=True)
class StaticWeightsParams:
    """nginx's defaults. ``workers`` independent states, request j to worker j mod workers.

    ``start``: ``same`` starts every worker at the first peer, ``random`` each at a seeded place.
    ``max_fails`` 0 turns failure handling off; ``max_conns`` 0 means no limit.
    """

    max_fails: int = 1
    fail_timeout_s: float = 10.0
    max_conns: int = 0
    workers: int = 1
    start: Literal["same", "random"] = "same"

    def __post_init__(self) -> None:
        if self.max_fails < 0 or self.max_conns < 0 or self.workers < 1 or self.fail_timeout_s < 0:
            raise ValueError("give max_fails, max_conns, fail_timeout_s >= 0 and workers >= 1")


@dataclass(slots=True)
class _Peer:
    """nginx's state of one peer, in its own words."""

    device: int
    weight: float
    effective: float
    current: float = 0.0
    fails: int = 0
    checked: float = -math.inf
    accessed: float = -math.inf


@dataclass(slots=True)
class _Upstream:
    """The peers of one class of requests as one worker process sees them."""

    eligible: Eligible
    peers: list[_Peer] = field(default_factory=list)


@register("static_weights")
class StaticWeights(BasePolicy):
    """Spreads by static weights with nginx's smooth weighted round robin (SWRR).

    Each scan of an eligible peer: C += E, total += E, then E climbs back by one towards W; the
    largest C wins and falls by total.
    A failure takes W // max_fails off E and puts the peer out for fail_timeout_s; a lone peer is
    never put out. Ties: the first in configuration order. Signals: failures and connections only.
    Source: nginx ngx_http_upstream_round_robin.c (52327e062). Weight 0 drains (nginx refuses it).
    Known failure mode: blind to memory, tokens and topology; every worker process counts alone.
    """

    Params = StaticWeightsParams

    def __init__(self, params: StaticWeightsParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._p: StaticWeightsParams = self.params
        self._upstreams: dict[tuple[int, str, str], _Upstream] = {}
        self._worker_of: dict[int, int] = {}
        self._arrived = 0

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the next peer of the request's upstream."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        upstream = self._upstream(self._worker(request), request, graph, eligible)
        peer = self._pick(upstream, request, graph, now_s)
        if peer is None:
            self._worker_of.pop(request.id, None)
            return self._none(Reason.no_device, eligible.count)
        return self._place(peer.device, eligible.count)

    def _worker(self, request: Request) -> int:
        if self._p.workers == 1:
            return 0
        worker = self._worker_of.get(request.id)
        if worker is None:
            worker = self._worker_of[request.id] = self._arrived % self._p.workers
            self._arrived += 1
        return worker

    def _upstream(
        self, worker: int, request: Request, graph: TopologyGraph, eligible: Eligible
    ) -> _Upstream:
        key = (worker, request.model, request.group)
        found = self._upstreams.get(key)
        if found is not None and found.eligible is eligible:
            return found
        known = {peer.device: peer for peer in found.peers} if found else {}
        upstream = _Upstream(eligible)
        for device in eligible.devices:
            weight = float(graph.weight[device])
            peer = known.get(device)
            if peer is None or peer.weight != weight:
                peer = _Peer(device, weight, weight)
            upstream.peers.append(peer)
        self._upstreams[key] = upstream
        if found is None and self._p.start == "random":
            turns = keyed.uniform(keyed.stream(self.seed, "swrr.start"), worker)
            for _ in range(int(turns * len(upstream.peers))):
                self._pick(upstream, request, graph, -math.inf)
        return upstream

    def _pick(
        self, upstream: _Upstream, request: Request, graph: TopologyGraph, now_s: float
    ) -> _Peer | None:
        p = self._p
        best: _Peer | None = None
        total = 0.0
        lone = len(upstream.peers) == 1
        for peer in upstream.peers:
            if peer.device in request.tried:
                continue
            if p.max_conns and graph.n[peer.device] >= p.max_conns:
                continue
            out = p.max_fails and peer.fails >= p.max_fails and not lone
            if out and now_s - peer.checked <= p.fail_timeout_s:
                continue
            peer.current += peer.effective
            total += peer.effective
            if peer.effective < peer.weight:
                peer.effective += 1
            if best is None or peer.current > best.current:
                best = peer
        if best is not None:
            best.current -= total
            if now_s - best.checked > p.fail_timeout_s:
                best.checked = now_s
        return best

    def on_failure(self, request: Request, device: int, now_s: float, fault: bool) -> None:
        """Count a failure against the peer, in the worker that saw it."""
        upstream, peer = self._peer(request, device)
        if peer is None or not fault:
            return
        if len(upstream.peers) == 1:
            peer.fails = 0
            return
        peer.fails += 1
        peer.accessed = peer.checked = now_s
        if self._p.max_fails:
            peer.effective = max(0.0, peer.effective - peer.weight // self._p.max_fails)

    def on_finish(self, request: Request, device: int, now_s: float) -> None:
        """Clear the failures of a peer that was tried again and answered."""
        upstream, peer = self._peer(request, device)
        if peer is not None and (peer.accessed < peer.checked or len(upstream.peers) == 1):
            peer.fails = 0

    def on_cancel(self, request: Request, device: int, now_s: float) -> None:
        """Forget which worker held the request."""
        self._worker_of.pop(request.id, None)

    def _peer(self, request: Request, device: int) -> tuple[_Upstream, _Peer | None]:
        worker = self._worker_of.pop(request.id, 0)
        upstream = self._upstreams[worker, request.model, request.group]
        for peer in upstream.peers:
            if peer.device == device:
                return upstream, peer
        return upstream, None
