"""How a request ends, and why it failed: two closed enumerations, defined once for both worlds."""

from enum import IntEnum


class Outcome(IntEnum):
    """The end of a request; offered requests = the sum over all members."""

    in_flight = 0
    finished = 1
    oom = 2
    timed_out = 3
    rejected = 4
    rejected_context = 5
    failed = 6
    cancelled = 7


class RootCause(IntEnum):
    """Why a request failed, from evidence in the journal."""

    none = 0
    memory_misjudged = 1  # it died of memory, and a device that could have held it was there
    fragmentation = 2  # free bytes sufficed, the largest block did not
    fleet_full = 3  # no device of the fleet could have held it
    queue = 4  # it waited too long before an engine took it up
    slow_ring = 5  # a degraded collective stretched it past its deadline
    pcie = 6  # a congested host link stretched it past its deadline
    router = 7  # the legacy door itself was the bottleneck or lost it
    retry_storm = 8  # most of its time went into attempts that were thrown away
    fault = 9  # an injected or real device fault
    context = 10  # prompt beyond the model's context
    client = 11  # the client left


class Reason(IntEnum):
    """Why the dispatcher decided as it did."""

    placed = 0
    held = 1  # nothing fits now; waits for capacity
    queue_full = 2
    no_device = 3  # nothing healthy serves this model
    no_weight = 4  # all eligible weights are zero
    too_large = 5  # no device could ever hold it
    deadline = 6  # expired while held
    slo = 7  # the policy predicts a missed SLO
    unknown_hint = 8
    context = 9
