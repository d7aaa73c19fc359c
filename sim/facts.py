"""What a run says of itself beside its journal."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Counts and conditions of one simulated run; offered = the sum of the outcomes, always."""

    offered: int
    outcomes: dict[str, int]
    causes: dict[str, int]
    attempts: int
    oom_events: int
    preemptions: int
    span_s: float
    """First arrival to last."""
    horizon_s: float
    """End of the run: last arrival + drain."""
    router_utilisation: float
    """Busy time of the door's servers / (servers x time up to the last arrival)."""
    door: dict[str, Any]
    arrivals_per_window: float
    """Mean arrivals in one sampling interval of the telemetry."""
    telemetry: dict[str, Any]
    devices: list[dict[str, Any]]
    idle_devices: tuple[str, ...]
    """Devices that were placed nothing in the whole run."""
    iterations: int
    """Engine iterations that the run stands for."""
    events: int
    """Events of the simulation."""
    extrapolated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return plain dictionaries, lists, strings and numbers."""
        return asdict(self)
