"""Which device probably holds which prefix block: the approximate index of a router.

Bounded: the least recently used block goes first, and every eviction is counted. A device that was
re-created has lost what its former life held.
"""

from collections import OrderedDict
from collections.abc import Sequence

from dispatch.graph import TopologyGraph
from dispatch.request import Request


class PrefixIndex:
    """Blocks by hash, each with the devices that were sent it; at most *capacity_blocks* blocks."""

    def __init__(self, capacity_blocks: int = 1_000_000) -> None:
        self.capacity_blocks = capacity_blocks
        self.evicted = 0
        self._owners: OrderedDict[int, dict[int, int]] = OrderedDict()
        self.held: dict[int, int] = {}
        """Blocks noted per device."""

    def __len__(self) -> int:
        return len(self._owners)

    def matched(self, request: Request, graph: TopologyGraph) -> dict[int, int]:
        """Return the prompt tokens that each device holds of the head of *request*."""
        found: dict[int, int] = {}
        lives = graph.generation_cells
        alive: Sequence[int] | None = None
        for depth, block in enumerate(request.block_hashes, start=1):
            owners = self._owners.get(block)
            if owners is None:
                break
            among = owners if alive is None else alive
            alive = [d for d in among if owners.get(d) == lives[d]]
            if not alive:
                break
            tokens = min(depth * request.block_tokens, request.prompt_tokens)
            for device in alive:
                found[device] = tokens
        return found

    def insert(self, request: Request, device: int, graph: TopologyGraph) -> None:
        """Note that *device* is sent the prompt of *request*."""
        generation = int(graph.generation[device])
        for block in request.block_hashes:
            owners = self._owners.get(block)
            if owners is None:
                owners = self._owners[block] = {}
            else:
                self._owners.move_to_end(block)
            if device not in owners:
                self.held[device] = self.held.get(device, 0) + 1
            owners[device] = generation
        while len(self._owners) > self.capacity_blocks:
            _, owners = self._owners.popitem(last=False)
            self.evicted += 1
            for owner in owners:
                self.held[owner] -= 1
