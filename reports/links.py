"""Late for a slow link: what the last decision saw of ring and PCIe, set beside the usual.

Only a policy that looks at links leaves such evidence in the journal; an arm that is blind to them
keeps the cause "service".
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from dispatch.outcomes import RootCause
from reports.tables import Floats, Requests, Run, read_columns

SLOW_RING: Final = 2.0  # times the device's own median ring latency
BUSY_PCIE: Final = 0.9

Seen = tuple[Floats, Floats]
"""Ring latency over its device's median, and PCIe use, of each request's last decision."""


def read(run: Run) -> dict[tuple[str, int], Seen]:
    """Return what every arm saw, rows as in the requests; empty without decisions."""
    path = run.folder / "decisions.parquet"
    if not path.is_file():
        return {}
    wanted = ["arm", "replicate", "request", "time_s", "device", "seen_ring_s", "seen_pcie_ratio"]
    raw = read_columns(path, wanted)
    codes, names = raw["arm"]
    found = {}
    for (arm, rep), cell in run.cells.items():
        code = names.index(arm) if arm in names else -2
        rows = np.flatnonzero((codes == code) & (raw["replicate"] == rep))
        ring, pcie = raw["seen_ring_s"][rows], raw["seen_pcie_ratio"][rows]
        if not (np.isfinite(ring).any() or np.isfinite(pcie).any()):
            continue
        ratio = _over_usual(ring, raw["device"][rows])
        order = np.lexsort((raw["time_s"][rows], raw["request"][rows]))
        ids = raw["request"][rows][order]
        last = np.flatnonzero(np.diff(ids, append=ids[-1:] + 1) != 0)
        slot = np.searchsorted(cell["request"], ids[last])
        known = slot < len(cell)
        known[known] = cell["request"][slot[known]] == ids[last][known]
        columns = []
        for values in (ratio, pcie):
            column = np.full(len(cell), np.nan)
            column[slot[known]] = values[order][last][known]
            columns.append(column)
        found[arm, rep] = (columns[0], columns[1])
    return found


def _over_usual(ring: Floats, device: NDArray[np.int32]) -> Floats:
    """Return ring latencies over the median of the same device; NaN where there is no ring."""
    ratio = np.full(len(ring), np.nan)
    real = np.flatnonzero(np.isfinite(ring) & (ring > 0) & (device >= 0))
    order = real[np.argsort(device[real], kind="stable")]
    edges = np.flatnonzero(np.diff(device[order])) + 1
    for part in np.split(order, edges):
        if len(part):
            ratio[part] = ring[part] / np.median(ring[part])
    return ratio


def refine(
    why: NDArray[np.int64], cell: Requests, seen: Seen | None, service: int
) -> NDArray[np.int64]:
    """Return *why* with late service told apart into slow ring and PCIe where the journal can."""
    if seen is None:
        return why
    slow = cell.finished & (why == service)
    refined = why.copy()
    refined[slow & (seen[1] >= BUSY_PCIE)] = RootCause.pcie
    refined[slow & (seen[0] >= SLOW_RING)] = RootCause.slow_ring
    return refined
