"""Transfers over links that they share: max-min fair rates, worked out anew at every change.

A transfer crosses some links (a NIC at either end, a PCIe root, a node's NVLink ports). Progressive
filling gives every transfer the most that no slower one must pay for (Bertsekas and Gallager, Data
Networks, 6.5.2): no link carries more than its rate, and one that is a bottleneck is never idle.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from sim.clock import Alarm, Clock, S

Link = Hashable


class Transfer:
    """Bytes on their way over *links*; *done(value)* is called when the last has arrived."""

    __slots__ = ("done", "left", "links", "number", "rate", "value")

    def __init__(
        self, number: int, links: tuple[Link, ...], size: float, done: Callable[[Any], None],
        value: Any,
    ) -> None:  # fmt: skip
        self.number = number
        self.links = links
        self.left = size
        self.rate = 0.0
        self.done = done
        self.value = value


def fair_rates(paths: Sequence[tuple[Link, ...]], rates: dict[Link, float]) -> list[float]:
    """Return the max-min fair rate of each path over links of the given *rates*."""
    found = [0.0] * len(paths)
    users: dict[Link, dict[int, None]] = {}
    for i, path in enumerate(paths):
        for link in path:
            users.setdefault(link, {})[i] = None
    left = {link: rates[link] for link in users}
    while users:
        tight = min(users, key=lambda link: left[link] / len(users[link]))
        share = max(left[tight], 0.0) / len(users[tight])
        for i in list(users[tight]):
            found[i] = share
            for link in dict.fromkeys(paths[i]):
                users[link].pop(i)
                left[link] -= share
        users = {link: who for link, who in users.items() if who}
    return found


class Network:
    """Links by name, and the transfers under way."""

    def __init__(self, env: Clock) -> None:
        self.env = env
        self.rates: dict[Link, float] = {}
        self.factors: dict[Link, float] = {}
        self.transfers: list[Transfer] = []
        self.moved: dict[Link, tuple[list[int], list[float]]] = {}
        """By link: times at which its load changed, and bytes that it had carried by then."""
        self.alarm = Alarm(env, self._ring)
        self.at = 0
        self.due = -1
        self.numbers = 0

    def add(self, link: Link, bytes_per_s: float) -> None:
        """Add a link of *bytes_per_s*, or keep it where it is there already."""
        if link not in self.rates:
            self.rates[link] = bytes_per_s
            self.moved[link] = ([0], [0.0])

    def degrade(self, link: Link, factor: float) -> None:
        """Make *link* *factor* times slower than it was made, from now on."""
        self._advance()
        self.factors[link] = factor
        self._plan()

    def rate(self, link: Link) -> float:
        """Return the bytes per second that *link* can carry now."""
        return self.rates[link] / self.factors.get(link, 1.0)

    def send(
        self, links: Sequence[Link], size: float, done: Callable[[Any], None], value: Any = None
    ) -> Transfer:
        """Start to move *size* bytes over *links*; call *done(value)* at the end."""
        self._advance()
        transfer = Transfer(self.numbers, tuple(links), max(size, 0.0), done, value)
        self.numbers += 1
        self.transfers.append(transfer)
        self._plan()
        return transfer

    def stop(self, transfer: Transfer) -> None:
        """Give *transfer* up; what others share is theirs from now on."""
        if transfer in self.transfers:
            self._advance()
            self.transfers.remove(transfer)
            self._plan()

    def used_ratio(self, link: Link, when: int, window_ns: int) -> float:
        """Return the mean use of *link*, 0 to 1, over the *window_ns* that end at *when*."""
        start = max(0, when - window_ns)
        if link not in self.rates or when <= start:
            return 0.0
        moved = self._by(link, when) - self._by(link, start)
        return min(1.0, max(0.0, moved / (self.rates[link] * (when - start) / S)))

    def _by(self, link: Link, when: int) -> float:
        """Return the bytes that *link* had carried by *when*, a moment not after now."""
        times, moved = self.moved[link]
        at = bisect_left(times, when)
        if at < len(times):
            if at == 0 or times[at] == when:
                return moved[at]
            share = (when - times[at - 1]) / (times[at] - times[at - 1])
            return moved[at - 1] + share * (moved[at] - moved[at - 1])
        rate = sum(t.rate for t in self.transfers if link in t.links)
        return moved[-1] + rate * max(0, when - max(times[-1], self.at)) / S

    def _advance(self) -> None:
        """Move what is under way up to now."""
        now = self.env.ns
        span_s = (now - self.at) / S
        if span_s > 0:
            carried: dict[Link, float] = {}
            for transfer in self.transfers:
                went = min(transfer.left, transfer.rate * span_s)
                transfer.left -= went
                for link in transfer.links:
                    carried[link] = carried.get(link, 0.0) + went
            for link, went in carried.items():
                times, moved = self.moved[link]
                if times[-1] < self.at:  # nothing moved since
                    times.append(self.at)
                    moved.append(moved[-1])
                times.append(now)
                moved.append(moved[-1] + went)
        self.at = now

    def _plan(self) -> None:
        """Share the links anew, and be woken when the next transfer ends."""
        paths = [t.links for t in self.transfers]
        shares = fair_rates(paths, {link: self.rate(link) for path in paths for link in path})
        least = -1
        for transfer, share in zip(self.transfers, shares, strict=True):
            transfer.rate = share
            wait = math.ceil(transfer.left / share * S) if transfer.left > 0 else 0
            if least < 0 or wait < least:
                least = wait
        if least >= 0:
            self.due = self.env.ns + max(least, 1)
            self.env.ring(self.alarm, self.due)

    def _ring(self, _: Alarm) -> None:
        if self.env.ns != self.due or not self.transfers:
            return  # planned anew since
        self._advance()
        ended = [t for t in self.transfers if t.left <= t.rate / S]  # less than 1 ns of it
        self.transfers = [t for t in self.transfers if t not in ended]
        self._plan()
        for transfer in ended:
            transfer.done(transfer.value)
