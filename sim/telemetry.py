"""Telemetry of the fleet, evaluated only when a policy looks: at the last tick that has arrived.

Every signal has its interval, delay, window and loss. A tick is a moment k x interval; its samples
arrive *delay* later. Between two looks nothing is computed; at a look the state at the last tick
due is worked out from what each engine noted of its past, for the devices that have changed.
"""

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from dispatch import keyed
from sim.channel import Channel, channels
from sim.clock import S
from sim.config import TelemetryConfig
from sim.memory import PagedKv
from sim.watch import Watch, free_blocks

if TYPE_CHECKING:
    from sim.world import World

_MANY: Final = 16  # from this many changed devices on, one bulk call is cheaper
_FOLLOWED: Final = ("memory", "kv", "queue")  # signals that follow the engine's own state


class Telemetry:
    """Brings the graph up to date when it is asked (:class:`dispatch.graph.TelemetrySource`)."""

    def __init__(self, world: "World", config: TelemetryConfig) -> None:
        self.world = world
        self.graph = world.graph
        wanted = set(world.policy.signals)
        if world.router is None:
            wanted.add("health")  # every dispatcher sees a connection refused; the layer's own
            # view of its peers comes from the failures it meets
        self.channels = channels(config, wanted, world.seed)
        self.followed = [c for c in self.channels if c.name in _FOLLOWED]
        self.looks = self.deliveries = 0
        self.watches: list[Watch] = []
        self.due_ns = 0
        self.outages: dict[int, list[tuple[int, int]]] = {}
        """By device the spans of time whose samples do not arrive."""
        self._sets: dict[frozenset[str], list[Channel]] = {}
        self._all = np.arange(self.graph.count)
        self._paged = world.setup.engine.kv == "paged"
        self._blocks = [e.kv.blocks if isinstance(e.kv, PagedKv) else 1 for e in world.engines]
        self._deliver: dict[str, Callable[[Channel, int], None]] = {
            "memory": self._memory, "kv": self._kv, "queue": self._queue,
            "ring": self._ring, "pcie": self._pcie, "health": self._health,
        }  # fmt: skip
        self._by_arena = not self._paged or world.setup.engine.allocator == "caching"
        if not self._by_arena:  # what is beside the pool changes by leaks alone
            self.followed = [c for c in self.followed if c.name != "memory"]
        if not self._paged:
            self.channels = [c for c in self.channels if c.name != "kv"]
            self.followed = [c for c in self.followed if c.name != "kv"]
        self.keep_ns = max(
            (c.delay_ns + c.window_ns + c.interval_ns * _reach(c.loss) for c in self.followed),
            default=0,
        )

    def prime(self) -> None:
        """Sweep the fleet once at the start, before any request."""
        for channel in self.channels:
            channel.changed = dict.fromkeys(range(self.graph.count))
            loss, channel.loss = channel.loss, 0.0
            self._deliver[channel.name](channel, 0)
            channel.loss = loss
            channel.due_ns = channel.interval_ns + channel.delay_ns

    def refresh(self, now_s: float, signals: frozenset[str]) -> None:
        """Deliver what has arrived by now of the named *signals*."""
        now = self.world.env.ns
        if now < self.due_ns:
            return
        self.looks += 1
        least = now + S
        for channel in self.channels:
            if now >= channel.due_ns:
                channel.tick = tick = (now - channel.delay_ns) // channel.interval_ns
                channel.due_ns = (tick + 1) * channel.interval_ns + channel.delay_ns
                at = tick * channel.interval_ns
                if channel.changed or channel.name == "pcie":  # which may change by itself
                    self._deliver[channel.name](channel, at)
                elif channel.name != "health":  # which has no times to confirm
                    self._confirm(channel, at)
                self.deliveries += 1
            if channel.due_ns < least:
                least = channel.due_ns
        self.due_ns = least

    def next_ns(self) -> int:
        """Return when new samples arrive next."""
        now = self.world.env.ns
        due = [c.due_ns for c in self.channels if c.due_ns > now]
        return min(due, default=now + S)

    def note(self, device: int, *names: str) -> None:
        """Note that the named signals of *device* have changed by other than its engine's work."""
        for channel in self.channels:
            if channel.name in names:
                channel.changed[device] = None

    def note_all(self, devices: Iterable[int]) -> None:
        """Have every signal of *devices* told anew."""
        for channel in self.channels:
            channel.changed.update(dict.fromkeys(devices))

    def cut_off(self, device: int, start_ns: int, end_ns: int) -> None:
        """Let no sample of *device* taken in that span arrive."""
        self.outages.setdefault(device, []).append((start_ns, end_ns))

    def _cut_off(self, device: int, when: int) -> bool:
        return any(start <= when < end for start, end in self.outages[device])

    def _lost(self, channel: Channel, device: int, when: int) -> bool:
        if device in self.outages and self._cut_off(device, when):
            return True
        if not channel.loss:
            return False
        tick = when // channel.interval_ns
        return keyed.uniform(channel.key, device, tick) < channel.loss

    def _arrived(self, channel: Channel, when: int) -> list[tuple[int, int]]:
        """Return (device, tick time) of changed devices whose sample arrived, the latest each."""
        if not channel.loss and not self.outages:
            return [(device, when) for device in channel.changed]
        found = []
        for device in channel.changed:
            at, oldest = when, when - channel.interval_ns * (_reach(channel.loss) - 1)
            while at >= max(0, oldest) and self._lost(channel, device, at):
                at -= channel.interval_ns
            if at >= max(0, oldest) and at / S > self._source(channel, device):
                found.append((device, at))
        return found

    def _source(self, channel: Channel, device: int) -> float:
        if channel.name == "health":
            return -1.0
        return float(self.graph.signals[channel.name].source[device])

    def _confirm(self, channel: Channel, when: int) -> None:
        """Stamp what has not changed: the same values were sampled again at *when*."""
        source = self.graph.signals[channel.name].source_s
        at = when / S
        if not channel.loss and not self.outages:
            source.fill(at)
            return
        ids = self._all * (1 << 20) + when // channel.interval_ns
        arrived = keyed.uniforms(channel.key ^ 1, ids) >= channel.loss
        for device in self.outages:
            if self._cut_off(device, when):
                arrived[device] = False
        arrived[list(channel.changed)] = False
        source[arrived] = np.maximum(source[arrived], at)

    def _memory(self, channel: Channel, when: int) -> None:
        arrived = self._arrived(channel, when)
        if not self._by_arena:
            for device, at in arrived:
                segments = self.world.engines[device].segments
                assert segments is not None
                left = segments.left_at(at)
                self.graph.observe_memory(device, left, left, at / S)
                if at == when and segments.settled(when):
                    del channel.changed[device]
            self._confirm(channel, when)
            return
        free_at = 5 if self._paged else 3
        rows = []
        for device, at in arrived:
            state = self.watches[device].at(at)
            rows.append((device, at, state[free_at], state[free_at + 1]))
        if len(rows) >= _MANY:
            devices, times, free, block = (np.array(c) for c in zip(*rows, strict=True))
            self.graph.observe_many("memory", devices, (free, block), times / S)
        else:
            for device, at, free, block in rows:
                self.graph.observe_memory(device, free, block, at / S)
        self._settled(channel, when, arrived)
        self._confirm(channel, when)

    def _settled(self, channel: Channel, when: int, arrived: list[tuple[int, int]]) -> None:
        """Forget the changed devices whose delivered value is still the true one."""
        watches = self.watches
        for device, at in arrived:
            if at == when and watches[device].trail[-1][0] <= when:
                del channel.changed[device]

    def _kv(self, channel: Channel, when: int) -> None:
        watches, blocks, changed = self.watches, self._blocks, channel.changed
        found: dict[int, int] | None = None  # tick times by device, where some do not arrive
        if channel.loss or self.outages:
            found = dict(self._arrived(channel, when))
        at, now_s = when, when / S
        rows: list[tuple[int, float, float, float]] = []
        for device in list(changed if found is None else found):
            if found is not None:
                at = found[device]
            watch = watches[device]
            state = watch.trail[-1]
            if state[0] > at:
                state = watch.at(at)
            elif state[4] is None and at == when:
                del changed[device]
            free = state[3] if state[4] is None else free_blocks(state, at)
            if free < 0:
                free = 0
            source_s = now_s if at == when else at / S
            rows.append((device, 1.0 - free / blocks[device], free, source_s))
        if len(rows) < _MANY:
            self.graph.observe_kv_of(rows)
        else:
            devices, usage, free_, times = (np.array(c) for c in zip(*rows, strict=True))
            self.graph.observe_many("kv", devices, (usage, free_), times)
        self._confirm(channel, when)

    def _queue(self, channel: Channel, when: int) -> None:
        arrived = self._arrived(channel, when)
        window = channel.window_ns if self._averages(channel) else 0
        rows = []
        for device, at in arrived:
            watch = self.watches[device]
            waiting, running = watch.mean_queue(at, window) if window else watch.at(at)[1:3]
            rows.append((device, at, waiting, running))
        if len(rows) >= _MANY:
            devices, times, waits, runs = (np.array(c) for c in zip(*rows, strict=True))
            self.graph.observe_many("queue", devices, (waits, runs), times / S)
        else:
            for device, at, waiting, running in rows:
                self.graph.observe_queue(device, waiting, running, at / S)
        self._settled(channel, when - window, arrived)
        self._confirm(channel, when)

    def _averages(self, channel: Channel) -> bool:
        own = self.world.setup.telemetry.signals.get(channel.name)  # type: ignore[call-overload]
        return own is not None and bool(own.window_ms)

    def _ring(self, channel: Channel, when: int) -> None:
        for device, at in self._arrived(channel, when):
            replica = self.world.replicas[device]
            self.graph.observe_ring(device, self.world.links.ring_s(replica, at), at / S)
            if at == when:
                self.world.links.settled(channel, replica, when)
        self._confirm(channel, when)

    def _pcie(self, channel: Channel, when: int) -> None:
        links = self.world.links
        for device in links.lively(when, channel.window_ns + 2 * channel.interval_ns):
            channel.changed[device] = None
        if not channel.changed:
            self._confirm(channel, when)
            return
        arrived = self._arrived(channel, when)
        for device, at in arrived:
            replica = self.world.replicas[device]
            ratio = links.pcie_ratio(replica, at, channel.window_ns)
            self.graph.observe_pcie(device, ratio, at / S)
        for device, at in arrived:
            if at == when:
                del channel.changed[device]  # while it is lively, it comes again
        self._confirm(channel, when)

    def _health(self, channel: Channel, when: int) -> None:
        for device, at in self._arrived(channel, when):
            replica = self.world.replicas[device]
            self.graph.set_health(device, replica.was_up(at), at / S)
            if at == when and replica.health[-1][0] <= when:
                del channel.changed[device]


def _reach(loss: float) -> int:
    """Return how many ticks to look back so that one in a million finds no sample."""
    return 2 if not loss else 2 + math.ceil(math.log(1e-6) / math.log(min(loss, 0.99)))
