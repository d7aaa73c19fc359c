"""How often the gate cries wolf, and how often it catches what is slower, on this machine.

Run ``python benchmarks/gate_study.py`` (about an hour on 2 cores; ``--null 6 --slow 2`` for a
taste). Beside every gate run *--hogs* processes that burn CPU and memory. Bars: at most 1 false
alarm in 60 A/A gates; at least 95 % of each kind of slowness caught; a gate without hogs in at
most 10 s.
"""

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)  # not this folder: its sim.py is no package

from reports.gate.verdict import GateResult, Verdict  # noqa: E402
from scenarios.gate.gate import wall_clock  # noqa: E402
from scenarios.gate.pairs import Side  # noqa: E402

KINDS = {
    "ten": "+10 % everywhere",
    "tail": "+60 % on 2 % of decisions",
    "spike": "spikes that move",
    "none": "A/A",
}


def burn() -> None:
    """Spend CPU and memory bandwidth until ended."""
    block = bytearray(8 << 20)
    while True:
        block = bytearray(block)
        sum(range(20_000))


@contextmanager
def hogs(count: int) -> Iterator[None]:
    """Run *count* hogs beside what is in the block."""
    running = [multiprocessing.Process(target=burn, daemon=True) for _ in range(count)]
    for process in running:
        process.start()
    try:
        yield
    finally:
        for process in running:
            process.terminate()
            process.join()


def study(kind: str, gates: int) -> dict[str, Any]:
    """Run *gates* gates of one kind; return verdicts, estimates and seconds."""
    base = Side(ROOT, "topology")
    seconds, verdicts = [], Counter[str]()
    estimates: dict[str, list[float]] = {}
    for number in range(gates):
        began = time.monotonic()
        checks = wall_clock(base, replace(base, inject=kind), lambda text: None)
        seconds.append(time.monotonic() - began)
        verdicts[GateResult(checks).verdict.value] += 1
        for check in checks:
            estimates.setdefault(check.name, []).append(check.estimate)
        print(f"\r{KINDS[kind]}: {number + 1}/{gates} {dict(verdicts)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return {
        "gates": gates,
        "verdicts": dict(verdicts),
        "seconds_median": statistics.median(seconds),
        "seconds_max": max(seconds),
        "estimates": {name: [min(values), max(values)] for name, values in estimates.items()},
    }


def bars(found: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Return which bars hold."""
    said = Verdict.regression.value
    alarms = found["none"]["verdicts"].get(said, 0)
    held = {"at most 1 false alarm in 60": alarms <= max(1, found["none"]["gates"] // 60)}
    for kind in ("ten", "tail", "spike"):
        share = found[kind]["verdicts"].get(said, 0) / found[kind]["gates"]
        held[f"{KINDS[kind]}: at least 95 % caught"] = share >= 0.95
    held["a gate in at most 10 s without hogs"] = found["alone"]["seconds_median"] <= 10
    return held


def tell(name: str, one: dict[str, Any]) -> None:
    """Print what came of one kind, at once: the whole takes long."""
    spread = ", ".join(f"{n} {a:.3f}–{b:.3f}" for n, (a, b) in one["estimates"].items())
    print(f"{name}: {one['verdicts']}, {one['seconds_median']:.1f} s a gate; {spread}", flush=True)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--null", type=int, default=60, help="A/A gates")
    asked.add_argument("--slow", type=int, default=20, help="gates of each kind of slowness")
    asked.add_argument("--hogs", type=int, default=2, help="CPU hogs beside them")
    asked.add_argument("--json", type=Path, help="file for the figures")
    options = asked.parse_args()
    found = {"alone": study("none", 2)}
    tell("A/A, no hogs", found["alone"])
    with hogs(options.hogs):
        for kind, name in KINDS.items():
            found[kind] = study(kind, options.null if kind == "none" else options.slow)
            tell(name, found[kind])
    held = bars(found)
    for bar, holds in held.items():
        print(f"{'holds' if holds else 'MISSED'}: {bar}")
    if options.json:
        options.json.write_text(json.dumps({"found": found, "bars": held}, indent=2) + "\n")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
