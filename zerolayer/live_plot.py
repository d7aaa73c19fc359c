"""The Q-Q plot of a validation: simulated against live, one panel a metric."""

from pathlib import Path
from typing import Any

import numpy as np


def draw(live: list[dict[str, Any]], simulated: dict[str, Any], folder: Path) -> Path:
    """Write ``qq.svg`` into *folder*: quantiles of the simulation over those of each live run."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "zerolayer", "svg.fonttype": "none"}):
        figure, panels = plt.subplots(1, len(simulated), figsize=(4 * len(simulated), 4))
        steps = np.linspace(0.02, 0.98, 49)
        for panel, (metric, times) in zip(np.atleast_1d(panels), simulated.items(), strict=True):
            modelled = np.quantile(times, steps) * 1e3
            for at, run in enumerate(live):
                seen = np.quantile(run[metric], steps) * 1e3
                panel.plot(seen, modelled, "o", markersize=3, label=f"live run {at + 1}")
            high = float(max(modelled.max(), seen.max()))
            panel.plot([0, high], [0, high], color="black", linewidth=0.8, label="equal")
            panel.set(xlabel=f"live {metric}, ms", ylabel=f"simulated {metric}, ms", title=metric)
        np.atleast_1d(panels)[0].legend(fontsize=8)
        figure.tight_layout()
        path = folder / "qq.svg"
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
    return path
