"""Run the GPU's work in a child that may hang or crash, case by case, and lose only that case.

A grid that waits for itself cannot be interrupted from inside, and an illegal access ends a CUDA
context for good. So the child names each case before it starts it; where it falls silent or ends
early, the case is recorded with its error and a fresh child goes on with the next one.
"""

import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

Row = dict[str, Any]
CASE_S: Final = 75.0  # compiling a case and timing its variants; torch.compile takes up to 40 s
TOTAL_S: Final = 240.0


def rows(
    command: Sequence[str], case_s: float = CASE_S, total_s: float = TOTAL_S
) -> Iterator[Row]:  # fmt: skip
    """Yield the JSON lines of ``command FIRST SPENT`` and a ``failed`` row for each case lost.

    The command prints {"kind": "case", "at": n, "what": ...} before its n-th case, begins with case
    FIRST, counts SPENT seconds as gone, and prints {"kind": "end"} last.
    """
    begin, first = time.monotonic(), 0
    while True:
        spent = time.monotonic() - begin
        at, what, error = first, "start", ""
        with tempfile.TemporaryFile("w+", errors="replace") as said:  # a full pipe would block it
            child = subprocess.Popen(
                [*command, str(first), f"{spent:.4f}"], stdout=subprocess.PIPE, text=True,
                stderr=said,
            )  # fmt: skip
            try:
                for row in _lines(child, case_s, begin + total_s):
                    if row["kind"] == "case":
                        at, what = row["at"], row["what"]
                    elif row["kind"] == "end":
                        return
                    else:
                        yield row
                child.wait(10)
                said.seek(0)
                error = _why(child.returncode, said.read())
            except (TimeoutError, subprocess.TimeoutExpired) as late:
                error = str(late)
            finally:
                child.kill()
                child.wait()
        yield {"kind": "failed", "what": what, "at": at, "error": error}
        if what == "start" or time.monotonic() - begin >= total_s:
            return
        first = at + 1


def _lines(child: "subprocess.Popen[str]", case_s: float, end: float) -> Iterator[Row]:
    """Yield parsed lines; TimeoutError where a case or all of it takes too long."""
    found: queue.Queue[str | None] = queue.Queue()

    def drain() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            found.put(line)
        found.put(None)

    threading.Thread(target=drain, daemon=True).start()
    due = time.monotonic() + case_s
    while True:
        now = time.monotonic()
        try:
            line = found.get(timeout=max(min(due, end) - now, 0.01))
        except queue.Empty:
            limit = "the whole check" if time.monotonic() >= end else f"a case ({case_s:g} s)"
            raise TimeoutError(f"killed: longer than the limit of {limit}") from None
        if line is None:
            return
        if not line.startswith("{"):
            continue  # what a library prints
        row: Row = json.loads(line)
        if row["kind"] == "case":
            due = time.monotonic() + case_s
        yield row


def _why(code: int, told: str) -> str:
    last = told.strip().splitlines()[-1] if told.strip() else "no message"
    return f"the process ended with {code}: {last}"


def child_of(module: str) -> list[str]:
    """Return the command that runs *module* as such a child."""
    return [sys.executable, "-u", "-m", module]
