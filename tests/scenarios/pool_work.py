"""Work for pools under test; workers import it by name."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dispatch.errors import InputError


class Work:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, cell: tuple[str, Any], progress: Callable[[int], None]) -> Any:
        order, value = cell
        if order == "square":
            progress(1)
            return value * value
        if order == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if order == "die once":
            mark = self.folder / f"died-{value}"
            if not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return value
        if order == "refuse":
            raise InputError.at("row 3", "is empty")
        if order == "pid":
            return os.getpid()
        raise ValueError("boom")


class Broken:
    def __init__(self) -> None:
        raise InputError.at("here", "cannot start")


class Stillborn:
    def __init__(self) -> None:
        os._exit(3)


class Poison:
    """An order for a cluster that kills every process but the one that made it."""

    def __init__(self, trace: str) -> None:
        self._trace = trace
        self._home = os.getpid()

    @property
    def trace(self) -> str:
        if os.getpid() != self._home:
            os._exit(3)
        return self._trace
