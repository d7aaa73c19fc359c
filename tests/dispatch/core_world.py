"""A small world for tests of the core: devices, a clock that tests set, one dispatcher."""

from collections.abc import Mapping, Sequence
from typing import Any

from dispatch import registry
from dispatch.dispatcher import Dispatcher
from dispatch.graph import DeviceInfo, TopologyGraph
from dispatch.request import Request

GIB = float(1 << 30)


def device(name: str, **given: Any) -> DeviceInfo:
    """Return a device of 80 GiB with contiguous KV of 1 MiB a token, unless *given* otherwise."""
    base: dict[str, Any] = {
        "pool": "p",
        "gpu": "H100-80G",
        "total_bytes": 80 * GIB,
        "kv_bytes_per_token": GIB / 1024,
        "reserve_output": True,
    }
    return DeviceInfo(name, **{**base, **given})


def devices(count: int, weights: Sequence[float] = (), **given: Any) -> list[DeviceInfo]:
    """Return *count* devices called a, b, c …"""
    weights = weights or [1.0] * count
    return [device(chr(97 + i), weight=weights[i], **given) for i in range(count)]


class World:
    """A dispatcher over *fleet* under one policy; ``now`` is its clock."""

    def __init__(
        self,
        policy: str,
        fleet: Sequence[DeviceInfo] | int,
        params: Mapping[str, Any] | None = None,
        *,
        graph: TopologyGraph | None = None,
        seed: int = 7,
        **options: Any,
    ) -> None:
        fleet = devices(fleet) if isinstance(fleet, int) else fleet
        self.now = 0.0
        self.graph = graph or TopologyGraph(fleet)
        self.policy: Any = registry.policy(policy, params, seed=seed)
        self.dispatcher = Dispatcher(
            self.policy, self.graph, lambda: self.now, hold_limit=100, **options
        )
        self._next = 0

    def memory(self, *block_gib: float, source_s: float = 0.0) -> "World":
        """Sample every device's memory: free = largest block = the given GiB."""
        for i, gib in enumerate(block_gib):
            self.graph.observe_memory(i, gib * GIB, gib * GIB, source_s)
        return self

    def request(self, prompt: int = 100, output: int = 100, **given: Any) -> Request:
        """Return a new request."""
        self._next += 1
        return Request(self._next, self.now, prompt, output, **given)

    def place(self, prompt: int = 100, output: int = 100, **given: Any) -> int:
        """Submit a new request and return its device; -1 where it was not placed."""
        return self.dispatcher.submit(self.request(prompt, output, **given)).device

    @property
    def last(self) -> int:
        """Id of the last request."""
        return self._next

    def word(self, picks: int, *, finish: bool = True) -> str:
        """Place *picks* requests one after another and return the devices' names as a word."""
        word = ""
        for _ in range(picks):
            word += self.graph.devices[self.place()].name
            if finish:
                self.dispatcher.finished(self.last)
        return word

    def loads(self) -> list[int]:
        """Return n of every device."""
        return [int(n) for n in self.graph.n]
