"""Why a request failed, from what was true at that moment: nothing is guessed afterwards."""

from typing import TYPE_CHECKING

from dispatch.outcomes import RootCause
from sim.call import Call
from sim.engine import Engine
from sim.memory import ContiguousKv
from sim.sequence import GONE, WAITING, Sequence

if TYPE_CHECKING:
    from sim.fleet import Replica
    from sim.world import World


def fitting_device(world: "World", call: Call, failed: int) -> int:
    """Return a healthy replica that could hold *call* now, the roomiest; -1 where there is none."""
    request = call.request
    best, best_room = -1, -1.0
    for replica in world.replicas:
        engine = replica.engine
        if replica.index == failed or engine.down:
            continue
        info = world.graph.devices[replica.index]
        if request.model and info.model and info.model != request.model:
            continue
        room = engine.kv.largest_block_bytes
        if room > best_room and room >= info.need_bytes(request):
            best, best_room = replica.index, room
    return best


def of_memory(world: "World", call: Call, engine: Engine, sequence: Sequence) -> RootCause:
    """Return why memory killed *call*; sets its fitting device."""
    call.fitting = fitting_device(world, call, engine.index)
    if call.fitting >= 0:
        return RootCause.memory_misjudged
    kv = engine.kv
    if isinstance(kv, ContiguousKv) and kv.size(sequence) <= kv.free_bytes:
        return RootCause.fragmentation
    return RootCause.fleet_full


def of_timeout(world: "World", call: Call, now: int) -> RootCause:
    """Return why *call* has no success yet at *now*: what took most of its time.

    A request that failed before takes the cause of its first failed attempt.
    """
    if call.cause != RootCause.none:
        return call.cause
    total = now - call.arrival_ns
    if call.wasted_ns * 2 > total:
        return RootCause.retry_storm
    if call.held:
        return RootCause.fleet_full
    sequence = call.sequence
    if sequence is None:
        return RootCause.pcie if call.handed else RootCause.router
    if sequence.state == GONE and call.slow_client > 1.0:
        return RootCause.client  # all tokens are out, and not read
    if call.wait_ns + call.service_ns > total // 2:
        return RootCause.router
    replica = world.replicas[call.device]
    if sequence.state == WAITING and sequence.preemptions == 0:
        return RootCause.queue
    if call.started_ns - call.handled_ns > total // 2:
        return RootCause.queue
    return of_service(world, replica, call, now)


def of_service(world: "World", replica: "Replica", call: Call, now: int) -> RootCause:
    """Return why the run of *call* on *replica* took too long.

    A link is to blame where it was slow for most of the run and made iterations longer by more
    than a tenth; a replica that was slow in all is a fault; else it is the load.
    """
    middle = (call.started_ns + now) // 2
    factor = max(world.links.ring_factor(replica, t) for t in (middle, now))
    if factor > 1.0:
        share = replica.collective_ratio(factor)
        if share * (1.0 - 1.0 / factor) > 0.1:
            return RootCause.slow_ring
    if replica.slow:
        return RootCause.fault
    return RootCause.queue
