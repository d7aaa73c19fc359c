"""What the oracle is told and no dispatcher can know: when a request would end on a device.

An estimate from the engine's own state at this very moment and from true output lengths, greedy for
the one request: that it slows others down, and what arrives later, is left out.
"""

from math import inf
from typing import TYPE_CHECKING, Any

from dispatch.request import Request
from sim.call import Call
from sim.clock import FS_PER_S, S
from sim.memory import ContiguousKv
from sim.sequence import DECODE, GONE, Sequence

if TYPE_CHECKING:
    from sim.engine import Engine
    from sim.world import World


def tell(policy: Any, world: "World") -> None:
    """Give *policy*, which asks for the future, what *world* knows of it."""
    future = Future(world)
    policy.finish_s, policy.output_tokens = future.finish_s, future.reserved_tokens
    booked = policy.on_start

    def on_start(request: Request, device: int, now_s: float) -> None:
        booked(request, device, now_s)
        future.booked(request, device)

    policy.on_start = on_start


class Future:
    """What a world knows of requests and engines, and of what is on its way between them."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._coming: dict[int, list[tuple[Call, Sequence | None]]] = {}

    def booked(self, request: Request, device: int) -> None:
        """Note that *request* was placed: it reaches its engine only when it is handed on."""
        call = self._world.live[request.id]
        self._coming.setdefault(device, []).append((call, call.sequence))

    def finish_s(self, request: Request, device: int, now_s: float) -> float:
        """Return when *request* would end on *device*."""
        live, engine = self._world.live, self._world.engines[device]
        ahead = [s for _, _, s in engine.waiting if s.state != GONE]
        if coming := self._coming.get(device):
            left = [(c, s) for c, s in coming if c.sequence is s and c.row in live]
            self._coming[device] = left
            ahead += [_sequence(c.request, c.output) for c, _ in left]
        return now_s + stay_s(engine, _sequence(request, live[request.id].output), ahead)

    def reserved_tokens(self, request: Request) -> int:
        """Return the output tokens that memory is needed for."""
        if self._world.setup.engine.kv == "contiguous":
            return request.max_tokens
        return self._world.live[request.id].output


def _sequence(request: Request, output: int) -> Sequence:
    return Sequence(None, request.prompt_tokens, output, request.max_tokens)


def stay_s(engine: "Engine", sequence: Sequence, ahead: list[Sequence]) -> float:
    """Return the seconds until *sequence* would be done on *engine*, behind what waits *ahead*.

    Infinite where it is down, or where there is no room and a lack of it kills. Decode runs at the
    mean batch and context over its own iterations, of which every other sequence shares as many as
    it has left.
    """
    if engine.down:
        return inf
    if _room(engine, sequence, ahead):
        return _run_s(engine, sequence, ahead)
    if engine.optimistic or not engine.kv.ever_fits(sequence):
        return inf
    return _wait_s(engine) + _run_s(engine, sequence, ahead)


def _room(engine: "Engine", sequence: Sequence, ahead: list[Sequence]) -> bool:
    """Return whether *sequence* finds its memory once all that waits *ahead* has taken its own."""
    kv = engine.kv
    if isinstance(kv, ContiguousKv):
        return sum(map(kv.size, ahead)) + kv.size(sequence) <= kv.largest_block_bytes
    taken = sum(kv.need(s, s.target) for s in ahead)
    return kv.need(sequence, sequence.prompt) + taken <= kv.free


def _wait_s(engine: "Engine") -> float:
    """Return how long the shortest of what runs still runs: no memory comes free before."""
    left = min((s.finish_at - engine.iteration for s in engine.running if s.state == DECODE),
               default=1)  # fmt: skip
    base, slope = engine.rates.decode(max(1, engine.decoding))
    context = engine.rel_sum + engine.decoding * engine.iteration
    return left * (base + slope * context) / FS_PER_S


def _run_s(engine: "Engine", sequence: Sequence, ahead: list[Sequence]) -> float:
    rates, n = engine.rates, max(1, sequence.output)
    under_way = max(0, engine.due - engine.env.ns) / S if engine.chunks else 0.0
    prompts = sum(rates.mixed([s.target], [0], 0, 0) for s in (*ahead, sequence))
    batch, context = 1.0, sequence.prompt + n / 2
    for other in engine.running:
        left = other.finish_at - engine.iteration if other.state == DECODE else other.output
        shared = min(left, n) / n
        batch += shared
        held = other.rel + engine.iteration if other.state == DECODE else other.target
        context += shared * (held + min(left, n) / 2)
    for other in ahead:
        shared = min(other.output, n) / n
        batch += shared
        context += shared * other.target
    base, slope = rates.decode(max(1, round(batch)))
    return under_way + (prompts + (n - 1) * (base + slope * context)) / FS_PER_S
