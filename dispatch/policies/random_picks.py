"""Random placement, and the better of two random picks."""

from dataclasses import dataclass

import numpy as np

from dispatch import keyed
from dispatch.credit import Credit
from dispatch.fleet import Eligible, Floats
from dispatch.graph import TopologyGraph
from dispatch.outcomes import Reason
from dispatch.policies.scored import no_device
from dispatch.policy import BasePolicy, Choice
from dispatch.registry import register
from dispatch.request import Request


class Drawing(BasePolicy):
    """Common ground: draws keyed by seed, request and attempt, over the eligible not yet tried."""

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._key = keyed.stream(seed, f"policy.{self.name}")

    def draw(self, request: Request, number: int) -> float:
        """Return the *number*-th uniform of this attempt."""
        return keyed.uniform(self._key, request.id, request.attempt, number)

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the drawn device."""
        eligible = graph.eligible(request.model, request.group)
        if not eligible.count:
            return self._none(no_device(eligible))
        devices: tuple[int, ...] = eligible.devices
        if request.tried:
            devices = tuple(d for d in devices if d not in request.tried)
            if not devices:
                return self._none(Reason.no_device, eligible.count)
        return self.drawn(request, graph, eligible, devices)

    def drawn(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, devices: tuple[int, ...]
    ) -> Choice:
        """Return the choice among *devices*, of which there is at least one."""
        raise NotImplementedError

    def two(self, request: Request, devices: tuple[int, ...], first: int = 0) -> tuple[int, int]:
        """Return two distinct devices, uniformly; the same one twice where there is only one."""
        count = len(devices)
        one = int(self.draw(request, first) * count)
        if count == 1:
            return devices[0], devices[0]
        other = int(self.draw(request, first + 1) * (count - 1))
        return devices[one], devices[other + (other >= one)]


@register("random")
class Random(Drawing):
    """Takes an eligible device uniformly at random.

    Signals: health only. Ties: none. Source: every balancer. Known failure mode: the fullest of N
    queues grows like log N / log log N.
    """

    def drawn(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, devices: tuple[int, ...]
    ) -> Choice:
        """Return a uniform pick."""
        return self._place(devices[int(self.draw(request, 0) * len(devices))], len(devices))


@register("weighted_random")
class WeightedRandom(Drawing):
    """Takes an eligible device at random with p = W / sum of W; no weight at all is rejected.

    Signals: health only. Ties: none. Source: LiteLLM simple-shuffle, Istio and Gateway API weights.
    Known failure mode: as random; weights are guesses that nobody revisits.
    """

    def __init__(self, params: object = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._sums: tuple[Eligible | None, Floats] = None, np.empty(0)

    def drawn(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, devices: tuple[int, ...]
    ) -> Choice:
        """Return a pick in proportion to the weights."""
        if request.tried:
            sums = np.cumsum(graph.weight[list(devices)])
        else:
            if self._sums[0] is not eligible:  # a change of weights makes a new one
                self._sums = eligible, np.cumsum(graph.weight[eligible.index])
            sums = self._sums[1]
        at = int(sums.searchsorted(self.draw(request, 0) * sums[-1], side="right"))
        return self._place(devices[min(at, len(devices) - 1)], len(devices))


@register("p2c")
class PowerOfTwo(Drawing):
    """Draws two distinct devices and takes the one with fewer requests in flight (P2C, d = 2).

    Compares n, the dispatcher's own count, at the moment of the decision. Ties: the first drawn.
    Signals: own books. Source: Mitzenmacher 2001; Envoy least request with equal weights.
    Known failure mode: with polled loads instead of n all arrivals of a poll interval herd.
    """

    def load(self, graph: TopologyGraph, device: int) -> float:
        """Return what is compared."""
        return float(graph.n[device])

    def drawn(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, devices: tuple[int, ...]
    ) -> Choice:
        """Return the less loaded of two."""
        first, second = self.two(request, devices)
        loads = self.load(graph, first), self.load(graph, second)
        choice = self._place(second if loads[1] < loads[0] else first, min(2, len(devices)))
        pair = ((first, loads[0]), (second, loads[1]))
        ordered = sorted(dict(pair).items(), key=lambda p: p[0] != choice.device)
        choice.best, choice.scores = [d for d, _ in ordered], [s for _, s in ordered]
        return choice


@register("weighted_p2c")
class WeightedPowerOfTwo(PowerOfTwo):
    """Draws two distinct devices and takes the one with the lower n / W.

    Signals: own books, weights. Ties: the first drawn. Source: nginx ``random two`` with weights.
    Known failure mode: a device of tiny weight is still drawn as often as any other.
    """

    def load(self, graph: TopologyGraph, device: int) -> float:
        """Return n / W."""
        return float(graph.n[device] / graph.weight[device])


@dataclass(frozen=True, slots=True)
class PolledParams:
    """``credit``: count what was placed since the poll; without it arrivals herd."""

    credit: bool = True


@register("p2c_polled")
class PolledPowerOfTwo(PowerOfTwo):
    """P2C on the engines' polled loads, with a local credit for what was placed since the poll.

    Compares waiting + running of the last sample + own placements after it. Where either was
    never polled, both are compared by n. Signals: queue. Ties: the first drawn.
    Source: SGLang gateway power_of_two (10 s polls); vllm-project/router #177.
    Known failure mode: with ``credit`` off all arrivals of a poll interval herd.
    """

    signals = frozenset({"queue", "health"})
    Params = PolledParams

    def __init__(self, params: PolledParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._credit = Credit()

    def two(self, request: Request, devices: tuple[int, ...], first: int = 0) -> tuple[int, int]:
        """Return two distinct devices, and remember them."""
        self._pair = super().two(request, devices, first)
        return self._pair

    def load(self, graph: TopologyGraph, device: int) -> float:
        """Return the polled load with its credit; n where either was never polled."""
        credit = self._credit.up_to(graph.signals["queue"])
        loads = [float(graph.waiting[d] + graph.running[d]) for d in self._pair]
        if any(load != load for load in loads):
            return float(graph.n[device])
        load = loads[self._pair.index(device)]
        return load + float(credit[device]) if self.params.credit else load

    def on_start(self, request: Request, device: int, now_s: float) -> None:
        """Count the placement until a poll shows it."""
        self._credit.add(device, now_s, 1.0)


@dataclass(frozen=True, slots=True)
class RayParams:
    """``max_ongoing``: what a replica accepts; ``cache_s``: how long a queue length is believed.

    ``attempts``: pairs drawn before the request waits for capacity.
    """

    max_ongoing: int = 100
    cache_s: float = 10.0
    attempts: int = 10

    def __post_init__(self) -> None:
        if self.max_ongoing < 1 or self.attempts < 1 or self.cache_s < 0:
            raise ValueError("give max_ongoing and attempts >= 1, cache_s >= 0")


@register("ray_pow2")
class RayPowerOfTwo(Drawing):
    """P2C over cached or probed queue lengths with replicas that reject when full (Ray Serve).

    A length is the cached one plus what was placed since, or, older than ``cache_s``, a probe: the
    engine's waiting + running where told, else n. Both full: draw again, ``attempts`` times, then
    any replica that is not full; all full: held. Ties: the first drawn. Signals: queue, own books.
    Source: Ray Serve pow_2_router.py (cache 10 s, #42943). Known failure mode: with every
    assignment in backoff nothing moves until a timer fires; here held requests wake on capacity.
    """

    signals = frozenset({"queue", "health"})
    Params = RayParams

    def __init__(self, params: RayParams | None = None, *, seed: int = 0) -> None:
        super().__init__(params, seed=seed)
        self._p: RayParams = self.params
        self._cache: dict[int, tuple[float, float, int]] = {}  # length, time, placed by then
        self._now_s = 0.0

    def choose(self, request: Request, graph: TopologyGraph, now_s: float) -> Choice:
        """Return the shorter queue of two that are not full."""
        self._now_s = now_s
        return super().choose(request, graph, now_s)

    def _length(self, graph: TopologyGraph, device: int) -> float:
        length, at_s, n = self._cache.get(device, (0.0, -1e300, 0))
        if self._now_s - at_s > self._p.cache_s:
            told = float(graph.waiting[device] + graph.running[device])
            n = int(graph.n[device])
            length = max(told, float(n)) if told == told else float(n)
            self._cache[device] = length, self._now_s, n
        return length + float(graph.n[device]) - n

    def drawn(
        self, request: Request, graph: TopologyGraph, eligible: Eligible, devices: tuple[int, ...]
    ) -> Choice:
        """Return the shorter of two, drawing again while both are full."""
        full = self._p.max_ongoing
        for attempt in range(self._p.attempts):
            pair = self.two(request, devices, 2 * attempt)
            lengths = [self._length(graph, d) for d in pair]
            device = pair[1] if lengths[1] < lengths[0] else pair[0]
            if min(lengths) < full and graph.n[device] < full:
                return self._place(device, min(2, len(devices)))
        for device in devices:
            if graph.n[device] < full:
                return self._place(device, len(devices))
        return self._none(Reason.held, len(devices))
