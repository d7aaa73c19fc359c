"""Progress on stderr all the while: a bar on a terminal, a line now and then elsewhere."""

import contextlib
import sys
from collections.abc import Iterator
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self

_LINE_EVERY_S = 5.0


class Progress(Protocol):
    """Counts units of work towards a total."""

    def add(self, units: int) -> None:
        """Count *units* more."""

    def note(self, text: str) -> None:
        """Say what is being done, or the best so far."""


class Silent:
    """No progress: for tests and for callers that show their own."""

    def add(self, units: int) -> None:
        """Count nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""


@contextlib.contextmanager
def show(title: str, total: int, unit: str, quiet: bool = False) -> Iterator[Progress]:
    """Yield a progress that writes to stderr in the way that suits it; a *total* of 0 is open."""
    if quiet:
        yield Silent()
    elif sys.stderr.isatty():
        with _Bar(title, total, unit) as bar:
            yield bar
    else:
        lines = _Lines(title, total, unit)
        yield lines
        lines.last()


class _Bar:
    def __init__(self, title: str, total: int, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._total = total
        self._since = monotonic()
        self._done = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.percentage:3.0f} %"),
            TextColumn("{task.fields[rate]}"),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=False,
        )
        self._unit = unit
        self._task = self._bar.add_task(title, total=total or None, rate="", note="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: Any, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def add(self, units: int) -> None:
        """Count and redraw."""
        self._done = min(self._done + units, self._total or self._done + units)
        rate = _rate(self._done, monotonic() - self._since, self._unit)
        self._bar.update(self._task, completed=self._done, rate=rate)

    def note(self, text: str) -> None:
        """Show *text* behind the bar."""
        self._bar.update(self._task, note=text)


class _Lines:
    def __init__(self, title: str, total: int, unit: str) -> None:
        self._title, self._total, self._unit = title, total, unit
        self._since = self._said = monotonic()
        self._done = 0
        self._note = ""
        self._say(f"0 of {total:,} {unit}" if total else "started")

    def add(self, units: int) -> None:
        """Count, and say so every few seconds."""
        self._done = min(self._done + units, self._total or self._done + units)
        if monotonic() - self._said >= _LINE_EVERY_S:
            self._line()

    def note(self, text: str) -> None:
        """Add *text* to the next line; a new text with nothing to count is a line of its own."""
        self._note = text
        if monotonic() - self._said >= _LINE_EVERY_S:
            self._line()

    def last(self) -> None:
        """Say how it ended."""
        passed = monotonic() - self._since
        rate = _rate(self._done, passed, self._unit)
        of = f" of {self._total:,}" if self._total else ""
        self._say(f"{self._done:,}{of} {self._unit} in {passed:.1f} s, {rate}")

    def _line(self) -> None:
        self._said = monotonic()
        passed = self._said - self._since
        rate = _rate(self._done, passed, self._unit)
        note = f"; {self._note}" if self._note else ""
        if not self._total:
            self._say(f"{self._done:,} {self._unit}, {rate}{note}")
            return
        share = 100 * self._done / self._total
        left = passed * (self._total - self._done) / self._done if self._done else float("nan")
        count = f"{share:.0f} % ({self._done:,} of {self._total:,})"
        self._say(f"{count}, {rate}, ETA {left:.0f} s{note}")

    def _say(self, text: str) -> None:
        print(f"{self._title}: {text}", file=sys.stderr, flush=True)


def _rate(done: int, passed_s: float, unit: str) -> str:
    rate = done / passed_s if passed_s > 0 else 0.0
    return f"{rate:,.0f} {unit}/s" if rate >= 10 else f"{rate:.2g} {unit}/s"
