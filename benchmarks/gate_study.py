"""How often the gate cries wolf, and how often it catches what is slower, on this machine.

Run ``python benchmarks/gate_study.py`` (about 45 minutes on 2 cores; ``--null 6 --slow 2`` for a
taste). Beside every gate run *--hogs* processes that burn CPU and memory. Each gate is a line of
*--log* as it ends, and a study that was stopped goes on from there. Bars: at most 1 false alarm in
60 A/A gates; at least 95 % of each kind of slowness caught; a gate without hogs in at most 10 s.
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

NAMES = {
    "none": "A/A",
    "ten": "+10 % everywhere",
    "tail": "+60 % on 2 % of decisions",
    "spike": "spikes that move",
}
SLOW = ("ten", "tail", "spike")


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


def gate(kind: str) -> dict[str, Any]:
    """Run one gate of a kind; return its verdict, its estimates and its seconds."""
    base = Side(ROOT, "topology")
    began = time.monotonic()
    checks = wall_clock(base, replace(base, inject=kind), lambda text: None)
    return {
        "kind": kind,
        "verdict": GateResult(checks).verdict.value,
        "seconds": time.monotonic() - began,
        "estimates": {check.name: check.estimate for check in checks},
    }


def planned(null: int, slow: int) -> list[str]:
    """Return the kinds in the order they run: mixed, so that each meets every mood of a machine."""
    left = {"none": null, **dict.fromkeys(SLOW, slow)}
    order: list[str] = []
    while any(left.values()):
        most = max(left, key=left.__getitem__)
        left[most] -= 1
        order.append(most)
    return order


def run(order: list[str], log: Path) -> list[dict[str, Any]]:
    """Run what *log* does not hold yet, and write each gate there as it ends."""
    found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    to_do = Counter(order) - Counter(one["kind"] for one in found)
    for kind in order:
        if not to_do[kind]:
            continue
        to_do[kind] -= 1
        found.append(gate(kind))
        with log.open("a") as file:
            file.write(json.dumps(found[-1]) + "\n")
        print(f"{len(found)}/{len(order)} {NAMES[kind]}: {found[-1]['verdict']}", file=sys.stderr)
    return found


def tell(kind: str, gates: list[dict[str, Any]]) -> None:
    """Print what came of one kind."""
    verdicts = dict(Counter(one["verdict"] for one in gates))
    seconds = statistics.median(one["seconds"] for one in gates)
    spread = ", ".join(
        f"{name} {min(values):.3f}–{max(values):.3f}"
        for name in gates[0]["estimates"]
        for values in [[one["estimates"][name] for one in gates]]
    )
    print(f"{NAMES[kind]}: {len(gates)} gates, {verdicts}, {seconds:.1f} s a gate; {spread}")


def judge(by_kind: dict[str, list[dict[str, Any]]], alone: float) -> dict[str, bool]:
    """Return which bars hold."""
    said = Verdict.regression.value
    null = by_kind.get("none", [])
    alarms = sum(one["verdict"] == said for one in null)
    held = {f"at most 1 false alarm in 60 ({alarms} in {len(null)})": alarms <= len(null) / 60}
    for kind in SLOW:
        gates = by_kind.get(kind, [])
        caught = sum(one["verdict"] == said for one in gates)
        bar = f"{NAMES[kind]}: at least 95 % caught ({caught} of {len(gates)})"
        held[bar] = bool(gates) and caught >= 0.95 * len(gates)
    held[f"a gate in at most 10 s without hogs ({alone:.1f} s)"] = alone <= 10
    return held


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--null", type=int, default=60, help="A/A gates")
    asked.add_argument("--slow", type=int, default=20, help="gates of each kind of slowness")
    asked.add_argument("--hogs", type=int, default=2, help="CPU hogs beside them")
    asked.add_argument("--log", type=Path, default=Path("gate-study.jsonl"), help="one line a gate")
    options = asked.parse_args()
    alone = statistics.median(gate("none")["seconds"] for _ in range(3))
    with hogs(options.hogs):
        found = run(planned(options.null, options.slow), options.log)
    by_kind = {kind: [one for one in found if one["kind"] == kind] for kind in NAMES}
    for kind, gates in by_kind.items():
        if gates:
            tell(kind, gates)
    held = judge(by_kind, alone)
    for bar, holds in held.items():
        print(f"{'holds' if holds else 'MISSED'}: {bar}")
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
