"""Final figures of the live path on a quiet machine: ``python benchmarks/live.py OUT.json``.

Runs ``bench live`` (with 1,000 streams for 60 s), and ``live calibrate`` and ``live validate`` in
one go; nothing else should run meanwhile.
"""

import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def run(*words: str) -> dict[str, Any]:
    """Run one verb with --json; return what it printed and its exit code."""
    command = [sys.executable, "-m", "zerolayer.cli", *words, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    answer = json.loads(done.stdout) if done.stdout.strip() else None
    return {"command": " ".join(words), "exit": done.returncode, "answer": answer}


def main() -> None:
    """Write every figure into the file named on the command line."""
    output = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        parts = {
            "bench": run("bench", "live", "--calls", "400", "--streams", "1000"),
            "calibrate": run("live", "calibrate", "-o", folder, "--seconds", "40"),
            "validate": run("live", "validate", "--hardware", folder, "--repeats", "3"),
        }
    about = {"date": time.strftime("%Y-%m-%d"), "machine": platform.platform()}
    output.write_text(json.dumps({**about, **parts}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
