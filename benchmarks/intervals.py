"""Are the report's intervals honest? A/A comparisons and planted effects, through its own code.

Each comparison has two arms of n replicates. A replicate is a fresh stretch of traffic (Poisson
arrivals, log-normal lengths of the Azure 2023 conversation trace) through one server of the given
load (Lindley's recursion), so that waiting carries over from request to request as in a fleet.

A/A: both arms alike on independent traffic; the 95 % interval of the ratio (or difference) should
cover "no change" in 90-98 % of comparisons. Planted: the candidate's log e2e is shifted by two
standard deviations of the paired difference; the interval should leave out zero in at least 90 %.

    python benchmarks/intervals.py [--comparisons 200] [--replicates 5] [--requests 2000]
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dispatch.keyed import generator
from dispatch.outcomes import Outcome
from reports import metrics as m
from reports.compare import ratio_at
from reports.intervals import Interval, rate_difference
from reports.latency import survivors_between
from reports.tables import Requests, Run

LOAD = 0.7
OOM_RATE = 0.02


def cell(arm: str, replicate: int, seed: int, requests: int, shift: float = 0.0) -> Requests:
    """Return one replicate of one arm: a queue at load 0.7 with 2 % OOM, service in seconds."""
    draw = generator(seed, f"{arm}-{replicate}")
    prompt = np.minimum(draw.lognormal(6.93, 1.0, requests), 4096).astype(np.int64) + 1
    output = np.minimum(draw.lognormal(4.86, 0.8, requests), 1024).astype(np.int64) + 2
    service = prompt * 2e-5 + output * 1e-3
    arrival = np.cumsum(draw.exponential(service.mean() / LOAD, requests))
    served = np.cumsum(service)
    # Lindley: end[i] = served[i] + max over j <= i of (arrival[j] - served[j - 1])
    end = served + np.maximum.accumulate(arrival - served + service)
    end = arrival + (end - arrival) * math.exp(shift)
    outcome = np.where(draw.random(requests) < OOM_RATE, Outcome.oom, Outcome.finished)
    columns: Mapping[str, Any] = {
        "request": np.arange(requests),
        "arrival_s": arrival,
        "end_s": end,
        "output_tokens": output,
        "outcome": outcome.astype(np.int8),
    }
    made = Requests(arm, replicate, columns, {})
    made.servable = np.ones(requests, np.bool_)
    return made


def comparison(seed: int, replicates: int, requests: int, shift: float = 0.0) -> Run:
    """Return one run of two arms on independent traffic, the candidate shifted by *shift*."""
    cells = {
        (arm, rep): cell(arm, rep, seed, requests, shift if arm == "b" else 0.0)
        for arm in "ab"
        for rep in range(replicates)
    }
    manifest = {"scenario": {"confidence": 0.95}}
    return Run(Path(), manifest, ("a", "b"), tuple(range(replicates)), cells)


def oom_points(run: Run) -> Interval:
    """Return the difference of the OOM rates, shifted so that no change is 1 as for ratios."""
    n = m.offered(run.of("a"))
    d = rate_difference(m.counts(run.of("b"), m.ooms), m.counts(run.of("a"), m.ooms), n)
    return Interval(1 + d.mean, 1 + d.low, 1 + d.high, d.n, d.sd)


STATISTICS: dict[str, Callable[[Run], Interval]] = {
    "e2e p50": lambda run: ratio_at(run, m.METRICS["e2e_s"], 50.0),
    "e2e p90": lambda run: ratio_at(run, m.METRICS["e2e_s"], 90.0),
    "mean e2e, finished in both": lambda run: survivors_between(run, "a", "b")[0],
    "OOM rate": oom_points,
}


def study(comparisons: int, replicates: int, requests: int, seed: int = 1) -> list[dict[str, Any]]:
    """Return one row per statistic: coverage of A/A, and how often 2 SD is found."""
    aa = [comparison(seed * 100_003 + i, replicates, requests) for i in range(comparisons)]
    rows = []
    for name, of in STATISTICS.items():
        found = [of(run) for run in aa]
        covers = sum(i.low <= 1.0 <= i.high for i in found) / comparisons
        row = {"metric": name, "load": LOAD, "n": replicates, "requests": requests}
        row |= {"comparisons": comparisons, "aa_covers": covers, "found_2sd": None}
        if name != "OOM rate":
            sd = math.sqrt(float(np.mean([i.sd**2 for i in found])))
            hits = 0
            for k in range(comparisons):
                run = comparison(seed * 900_001 + k, replicates, requests, shift=2 * sd)
                hits += of(run).low > 1.0
            row |= {"planted": math.exp(2 * sd) - 1, "found_2sd": hits / comparisons}
        rows.append(row)
    return rows


def main() -> int:
    """Print the table; exit 1 where an interval is not honest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--replicates", type=int, nargs="+", default=[5, 6])
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    a = parser.parse_args()
    rows = [row for n in a.replicates for row in study(a.comparisons, n, a.requests)]
    if a.json:
        print(json.dumps(rows, indent=1))
    for r in () if a.json else rows:
        planted = ""
        if r["found_2sd"] is not None:
            change, found = 100 * r["planted"], 100 * r["found_2sd"]
            planted = f"; +{change:.1f} % (2 SD) found in {found:.1f} %"
        place = f"{r['metric']:27} load {LOAD} n {r['n']} of {a.requests:,} requests:"
        print(f"{place} A/A covers no change in {100 * r['aa_covers']:.1f} %{planted}")
    covered = all(0.90 <= r["aa_covers"] <= 0.98 for r in rows)
    # Theory for normal differences: 90.9 % at n = 5, 97 % at n = 6. Skew costs a point or two.
    found = [r["found_2sd"] for r in rows if r["n"] >= 6 or r["metric"] == "e2e p50"]
    return 0 if covered and all(f is None or f >= 0.9 for f in found) else 1


if __name__ == "__main__":
    sys.exit(main())
