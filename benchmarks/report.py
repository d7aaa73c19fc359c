"""How long a report takes and how much memory: a stand-in journal of a given size.

    python benchmarks/report.py [--requests 1000000] [--arms 2] [--replicates 5]

*requests* are those of every arm over all replicates, so the tables hold arms times as many rows.
Prints seconds (wall and CPU), peak memory and file sizes; exit 1 above 20 s of CPU time or 1.5 GiB.
The stand-in is drawn at random by the tests' own generator; making it is not timed.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "reports")]

LIMIT_S = 20.0
LIMIT_BYTES = 1.5 * 2**30


def measure(folder: Path) -> dict[str, Any]:
    """Write the report of *folder* in this process and return what it took."""
    from reports import evidence

    manifest = json.loads((folder / "stand-in.json").read_text())
    wall, cpu = time.perf_counter(), time.process_time()
    verdict = evidence.write(folder, manifest)
    return {
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "verdict": str(verdict.answer),
        "files": {name: (folder / name).stat().st_size for name in evidence.FILES},
    }


def main() -> int:
    """Make a journal, report on it in a fresh process, and print what that took."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--arms", type=int, default=2, choices=(2, 3))
    parser.add_argument("--replicates", type=int, default=5)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.folder:
        print(json.dumps(measure(a.folder)))
        return 0
    import synthetic_journal as sj

    arms = (sj.LEGACY, sj.DIRECT) if a.arms == 2 else (sj.LEGACY, sj.STATIC, sj.DIRECT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = sj.write(folder, arms, n=a.requests // a.replicates, replicates=a.replicates)
        (folder / "stand-in.json").write_text(json.dumps(manifest))
        command = [sys.executable, __file__, "--folder", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)
    print(f"{a.requests:,} requests an arm, {a.arms} arms, {a.replicates} replicates")
    print(f"wall {found['wall_s']:.1f} s, CPU {found['cpu_s']:.1f} s", end=", ")
    print(f"peak {found['peak_bytes'] / 2**30:.2f} GiB")
    print(", ".join(f"{k} {v / 1e3:,.0f} kB" for k, v in found["files"].items()))
    return int(found["cpu_s"] > LIMIT_S or found["peak_bytes"] > LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
