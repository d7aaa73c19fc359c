"""A handle on a door that runs as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from dispatch.errors import NotMeasurable
from live.config import LiveConfig


class DoorProcess:
    """Starts ``python -m live.main``; a context manager that ends it with its journal written."""

    def __init__(
        self,
        config: LiveConfig,
        door: Literal["direct", "legacy"] = "direct",
        *,
        journal: Path | None = None,
        steps: Path | None = None,
        tape: Path | None = None,
        cpus: Sequence[int] = (),
        port: int = 0,
    ) -> None:
        self._given = {
            "config": config.model_dump(mode="json"),
            "door": door,
            "journal": str(journal) if journal else "",
            "steps": str(steps) if steps else "",
            "tape": str(tape) if tape else "",
            "cpus": list(cpus),
            "port": port,
        }
        self.process: subprocess.Popen[bytes]
        self.url = ""
        self.origin_s = 0.0
        self.model = ""
        self.context_tokens = 0
        self.vocab = 0

    def __enter__(self) -> "DoorProcess":
        root = str(Path(__file__).parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "live.main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(self._given).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise NotMeasurable(f"the door ended with {self.process.wait()} before serving")
        for name, value in json.loads(line).items():
            setattr(self, name, value)
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    def stop(self, timeout_s: float = 60.0) -> int:
        """Close its stdin, wait for it, and return its exit code."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()
