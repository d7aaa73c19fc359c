"""Compiles the simulator's way of a request to machine code, beside the sources, and checks it.

    python -m zerolayer.compiled [--out build/compiled] [--rounds N] [--no-check]
    PYTHONPATH=build/compiled zerolayer bench sim

The modules are compiled as they stand, by mypyc, which comes with mypy (the ``dev`` extra); a C
compiler is needed. The packages are copied first, so that what is worked on stays interpreted, and
the copy does not follow it: compile anew after a change. The check runs fixed shapes in both and
compares every number of every table: they must be equal.
"""

import argparse
import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

_HELP = "Compile the simulator into a folder of its own, and check it against the sources."
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "dispatch", "kernels", "live", "reports", "scenarios", "sim", "traces", "zerolayer",
)  # fmt: skip
MODULES = (
    "dispatch/books", "dispatch/choice", "dispatch/decision", "dispatch/device",
    "dispatch/dispatcher", "dispatch/fleet", "dispatch/graph", "dispatch/journal", "dispatch/keyed",
    "dispatch/line", "dispatch/observed", "dispatch/policies/least_requests",
    "dispatch/policies/topology", "dispatch/ranks", "dispatch/record", "dispatch/request",
    "dispatch/signals", "sim/batch", "sim/call", "sim/channel", "sim/clock", "sim/doors",
    "sim/ends", "sim/engine", "sim/feed", "sim/memory", "sim/pace", "sim/prefixes", "sim/rates",
    "sim/recall", "sim/sequence", "sim/series", "sim/sharing", "sim/telemetry", "sim/watch",
    "sim/world",
)  # fmt: skip
_BUILD = """
import sys
from setuptools import setup
from mypyc.build import mypycify
flags = ["--follow-imports=silent", "--no-warn-unused-ignores"]
files = sys.argv[3:]
del sys.argv[3:]
setup(name="compiled", ext_modules=mypycify([*flags, *files], opt_level="3", debug_level="0"))
"""
_RUN = """
import hashlib, json, sys, time
import numpy as np
import sim.engine
from dispatch.journal import Journal
from sim import replay
from zerolayer import simulations as s

hour, crowd = s.hour(), list(s.at_rate(700.0, 60.0))

def once(shape, trace, digest=None):
    def sink(table, columns):
        for name in columns if digest else ():
            values = np.asarray(columns[name])
            digest.update(repr(values.tolist()).encode() if values.dtype == object
                          else np.ascontiguousarray(values).tobytes())
    journal = Journal(sink)
    began = time.process_time()
    offered = iter(trace) if isinstance(trace, list) else trace
    facts = replay(offered, s.setup(shape.replicas, shape.policy), 0, journal)
    journal.close()
    return facts.offered / (time.process_time() - began)

rows = []
for shape, trace in ((s.HOUR_ON_8_LEAST, hour), (s.HOUR_ON_8, hour), (s.FLEET_OF_1000, crowd)):
    digest = hashlib.sha256()
    once(shape, trace, digest)
    best = max(once(shape, trace) for _ in range(int(sys.argv[1])))
    rows.append([shape.name, shape.policy, best, shape.bar_per_s, digest.hexdigest()])
print(json.dumps([sim.engine.__file__, s.loop_ns(), rows]))
"""


def build(out: Path) -> None:
    """Copy the packages to *out* and compile the modules there."""
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        _stop("no C compiler (cc or gcc) is on the PATH; without one the sources run as they are")
    missing = [name for name in ("mypyc", "setuptools") if find_spec(name) is None]
    if missing:
        _stop(f"not installed: {', '.join(missing)}; pip install setuptools -e '.[dev]'")
    if out.exists():
        shutil.rmtree(out)
    out.mkdir(parents=True)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, out / name, ignore=shutil.ignore_patterns("__pycache__"))
    if (ROOT / "pyproject.toml").is_file():  # how mypy is to read the sources; an install has none
        shutil.copy(ROOT / "pyproject.toml", out)
    files = [f"{module}.py" for module in MODULES]
    command = [sys.executable, "-c", _BUILD, "build_ext", "--inplace", *files]
    done = subprocess.run(command, cwd=out, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).splitlines()
        told = [line for line in lines if "error:" in line or "Error:" in line]
        _stop("\n".join(["mypyc did not compile the sources:", *told[:5]]))
    shutil.rmtree(out / "build", ignore_errors=True)


def measured(
    tree: Path, rounds: int
) -> tuple[str, float, list[tuple[str, str, float, float, str]]]:
    """Return where the engine of *tree* came from, the bare loop's ns, and a row a shape."""
    command = [sys.executable, "-c", _RUN, str(rounds)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    if done.returncode:
        _stop(f"a run in {tree} failed: {done.stderr.strip().splitlines()[-1]}")
    engine, loop, rows = json.loads(done.stdout.splitlines()[-1])
    return engine, loop, [tuple(row) for row in rows]


def check(out: Path, rounds: int) -> bool:
    """Print both speeds of every shape with its bar; return whether all numbers are equal."""
    engine, loop, ours = measured(out, rounds)
    if engine.endswith(".py"):
        _stop(f"{out} holds no compiled engine")
    _, plain_loop, plain = measured(ROOT, rounds)
    equal = True
    for (name, policy, fast, bar, digest), (*_, slow, _, same) in zip(ours, plain, strict=True):
        equal = equal and digest == same
        print(
            f"{name}, {policy}: {fast:,.0f} requests/s compiled (bar {bar:,.0f}), {slow:,.0f} "
            f"interpreted, {fast / slow:.1f} times; numbers "
            f"{'equal' if digest == same else 'DIFFER'}"
        )
    print(f"bare loop {loop:.0f} ns beside the compiled runs, {plain_loop:.0f} beside the others")
    return equal


def _stop(text: str) -> None:
    print(text, file=sys.stderr)
    raise SystemExit(2)


def main() -> None:
    """Compile, then check."""
    parser = argparse.ArgumentParser(prog="python -m zerolayer.compiled", description=_HELP)
    parser.add_argument("--out", type=Path, default=Path("build/compiled"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-check", action="store_true", help="only compile")
    parser.add_argument("--no-build", action="store_true", help="only check what is there")
    given = parser.parse_args()
    if not given.no_build:
        build(given.out.resolve())
        print(f"compiled {len(MODULES)} modules into {given.out}")
    if not given.no_check and not check(given.out.resolve(), given.rounds):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
