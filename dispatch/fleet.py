"""The devices of a fleet: who they are, who may serve what, who is up, in columns by index."""

import math
from collections.abc import Iterable, MutableSequence, Sequence
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from dispatch.device import DeviceInfo, Size
from dispatch.errors import InputError, Problem
from dispatch.request import Request

__all__ = [
    "Bools", "Cells", "DeviceInfo", "Eligible", "Fleet", "Floats", "Ints", "Size", "cells",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Cells = MutableSequence[float]
_T = TypeVar("_T", bound=np.generic)


def cells(column: Floats | Ints | Bools) -> Cells:
    """Return the same memory for access one by one, at half the cost of indexing the array."""
    return cast(Cells, memoryview(column.data))


class Eligible:
    """The devices that may take requests of one (model, group) class, until something changes."""

    __slots__ = (
        "_bytes_per_token",
        "_output_share",
        "_spare_tokens",
        "_workspace",
        "capacity_bytes",
        "cells",
        "count",
        "devices",
        "excluded",
        "index",
        "key",
        "mask",
        "outside",
        "set_id",
        "uniform",
        "unweighted",
    )

    def __init__(self, fleet: "Fleet", model: str, group: str) -> None:
        self.key = (model, group)
        served = fleet.serves(model, group)
        self.mask = served & fleet.usable
        self.cells = cells(self.mask)
        self.index = np.flatnonzero(self.mask)
        self.devices: tuple[int, ...] = tuple(self.index.tolist())
        self.count = len(self.devices)
        up = served & fleet.up
        self.unweighted = self.count == 0 and bool(up.any() and not fleet.weight[up].any())
        """All that are up have weight zero."""
        outside = ~self.mask & fleet.usable
        self.excluded: tuple[int, ...] = tuple(np.flatnonzero(outside).tolist())
        """Devices that other classes may use; those that nobody may use have no room anyway."""
        self.outside = np.where(outside, -np.inf, 0.0) if self.excluded else None
        self.capacity_bytes = float(fleet.capacity_bytes[self.index].max(initial=0.0))
        sizes = [column[self.index] for column in fleet.size_columns()]
        self.uniform = all((column == column[:1]).all() for column in sizes)
        """A request needs the same on every device."""
        first = [float(column[0]) if self.count else 0.0 for column in sizes]
        self._bytes_per_token, self._output_share, self._spare_tokens, self._workspace = first
        self.set_id = fleet.set_id(self.devices)

    def need_bytes(self, request: Request) -> float:
        """Return what *request* needs on any device of a uniform class."""
        later = request.max_tokens * self._output_share + self._spare_tokens
        return (request.prompt_tokens + later) * self._bytes_per_token + self._workspace

    def __len__(self) -> int:
        return self.count


class Fleet:
    """Devices 0..N-1, their health and weights, and the classes of requests they may serve."""

    count: int
    up: Bools  # present and healthy
    usable: Bools  # up, of a weight above zero, and not ejected
    all_usable: bool
    ejected: Bools  # out for its failures, for a while
    weight: Floats
    speed: Floats
    kv_bytes_per_token: Floats
    capacity_bytes: Floats
    output_share: Floats
    spare_tokens: Floats
    workspace: Floats
    model_code: Ints
    group_code: Ints
    generation: Ints

    def __init__(self, devices: Sequence[DeviceInfo]) -> None:
        self.devices: list[DeviceInfo] = []
        self._classes: dict[tuple[str, str], Eligible] = {}
        self._asked: set[tuple[str, str]] = set()
        self._sets: dict[tuple[int, ...], int] = {}
        self._codes: dict[str, int] = {"": 0}
        self._present: list[bool] = []
        self._sizes: list[Size] = []
        self._check(devices)
        self.devices.extend(devices)
        self._present = [True] * len(devices)
        self._allocate(len(devices))
        for i in range(len(devices)):
            self._describe(i)
        self.all_usable = bool(self.usable.all())

    def _check(self, devices: Iterable[DeviceInfo]) -> None:
        names = {d.name for i, d in enumerate(self.devices) if self._present[i]}
        problems = []
        for device in devices:
            problems += device.problems()
            if device.name in names:
                problems.append(
                    Problem(f"device {device.name}", "named twice", "give each its own name")
                )
            names.add(device.name)
        if problems:
            raise InputError(problems)

    def _allocate(self, count: int) -> None:
        """Give every column *count* rows, keeping what is there."""
        self.count = count
        self._sizes += [(0.0, 0, 0, 0.0)] * (count - len(self._sizes))
        self.up = self._column("up", np.bool_, False)
        self.usable = self._column("usable", np.bool_, False)
        self.ejected = self._column("ejected", np.bool_, False)
        self.weight = self._column("weight", np.float64, 0.0)
        self.speed = self._column("speed", np.float64, 1.0)
        self.kv_bytes_per_token = self._column("kv_bytes_per_token", np.float64, 0.0)
        self.capacity_bytes = self._column("capacity_bytes", np.float64, 0.0)
        self.output_share = self._column("output_share", np.float64, 0.0)
        self.spare_tokens = self._column("spare_tokens", np.float64, 0.0)
        self.workspace = self._column("workspace", np.float64, 0.0)
        self.model_code = self._column("model_code", np.int64, 0)
        self.group_code = self._column("group_code", np.int64, 0)
        self.generation = self._column("generation", np.int64, 0)

    def _column(self, name: str, dtype: type[_T], fill: float) -> NDArray[_T]:
        new = np.full(self.count, fill, dtype=dtype)
        old = getattr(self, name, None)
        if old is not None:
            new[: len(old)] = old
        return new

    def _describe(self, device: int) -> None:
        info = self.devices[device]
        self.up[device] = True
        self.weight[device] = info.weight
        self.ejected[device] = False
        self.usable[device] = info.weight > 0
        self.speed[device] = info.speed_tokens_per_s
        self.capacity_bytes[device] = info.capacity_bytes
        self._sizes[device] = info.size
        per_token, output_share, spare_tokens, workspace = info.size
        self.kv_bytes_per_token[device] = per_token
        self.output_share[device], self.spare_tokens[device] = output_share, spare_tokens
        self.workspace[device] = workspace
        self.model_code[device] = self._codes.setdefault(info.model, len(self._codes))
        self.group_code[device] = self._codes.setdefault(info.group, len(self._codes))

    def serves(self, model: str, group: str) -> Bools:
        """Return which devices serve *model* within *group*, whether up or not."""
        fits = np.ones(self.count, dtype=bool)
        if model:
            fits = (self.model_code == 0) | (self.model_code == self._codes.get(model, -1))
        if group:
            fits &= self.group_code == self._codes.get(group, -1)
        return fits

    def size_columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return what requests need as columns, in the order of :attr:`DeviceInfo.size`."""
        return self.kv_bytes_per_token, self.output_share, self.spare_tokens, self.workspace

    def need_bytes(self, request: Request, device: int) -> float:
        """Return what *request* needs on *device* before its first token."""
        per_token, output_share, spare_tokens, workspace = self._sizes[device]
        later = request.max_tokens * output_share + spare_tokens
        return (request.prompt_tokens + later) * per_token + workspace

    def need_column(self, request: Request, out: Floats) -> None:
        """Write into *out* what *request* needs on every device before its first token."""
        np.multiply(self.output_share, request.max_tokens, out=out)
        np.add(out, self.spare_tokens, out=out)
        np.add(out, request.prompt_tokens, out=out)
        np.multiply(out, self.kv_bytes_per_token, out=out)
        np.add(out, self.workspace, out=out)

    def eligible(self, model: str, group: str) -> Eligible:
        """Return the devices that may serve *model* within *group*; empty names mean any."""
        found = self._classes.get((model, group))
        if found is None:
            found = self._classes[model, group] = Eligible(self, model, group)
            self._asked.add((model, group))
        return found

    def set_id(self, devices: tuple[int, ...]) -> int:
        """Return a small number that stands for this set of devices."""
        return self._sets.setdefault(devices, len(self._sets))

    def set_weight(self, device: int, weight: float) -> None:
        """Change a static weight at run time; 0 drains the device."""
        if not 0 <= weight < math.inf:
            raise InputError.at(f"device {self.devices[device].name}", f"weight is {weight}")
        self.weight[device] = weight
        self._changed(device)

    def set_ejected(self, device: int, ejected: bool) -> None:
        """Take a device out for its failures, or let it back in."""
        self.ejected[device] = ejected
        self._changed(device)

    def _changed(self, device: int) -> None:
        """Forget what was derived from health and weights."""
        weighted = self.up[device] and self.weight[device] > 0
        self.usable[device] = weighted and not self.ejected[device]
        self.all_usable = bool(self.usable.all())
        self._classes.clear()

    def present(self, device: int) -> bool:
        """Whether *device* has not been removed."""
        return self._present[device]

    def asked(self) -> set[tuple[str, str]]:
        """Return the (model, group) classes that were asked for since the start."""
        return set(self._asked)

    def index_of(self, name: str) -> int:
        """Return the index of the device called *name*."""
        for i, device in enumerate(self.devices):
            if device.name == name and self._present[i]:
                return i
        raise InputError.at("fleet", f"no device is called {name!r}")
