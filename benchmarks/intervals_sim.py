"""The A/A study of benchmarks/intervals.py again, through the real simulator.

Both arms are the candidate of a bundled scenario; each replicate of each arm is a fresh generated
trace of the same statistics and another seed. Prints coverage of "no change" for each figure.
An effect of two standard deviations of the paired difference is planted by stretching the
candidate's latencies.

    python benchmarks/intervals_sim.py [--comparisons 200] [--replicates 5] [--requests 1000]
"""

import argparse
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from intervals import STATISTICS  # noqa: E402

import sim  # noqa: E402
from dispatch.journal import Journal  # noqa: E402
from reports.tables import Requests, Run  # noqa: E402
from scenarios import arms  # noqa: E402
from scenarios.load import load  # noqa: E402
from scenarios.summary import Collector  # noqa: E402
from traces import synth  # noqa: E402

EXCUSED = (5, 7)  # rejected_context, cancelled: counted apart


def replicate(scenario: Any, arm: str, number: int, seed: int, requests: int) -> Requests:
    """Return one replicate of an arm: the candidate on a fresh trace of *requests* rows."""
    setup = arms.setup(scenario, next(a for a in scenario.arms if a.name == scenario.candidate))
    trace = synth.generate("azure-2023-conv", {"duration_s": requests / 5.5}, seed)
    rows = Collector()
    journal = Journal(rows, arm, number)
    sim.replay(trace, setup, seed, journal)
    journal.close()
    columns = rows.table("requests")
    order = np.argsort(columns["request"])
    made = Requests(arm, number, {k: v[order] for k, v in columns.items()}, {})
    made.servable = ~np.isin(made["outcome"], EXCUSED)
    return made


def stretched(run: Run, shift: float) -> Run:
    """Return *run* with the candidate's latencies times exp(*shift*)."""
    cells = dict(run.cells)
    for rep in run.replicates:
        cell = run.cells["b", rep]
        columns = dict(cell.columns)
        late = (columns["end_s"] - columns["arrival_s"]) * math.exp(shift)
        columns["end_s"] = columns["arrival_s"] + late
        cells["b", rep] = Requests("b", rep, columns, {}, cell.servable)
    return Run(run.folder, run.manifest, run.arms, run.replicates, cells)


def main() -> int:
    """Print the table; exit 1 where coverage leaves 90-98 % or 2 SD are found too seldom."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--scenario", default="migration-2023q3")
    a = parser.parse_args()
    scenario = load(a.scenario, [])
    manifest = {"scenario": {"confidence": 0.95}}
    seed, runs = 1, []
    for _ in range(a.comparisons):
        cells = {}
        for arm in "ab":
            for number in range(a.replicates):
                seed += 1
                cells[arm, number] = replicate(scenario, arm, number, seed, a.requests)
        # Fresh traces differ in length; the shortest decides how many requests a pair keeps.
        least = min(len(c) for c in cells.values())
        for key, cell in cells.items():
            columns = {k: v[:least] for k, v in cell.columns.items()}
            columns["request"] = np.arange(least)
            cells[key] = Requests(cell.arm, cell.replicate, columns, {}, cell.servable[:least])
        runs.append(Run(Path(), manifest, ("a", "b"), tuple(range(a.replicates)), cells))
    honest = True
    for name, of in STATISTICS.items():
        found = [of(run) for run in runs]
        known = [i for i in found if i.known]
        covers = sum(i.low <= 1.0 <= i.high for i in known) / len(known)
        told = f"{name:27} A/A covers no change in {100 * covers:.1f} % of {len(known)}"
        honest &= covers >= 0.90
        if name != "OOM rate":
            sd = math.sqrt(float(np.mean([i.sd**2 for i in known])))
            hits = [of(stretched(run, 2 * sd)).low > 1.0 for run in runs]
            told += (
                f"; +{100 * math.expm1(2 * sd):.1f} % (2 SD) found in {100 * np.mean(hits):.1f} %"
            )
            honest &= 0.90 <= covers <= 0.98
        print(told, flush=True)
    return 0 if honest else 1


if __name__ == "__main__":
    sys.exit(main())
