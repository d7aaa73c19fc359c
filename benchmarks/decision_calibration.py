"""Measure decision times and write the calibration file that the simulated direct door reads.

    python benchmarks/decision_calibration.py [--out FILE] [--seconds S] [POLICY ...]

Figures are medians over the decisions of one replayed stream (choose, reserve, journal row, start
and release) on the machine it runs on; run it on a quiet one.
"""

import argparse
import datetime
import sys
from pathlib import Path

from dispatch import registry
from zerolayer import decisions

SIZES = (8, 64, 512, 4096)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*")
    parser.add_argument("--out", default="sim/calibration/decision.toml")
    parser.add_argument("--seconds", type=float, default=0.2)
    given = parser.parse_args()
    machine = decisions.machine()
    about = "; ".join(f"{key}: {value}" for key, value in machine.items())
    lines = [
        "# Written by benchmarks/decision_calibration.py: medians of real decisions, no estimate.",
        f'machine = "{about}"',
        'card = "none: the decision runs on the host"',
        f'date = "{datetime.date.today().isoformat()}"',
    ]
    for name in given.policies or registry.names():
        times = []
        for size in SIZES:
            row = decisions.measure(name, size, given.seconds)
            times.append(row.p50_us)
            print(f"{name} {size}: {row.p50_us:.1f} us", file=sys.stderr)
        lines += ["", f"[policy.{name}]", f"devices = {list(SIZES)}"]
        lines.append(f"us = [{', '.join(f'{t:.2f}' for t in times)}]")
    Path(given.out).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
