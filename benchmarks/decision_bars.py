"""The bars of a dispatch decision: ``python benchmarks/decision_bars.py [--seconds S]``.

Prints each figure beside its bar, for one class of devices and for a mixed fleet of which every
other device needs half the KV bytes; exits 1 where a bar of the first is missed. Run it on a quiet
machine: the raw tail is that of whatever else runs.
"""

import argparse
import sys

from zerolayer import decision_bars, decisions


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row, about")
    seconds = parser.parse_args().seconds
    sizes = list(decision_bars.P50_BARS_US)
    rows = [decisions.measure("topology", size, seconds) for size in sizes]
    found = decision_bars.bars(rows, decisions.sampling_ratio(1000))
    print(*found, sep="\n")
    for size in sizes:
        row = decisions.measure("topology", size, seconds, mixed=True)
        print(f"mixed fleet of {size} devices: p50 {row.p50_us:.1f} us, p99 {row.p99_us:.1f} us")
    print(f"measured on {decisions.machine()}")
    return 0 if all(bar.holds for bar in found) else 1


if __name__ == "__main__":
    sys.exit(main())
