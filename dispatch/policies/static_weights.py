"""Smooth weighted round robin with passive failure handling, as nginx does it."""

import math
from dataclasses import dataclass
from typing import Literal

from dispatch import keyed
from dispatch.fleet import Eligible
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import no_device
from dispatch.policies.smooth import Peer, Plain, Rules, scheduler
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


_REMEMBERED = 4096
"""Failed requests whose worker is remembered: a retry happens inside the process that failed."""


@dataclass(slots=True)
class _Upstream:
    """The peers of one class of requests as one worker process sees them."""

    eligible: Eligible
    scan: Plain


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
        rules = self._p.max_fails, self._p.fail_timeout_s, self._p.max_conns
        self._rules = Rules(*rules)
        self._upstreams: dict[tuple[int, str, str], _Upstream] = {}
        self._worker_of: dict[int, int] = {}
        self._failed_in: dict[int, int] = {}
        self._arrived = 0

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the next peer of the request's upstream."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        upstream = self._upstream(self._worker(request), request, graph, eligible)
        peer = upstream.scan.pick(request.tried, graph.n, now_s)
        if peer is None:
            self._worker_of.pop(request.id, None)
            return self._none(Reason.no_device, eligible.count)
        return self._place(peer.device, eligible.count)

    def _worker(self, request: Request) -> int:
        if self._p.workers == 1:
            return 0
        worker = self._worker_of.get(request.id)
        if worker is None and request.attempt:
            worker = self._failed_in.pop(request.id, None)
        if worker is None:
            worker = self._arrived % self._p.workers
            self._arrived += 1
        self._worker_of[request.id] = worker
        return worker

    def _upstream(
        self, worker: int, request: Request, graph: TopologyGraph, eligible: Eligible
    ) -> _Upstream:
        key = (worker, request.model, request.group)
        found = self._upstreams.get(key)
        if found is not None and found.eligible is eligible:
            return found
        known = {}
        if found is not None:
            found.scan.settled()
            known = found.scan.by_device
        peers = []
        for device in eligible.devices:
            weight = float(graph.weight[device])
            peer = known.get(device)
            if peer is None or peer.weight != weight:
                peer = Peer(device, weight, weight)
            peers.append(peer)
        upstream = self._upstreams[key] = _Upstream(eligible, scheduler(peers, self._rules))
        if found is None and self._p.start == "random":
            turns = keyed.uniform(keyed.stream(self.seed, "swrr.start"), worker)
            for _ in range(int(turns * len(peers))):
                upstream.scan.pick(request.tried, graph.n, -math.inf)
        return upstream

    def on_failure(self, request: Request, device: int, now_s: float, fault: bool) -> None:
        """Count a failure against the peer, in the worker that saw it."""
        scan, peer = self._peer(request, device, again=True)
        if peer is None or not fault:
            return
        scan.disturbed(peer)
        if len(scan.peers) == 1:
            peer.fails = 0
            return
        peer.fails += 1
        peer.accessed = peer.checked = now_s
        if self._p.max_fails:
            peer.effective = max(0.0, peer.effective - peer.weight // self._p.max_fails)

    def on_finish(self, request: Request, device: int, now_s: float) -> None:
        """Clear the failures of a peer that was tried again and answered."""
        scan, peer = self._peer(request, device)
        if peer is not None and (peer.accessed < peer.checked or len(scan.peers) == 1):
            peer.fails = 0

    def on_cancel(self, request: Request, device: int, now_s: float) -> None:
        """Forget which worker held the request."""
        self._worker_of.pop(request.id, None)

    def _peer(
        self, request: Request, device: int, again: bool = False
    ) -> tuple[Plain, Peer | None]:
        """Return the scan and the peer of a request that ended; *again*: it may be retried."""
        worker = self._worker_of.pop(request.id, 0)
        if again and self._p.workers > 1:
            self._failed_in[request.id] = worker
            if len(self._failed_in) > _REMEMBERED:
                del self._failed_in[next(iter(self._failed_in))]
        scan = self._upstreams[worker, request.model, request.group].scan
        return scan, scan.by_device.get(device)
