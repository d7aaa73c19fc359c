"""How fast and small the trace readers are: ``python benchmarks/read_traces.py [--share 0.1]``.

Writes Azure-style CSV files of random requests, reads one of a million rows whole, and streams one
of ten million to our Parquet, each in a process of its own whose peak memory the kernel counts.
Prints figure and bar; exits with 1 where a bar is missed. Needs 0.5 GB of free disk.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

MIB = 1 << 20
BARS = {"read": (1_000_000, 3.0, 400), "stream": (10_000_000, 60.0, 1024)}
_CHUNK = 500_000


def write_csv(path: Path, rows: int) -> None:
    """Write *rows* requests in the shape of Azure's files: 7 digits, CRLF, no last newline."""
    draw = np.random.default_rng(1)
    at = np.datetime64("2023-11-16T18:15:46", "ns").astype(np.int64)
    with path.open("w", newline="") as out:
        out.write("TIMESTAMP,ContextTokens,GeneratedTokens")
        for first in range(0, rows, _CHUNK):
            count = min(_CHUNK, rows - first)
            times = at + np.cumsum(draw.exponential(1.8e8, count).astype(np.int64) // 100 * 100)
            at = times[-1]
            stamps = np.datetime_as_string(times.astype("datetime64[ns]"), unit="ns")
            prompt, output = draw.integers(1, 8000, count), draw.integers(1, 1000, count)
            out.writelines(
                f"\r\n{s[:10]} {s[11:27]},{p},{o}"
                for s, p, o in zip(stamps.tolist(), prompt.tolist(), output.tolist(), strict=True)
            )


def measured(work: str, path: Path) -> None:
    """Do one piece of *work* in this process, and print seconds, peak MiB and rows as JSON."""
    import traces
    from traces import stream
    from traces.formats.base import Options

    since = time.perf_counter()
    if work == "read":
        rows = len(traces.read(path))
    else:
        done = stream.to_parquet(path, path.with_suffix(".parquet"), Options())
        assert done is not None, "the file could not be streamed"
        rows = done.rows
    seconds = time.perf_counter() - since
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "peak_mib": peak, "rows": rows}))


def main() -> int:
    """Measure both pieces of work and print figure and bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", choices=sorted(BARS), help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--share", type=float, default=1.0, help="of the rows, for a quick look")
    chosen = parser.parse_args()
    if chosen.work:
        measured(chosen.work, chosen.path)
        return 0
    missed = False
    for work, (rows, bar_s, bar_mib) in BARS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "azure.csv"
            write_csv(path, int(rows * chosen.share))
            size = path.stat().st_size / MIB
            command = [sys.executable, __file__, "--work", work, "--path", str(path)]
            found = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
        holds = found["seconds"] <= bar_s and found["peak_mib"] <= bar_mib
        missed |= not holds
        print(
            f"{work}: {found['rows']:,} rows ({size:,.0f} MiB) in {found['seconds']:.2f} s "
            f"(bar {bar_s:g} s), peak {found['peak_mib']:.0f} MiB (bar {bar_mib} MiB): "
            f"{'holds' if holds else 'MISSED'}",
            flush=True,
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
