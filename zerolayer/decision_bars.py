"""What a decision of the topology policy, and sampling, may cost."""

from dataclasses import dataclass

from zerolayer.decisions import Row

P50_BARS_US = {8: 12.0, 1000: 25.0, 10_000: 60.0}
"""What a decision of the topology policy may take, by number of devices."""
TAIL_BAR = 4.0  # p99 / p50
GROWTH_BAR_BYTES = 1024.0  # allocated beyond the smallest fleet measured; a column would be 8 N
SAMPLING_BAR = 0.02  # of a core, for 1,000 devices every 50 ms


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure beside what it may be at most."""

    what: str
    figure: float
    at_most: float

    @property
    def holds(self) -> bool:
        """Whether the figure is within its bar."""
        return self.figure <= self.at_most

    def __str__(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return f"{self.what}: {self.figure:.4g} (bar {self.at_most:g}): {verdict}"


def bars(rows: list[Row], sampling: dict[str, float]) -> list[Bar]:
    """Return the bars that *rows* of the topology policy, and the sampler, are held to."""
    found = []
    ours = [row for row in rows if row.policy == "topology"]
    for row in ours:
        if row.devices in P50_BARS_US:
            at = f"topology at {row.devices} devices"
            found.append(Bar(f"{at}, p50 us", row.p50_us, P50_BARS_US[row.devices]))
            found.append(Bar(f"{at}, p99 / p50", row.p99_us / row.p50_us, TAIL_BAR))
    if len(ours) > 1:
        least, most = (f(row.peak_bytes for row in ours) for f in (min, max))
        sizes = f"{min(r.devices for r in ours)} to {max(r.devices for r in ours)} devices"
        found.append(
            Bar(f"topology, growth of peak bytes, {sizes}", most - least, GROWTH_BAR_BYTES)
        )
    ratio = sampling["core_ratio"]
    found.append(Bar("sampling 1000 devices every 50 ms, share of a core", ratio, SAMPLING_BAR))
    return found
