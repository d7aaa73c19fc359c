"""The round robin of the legacy layer: ``static_weights`` under the layer's own configuration."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from dispatch.device import DeviceInfo
from dispatch.graph import TopologyGraph
from dispatch.legacy.router import LegacyRouter
from dispatch.policies.static_weights import StaticWeights, StaticWeightsParams
from dispatch.policy import Choice, Policy
from dispatch.request import Request


def legacy_devices(router: LegacyRouter, devices: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Return *devices* with the weights that the configuration gives them."""
    peers = router.peers((d.name, d.gpu, d.group, d.weight) for d in devices)
    return [replace(d, weight=p.weight) for d, p in zip(devices, peers, strict=True)]


def legacy_policy(router: LegacyRouter, devices: Sequence[DeviceInfo], *, seed: int = 0) -> Policy:
    """Return the round robin over *devices* as *router*'s configuration sets it up."""
    params = StaticWeightsParams(**router.policy_params())
    peers = router.peers((d.name, d.gpu, d.group, d.weight) for d in devices)
    limits = {at: peer.max_conns for at, peer in enumerate(peers) if peer.max_conns}
    return cast(Policy, LegacyWeights(params, seed=seed, limits=limits))


class LegacyWeights(StaticWeights):
    """Static weights with a connection limit of its own for each device (*limits*, by index)."""

    def __init__(
        self,
        params: StaticWeightsParams | None = None,
        *,
        seed: int = 0,
        limits: dict[int, int] | None = None,
    ) -> None:
        super().__init__(params, seed=seed)
        self._limits = limits or {}

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the next peer that is below its limit."""
        full = tuple(d for d, limit in self._limits.items() if graph.n[d] >= limit)
        if not full:
            return super().choose(request, graph, now_s)
        tried = request.tried
        request.tried = tried + full  # the round robin skips a full peer as it skips a tried one
        try:
            return super().choose(request, graph, now_s)
        finally:
            request.tried = tried
