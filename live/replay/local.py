"""Replay against a door of our own that is started for the purpose, as a process of its own."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Literal

from dispatch.journal import Journal
from live import journals
from live.config import LiveConfig
from live.process import DoorProcess
from live.replay.journal import write
from live.replay.run import Plan, Progress, Replay, Target, replay
from traces.trace import Trace


def replay_local(
    trace: Trace,
    config: LiveConfig,
    door: Literal["direct", "legacy"],
    plan: Plan,
    journal: Journal,
    progress: Progress | None = None,
    steps: Path | None = None,
    tape: Path | None = None,
) -> Replay:
    """Replay *trace* against a door with *config*; pins door and client apart where it can.

    *steps* and *tape* name files for what each iteration did and for what the dispatcher was told
    (direct door only).
    """
    ours, theirs = split_cpus()
    with tempfile.TemporaryDirectory() as folder:
        process = DoorProcess(
            config, door, journal=Path(folder), cpus=theirs, steps=steps, tape=tape
        )
        with process, _Pinned(ours):
            target = Target(process.url, process.model, True, process.context_tokens, process.vocab)
            run = asyncio.run(replay(trace, target, plan, progress))
        server = journals.load(Path(folder))
    write(run, trace, journal, server, process.origin_s)
    return run


def split_cpus() -> tuple[list[int], list[int]]:
    """Return (client, door) processors: one for the client, the rest; none where there is one."""
    cpus = sorted(os.sched_getaffinity(0))
    return (cpus[:1], cpus[1:]) if len(cpus) > 1 else ([], [])


class _Pinned:
    """Pins this process to *cpus* for a while."""

    def __init__(self, cpus: list[int]) -> None:
        self._cpus = cpus
        self._before: set[int] = set()

    def __enter__(self) -> None:
        if self._cpus:
            self._before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, self._cpus)

    def __exit__(self, *error: object) -> None:
        if self._before:
            os.sched_setaffinity(0, self._before)
