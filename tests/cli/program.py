"""The program as a process of its own, and what is left of its session."""

import contextlib
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

COMMAND = (sys.executable, "-m", "zerolayer.cli")


def start(*words: str, **environment: str) -> "subprocess.Popen[str]":
    """Start the program in a session of its own."""
    return subprocess.Popen(
        [*COMMAND, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **environment}, start_new_session=True,
    )  # fmt: skip


def hashes(folder: Path) -> dict[str, str]:
    """Return the hash of every file of a folder but the manifest."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.name != "manifest.json"
    }


def living(session: int) -> list[str]:
    """Return the processes of a session that have not ended (zombies have)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = path.read_text()
            state, *rest = text[text.rindex(")") + 2 :].split()
            if int(rest[2]) == session and state != "Z":
                found.append(text)
    return found


def left_after(session: int, seconds: float = 10.0) -> list[str]:
    """Return what still lives of a session after at most so long a wait."""
    until = time.monotonic() + seconds
    while (found := living(session)) and time.monotonic() < until:
        time.sleep(0.1)
    return found
