"""Checks and reports on dispatchers: do the books balance, and who was left out and why."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dispatch.errors import InvariantError

if TYPE_CHECKING:
    from dispatch.dispatcher import Dispatcher
    from dispatch.graph import TopologyGraph


def check_books(dispatchers: Sequence["Dispatcher"]) -> None:
    """Check the books of all dispatchers of one graph together; raise InvariantError."""
    graph = dispatchers[0].graph
    n = [0] * graph.count
    reserved = [0.0] * graph.count
    wrong = []
    for d in dispatchers:
        c = d.counts
        ended = c.finished + c.failed + c.cancelled
        if c.placed != ended + len(d.flights):
            wrong.append(f"placed {c.placed}, but {ended} ended and {len(d.flights)} in flight")
        if c.submitted != c.placed + c.rejected + c.expired + c.left + len(d.held):
            wrong.append(f"submitted does not add up: {c}, held {len(d.held)}")
        for flight in d.flights.values():
            if flight.generation == graph.generation[flight.device]:
                n[flight.device] += 1
                reserved[flight.device] += flight.reserved_bytes
    if n != graph.n.tolist():
        wrong.append(f"in flight per device {n}, booked {graph.n.tolist()}")
    for i, (ours, booked) in enumerate(zip(reserved, graph.reserved.tolist(), strict=True)):
        if not math.isclose(ours, booked, rel_tol=1e-9, abs_tol=1.0):
            wrong.append(f"device {i}: reservations of {ours} B, booked {booked} B")
    columns = (graph.n, graph.prompt_tokens, graph.output_tokens, graph.prefill_tokens)
    if any((column < 0).any() for column in columns):
        wrong.append("a load below zero")
    if wrong:
        raise InvariantError("; ".join(wrong))


@dataclass(frozen=True, slots=True)
class DeviceReport:
    """What one device got: ``note`` says why it got nothing, or is empty."""

    device: int
    name: str
    placed: int
    note: str


def traffic(graph: "TopologyGraph") -> list[DeviceReport]:
    """Return every device with its placements, and the reason where there were none."""
    reports = []
    for device, info in enumerate(graph.devices):
        placed = int(graph.placed[device])
        note = "" if placed else _why_none(graph, device)
        reports.append(DeviceReport(device, info.name, placed, note))
    return reports


def _why_none(graph: "TopologyGraph", device: int) -> str:
    if not graph.present(device):
        return "removed"
    if not graph.up[device]:
        return "never eligible: down"
    if graph.weight[device] == 0:
        return "never eligible: weight 0"
    if graph.ejected[device]:
        return "ejected for its failures"
    asked = graph.asked()
    info = graph.devices[device]
    if asked and not any(device in graph.eligible(*key).devices for key in asked):
        wanted = ", ".join(sorted({"/".join(filter(None, key)) or "any" for key in asked}))
        return f"never eligible: serves {info.model or 'any'}/{info.group}, asked for {wanted}"
    silent = [name for name in graph.signals if graph.status(device, name) == "unknown"]
    if "memory" in silent:
        return "eligible, never preferred: its memory was never told"
    return "eligible, never preferred"


@dataclass(frozen=True, slots=True)
class Saturation:
    """How full a pool of unlike devices is: no single mean can tell."""

    mean: float
    weighted_mean: float
    saturated: tuple[str, ...]


def saturation(loads: Mapping[str, float], capacities: Mapping[str, float]) -> Saturation:
    """Return plain mean, mean by capacity, and the devices at 1 or above, by name."""
    total = sum(capacities[name] for name in loads)
    weighted = sum(load * capacities[name] for name, load in loads.items())
    return Saturation(
        sum(loads.values()) / len(loads) if loads else 0.0,
        weighted / total if total else 0.0,
        tuple(name for name, load in loads.items() if load >= 1.0),
    )


def unsupported(graph: "TopologyGraph") -> list[tuple[str, str, str]]:
    """Return (device, signal, status) of every signal that cannot be believed."""
    return [
        (info.name, name, status)
        for device, info in enumerate(graph.devices)
        for name in graph.signals
        if (status := graph.status(device, name)) in ("stale", "unsupported")
    ]
