"""How a sweep of what-ifs scales, what a cell costs beside its run, and whether deaths change it.

    python benchmarks/whatif.py [--cells 200] [--requests 3000] [--kill-every 5]

Runs the same cells in this process, on two worker processes, on a cluster of two single-thread
workers, and on both again with a worker killed every few seconds. Prints wall and CPU seconds, the
speed-up over one core, and whether all figures are the same to the byte.
On a machine that others use, wall time says little: *by CPU* is twice the CPU time of one core over
that of all processes of the run, which is the speed-up where two cores are free.
The overhead is that of as many cells of 20 requests, which take next to nothing themselves: twice
the wall time on two workers, their start included, less that of one core, a cell. On long cells
the difference would be mostly what two busy cores of one processor take from each other.
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

POOL_BAR, CLUSTER_BAR, OVERHEAD_BAR_S = 1.8, 1.7, 0.020
TINY = 20  # requests


def cpu_s() -> float:
    """Return the CPU seconds of this process and of every living one below it."""
    below: dict[int, list[int]] = {}
    spent: dict[int, float] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = path.read_text()
            fields = text[text.rindex(")") + 2 :].split()
            pid = int(path.parent.name)
            below.setdefault(int(fields[1]), []).append(pid)
            spent[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += spent.get(pid, 0.0)
        waiting += below.get(pid, [])
    return total


@contextlib.contextmanager
def reaper(pids: Callable[[], list[int]], every_s: float) -> Iterator[list[int]]:
    """Kill one of *pids()* every so often, each in turn; yields the list of those killed."""
    killed: list[int] = []
    done = threading.Event()

    def work() -> None:
        while not done.wait(every_s):
            living = [pid for pid in pids() if pid not in killed]
            if living:
                killed.append(living[len(killed) % len(living)])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(killed[-1], 9)

    thread = threading.Thread(target=work, daemon=True)
    if every_s:
        thread.start()
    try:
        yield killed
    finally:
        done.set()


def run(kind: str, cells: list[Any], scratch: Path, kill_s: float) -> dict[str, Any]:
    """Run the cells once from an empty cache; *kind* is one, pool or cluster."""
    from scenarios.cluster import executor
    from scenarios.pool import Pool
    from scenarios.store import Store
    from scenarios.sweep import Summariser, Sweep

    pool: Pool[Any] = Pool(Summariser, jobs=2, tries=5)

    def pids() -> list[int]:
        if kind == "cluster":
            return list(client.run(os.getpid, on_error="ignore").values())
        return [w.process.pid or 0 for w in pool._workers if w.ready]

    with contextlib.ExitStack() as stack:
        make: Any = None
        if kind == "cluster":
            make = stack.enter_context(executor("local:2"))
            client = make(scratch).client
        elif kind == "pool":
            pool.warm()  # as a sweep of its own does, before it reads the trace

            def make(folder: Path) -> Any:
                pool.arguments = (folder,)
                return pool

        name = f"{kind}-{kill_s:g}"
        sweep = stack.enter_context(
            Sweep(1, store=Store(scratch / name), make_executor=make, quiet=True)
        )
        sweep.requests(cells[0].scenario)  # the trace is made before the clock starts
        last = [0.0]
        before, wall = cpu_s(), time.perf_counter()
        killed = stack.enter_context(reaper(pids, kill_s if kind != "one" else 0.0))

        def note(outcome: Any) -> str:
            last[0] = max(last[0], cpu_s())  # workers are gone when the sweep is
            return ""

        outcomes = sweep.run(cells, note=note)
        return {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": last[0] - before,
            "killed": len(killed),
            "failed": sum(bool(o.failure) for o in outcomes),
            "why": sorted({o.failure for o in outcomes if o.failure}),
            "bytes": json.dumps([dict(o.figures) for o in outcomes], sort_keys=True),
        }


def ceiling(cells: list[Any], scratch: Path) -> float:
    """Return the wall seconds of two processes that share nothing, each with half of the cells.

    Two cores of one machine take from each other (caches, a hyperthread's twin, a host's other
    guests): no engine can do better here.
    """
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pair:
        halves = [
            pair.submit(run, "one", cells[at::2], scratch / f"half{at}", 0.0) for at in (0, 1)
        ]
        return max(float(half.result()["wall_s"]) for half in halves)


def cells_of(count: int, requests: int) -> list[Any]:
    """Return the first *count* cells of the bundled what-if: load by fleet, three arms, 5 seeds."""
    from scenarios import whatif

    vary = ["trace.scale=0.6,0.8,1,1.2", "fleet.pools.a100-80g.count=1,2,3,4"]
    made = whatif.grid("migration-2023q3", [f"trace.limit={requests}"], vary, [])
    return whatif.cells(made)[:count]


def main() -> int:
    """Run all, print the figures, and return 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=200)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--kill-every", type=float, default=5.0)
    asked = parser.parse_args()
    cells, tiny = (cells_of(asked.cells, n) for n in (asked.requests, TINY))
    good = True
    with tempfile.TemporaryDirectory(prefix="zerolayer-bench-") as name:
        scratch = Path(name)
        one = run("one", cells, scratch, 0.0)
        print(f"{len(cells)} cells of {asked.requests} requests, load {os.getloadavg()[0]:.1f}")
        print(f"one core: {one['wall_s']:.1f} s, CPU {one['cpu_s']:.1f} s", flush=True)
        most = one["wall_s"] / ceiling(cells, scratch)
        print(f"two processes that share nothing: x {most:.2f}, the most this machine gives now",
              flush=True)  # fmt: skip
        least = run("one", tiny, scratch / "tiny", 0.0)
        for kind, bar in (("pool", POOL_BAR), ("cluster", CLUSTER_BAR)):
            for kill_s in (0.0, asked.kill_every):
                found = run(kind, cells, scratch, kill_s)
                same = found["bytes"] == one["bytes"]
                good = good and same and not found["failed"]
                text = f"{kind}: {found['wall_s']:.1f} s, CPU {found['cpu_s']:.1f} s, "
                text += f"figures {'the same' if same else 'NOT THE SAME'}"
                if kill_s:
                    print(f"{text}, {found['killed']} workers killed, {found['failed']} failures",
                          *found["why"], sep="\n  ", flush=True)  # fmt: skip
                    continue
                speed = one["wall_s"] / found["wall_s"]
                by_cpu = 2 * one["cpu_s"] / found["cpu_s"]
                short = run(kind, tiny, scratch / "tiny", 0.0)
                over_s = (2 * short["wall_s"] - least["wall_s"]) / len(tiny)
                print(f"{text}, x {speed:.2f} by the clock, x {by_cpu:.2f} by CPU (bar {bar}), "
                      f"overhead {1e3 * over_s:.1f} ms a cell (bar 20)", flush=True)  # fmt: skip
                good = good and max(speed, by_cpu) >= bar and over_s <= OVERHEAD_BAR_S
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
