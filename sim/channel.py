"""Signals on their way from the fleet to the graph: when they are taken, and when they arrive."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from dispatch import keyed
from dispatch.graph import SIGNALS, Staleness
from sim.config import TelemetryConfig


@dataclass(slots=True)
class Channel:
    """One signal on its way from the fleet to the graph."""

    name: str
    interval_ns: int
    delay_ns: int
    window_ns: int
    loss: float
    key: int
    tick: int = 0
    due_ns: int = 0  # when the next tick has arrived
    changed: dict[int, None] = field(default_factory=dict)
    """Devices whose value may differ from the one delivered."""

    def last_tick(self, now: int) -> int:
        """Return the number of the last tick whose samples are there at *now*."""
        return (now - self.delay_ns) // self.interval_ns


def channels(config: TelemetryConfig, names: Iterable[str], seed: int) -> list[Channel]:
    """Return a channel for each of *names*, with the section's values where it has none."""
    found = []
    for name in sorted(names):
        own = config.signals.get(name)  # type: ignore[call-overload]
        value = {
            key: getattr(config, key) if own is None or getattr(own, key) is None
            else getattr(own, key)
            for key in ("interval_ms", "delay_ms", "window_ms", "loss_ratio")
        }  # fmt: skip
        found.append(
            Channel(
                name,
                max(1, round(value["interval_ms"] * 1e6)),
                round(value["delay_ms"] * 1e6),
                round(value["window_ms"] * 1e6),
                value["loss_ratio"],
                keyed.stream(seed, f"telemetry {name}"),
            )
        )
    return found


def staleness(config: TelemetryConfig) -> dict[str, Staleness] | None:
    """Return the rule for old samples by signal; None where the last one known holds anyway."""
    if config.on_stale == "last_known":
        return None
    rules = {}
    for name in SIGNALS[:-1]:  # health has no value that could be saturated
        own = config.signals.get(name)
        interval_ms, delay_ms = config.interval_ms, config.delay_ms
        if own is not None:
            interval_ms = interval_ms if own.interval_ms is None else own.interval_ms
            delay_ms = delay_ms if own.delay_ms is None else own.delay_ms
        refresh_s = (interval_ms + delay_ms) * 1e-3
        rules[name] = Staleness(config.stale_after_s, config.on_stale, refresh_s)
    return rules
