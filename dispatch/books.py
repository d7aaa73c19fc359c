"""What the dispatchers of a graph have placed: requests in flight, tokens, reserved bytes."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from dispatch.device import DeviceInfo
from dispatch.fleet import Cells, Eligible, Fleet, Floats, Ints, cells
from dispatch.ranks import Ranks
from dispatch.request import Request

UNKNOWN: Final = -1.0  # room of a device whose memory nobody has told us
NOWHERE: Final = -math.inf  # room of a device that may not be used


class Flight:
    """One placed attempt: what it was charged, and what of that is still charged."""

    __slots__ = (
        "device", "generation", "output_tokens", "prefill_tokens", "prompt_tokens", "request",
        "reserved_bytes", "started_s", "streamed",
    )  # fmt: skip

    def __init__(
        self, request: Request, device: int, generation: int, reserved_bytes: float,
        prompt_tokens: int, output_tokens: int,
    ) -> None:  # fmt: skip
        self.request = request
        self.device = device
        self.generation = generation
        self.reserved_bytes = reserved_bytes  # not yet visible in a sample
        self.prefill_tokens = prompt_tokens  # uncached prompt, until its first token
        self.prompt_tokens = prompt_tokens  # the same, until its end
        self.output_tokens = output_tokens  # its max_tokens; 0 on a prefill replica
        self.started_s = math.inf
        self.streamed = False


class Books(Fleet):
    """The load that was assigned, per device; every dispatcher of a graph writes here."""

    n: Ints  # in flight
    prompt_tokens: Floats  # uncached prompt tokens of all in flight
    output_tokens: Floats  # max_tokens of all in flight
    prefill_tokens: Floats  # uncached prompt tokens of those without a first token
    reserved: Floats  # bytes placed that no sample shows yet
    room: Floats  # largest contiguous room: sample - reserved; UNKNOWN; NOWHERE
    placed: Ints  # placements since the start

    _n: Cells
    _prompt: Cells
    _output: Cells
    _prefill: Cells
    _reserved: Cells
    _room: Cells
    _base: Cells
    _placed: Cells
    _generation: Cells
    _usable: Cells

    def __init__(self, devices: Sequence[DeviceInfo], *, reservations: bool = True) -> None:
        self.reservations = reservations
        self._confirmed: list[deque[Flight]] = []
        self.hands_over: list[bool] = []
        self._waiting_sample: set[int] = set()
        self._ranks: dict[int, Ranks] = {}  # by set of devices, once asked for
        super().__init__(devices)

    def _allocate(self, count: int) -> None:
        super()._allocate(count)
        self.n = self._column("n", np.int64, 0)
        self.prompt_tokens = self._column("prompt_tokens", np.float64, 0.0)
        self.output_tokens = self._column("output_tokens", np.float64, 0.0)
        self.prefill_tokens = self._column("prefill_tokens", np.float64, 0.0)
        self.reserved = self._column("reserved", np.float64, 0.0)
        self.room = self._column("room", np.float64, UNKNOWN)
        self.base = self._column("base", np.float64, UNKNOWN)
        self.placed = self._column("placed", np.int64, 0)
        self._n = cells(self.n)
        self._prompt, self._output = cells(self.prompt_tokens), cells(self.output_tokens)
        self._prefill, self._reserved = cells(self.prefill_tokens), cells(self.reserved)
        self._room = self.room_cells = cells(self.room)
        self._base = cells(self.base)
        self._placed = cells(self.placed)
        self._generation = self.generation_cells = cells(self.generation)
        self._usable = cells(self.usable)
        self.hands_over += [False] * (count - len(self.hands_over))
        self._confirmed += [deque() for _ in range(count - len(self._confirmed))]

    def ranks(self, eligible: Eligible) -> Ranks:
        """Return the devices of a class in the order of their requests in flight."""
        ranks = self._ranks.get(eligible.set_id)
        if ranks is None:
            ranks = self._ranks[eligible.set_id] = Ranks(eligible.devices, self.n.tolist())
        return ranks

    def take(self, request: Request, device: int, need_bytes: float, cached_tokens: int) -> Flight:
        """Book *request* on *device* and hold *need_bytes* of its room; return the flight."""
        prefill = request.prompt_tokens - cached_tokens
        output = 0 if self.hands_over[device] else request.max_tokens
        need = need_bytes if self.reservations else 0.0
        flight = Flight(request, device, int(self._generation[device]), need, prefill, output)
        n = int(self._n[device]) + 1
        self._n[device] = n
        for ranks in self._ranks.values():
            ranks.move(device, n)
        self._placed[device] += 1
        self._prompt[device] += prefill
        self._output[device] += output
        self._prefill[device] += prefill
        if need:
            reserved = self._reserved[device] = self._reserved[device] + need
            if self._room[device] >= 0.0:
                room = self._base[device] - reserved
                self._room[device] = room if room > 0.0 else 0.0
        return flight

    def confirm(self, flight: Flight, now_s: float) -> None:
        """Note that the engine has allocated *flight*: a sample from now on shows it."""
        if flight.started_s != math.inf or flight.generation != self._generation[flight.device]:
            return
        flight.started_s = now_s
        if flight.reserved_bytes:
            device = flight.device
            line = self._confirmed[device]
            line.append(flight)
            self._waiting_sample.add(device)
            if len(line) > 64 and len(line) > 4 * self._n[device]:
                self._confirmed[device] = deque(f for f in line if f.reserved_bytes)

    def first_token(self, flight: Flight) -> None:
        """Take the prefill of *flight* off its device."""
        if flight.prefill_tokens and flight.generation == self._generation[flight.device]:
            self._prefill[flight.device] -= flight.prefill_tokens
        flight.prefill_tokens = 0
        flight.streamed = True

    def release(self, flight: Flight) -> bool:
        """Take *flight* off the books; False where its device has been re-created since."""
        device = flight.device
        if flight.generation != self._generation[device]:
            return False
        n = int(self._n[device]) - 1
        self._n[device] = n
        for ranks in self._ranks.values():
            ranks.move(device, n)
        self._prompt[device] -= flight.prompt_tokens
        self._output[device] -= flight.output_tokens
        if flight.prefill_tokens:
            self._prefill[device] -= flight.prefill_tokens
        if flight.reserved_bytes:
            left = self._reserved[device] - flight.reserved_bytes
            self._reserved[device] = left if n else 0.0  # no rounding is left over
            flight.reserved_bytes = 0.0
            self._settle(device)
        return True

    def _settle(self, device: int) -> None:
        """Work out the room of one device anew."""
        if not self._usable[device]:
            room = NOWHERE
        elif (base := self._base[device]) < 0:
            room = UNKNOWN
        else:
            room = base - self._reserved[device]
            if room < 0:
                room = 0.0
        self._room[device] = room

    def _settle_many(self, devices: Ints) -> None:
        """Work out the room of many devices anew."""
        base = self.base[devices]
        room = np.maximum(base - self.reserved[devices], 0.0)
        room[base < 0] = UNKNOWN
        room[~self.usable[devices]] = NOWHERE
        self.room[devices] = room

    def _retire(self, device: int, source_s: float) -> None:
        """Drop the reservations that a sample taken at *source_s* already shows."""
        line = self._confirmed[device]
        if not line:
            return
        while line and line[0].started_s <= source_s:
            flight = line.popleft()
            self._reserved[device] -= flight.reserved_bytes
            flight.reserved_bytes = 0.0
        if not line:
            self._waiting_sample.discard(device)

    def _forget(self, device: int) -> None:
        """Start the books of *device* afresh: what was in flight there belongs to the past."""
        self.generation[device] += 1
        columns = (self.n, self.prompt_tokens, self.output_tokens, self.prefill_tokens)
        for column in (*columns, self.reserved):
            column[device] = 0
        self.base[device] = UNKNOWN
        self._confirmed[device].clear()
        self._ranks.clear()
        self._waiting_sample.discard(device)
        self._settle(device)

    def _describe(self, device: int) -> None:
        super()._describe(device)
        self.hands_over[device] = self.devices[device].role == "prefill"
        self._settle(device)

    def _changed(self, device: int) -> None:
        super()._changed(device)
        self._ranks.clear()
        self._settle(device)
