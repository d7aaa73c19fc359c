"""How the trace verbs read a file and say what they wrote."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

if TYPE_CHECKING:
    from traces.trace import Trace

Source = Annotated[str, Parameter(help="A trace file, or the name of a public trace.")]
Out = Annotated[
    Path,
    Parameter(
        name=["-o", "--output"],
        help="File to write: .parquet (ours), .jsonl or .csv, these also .gz or .zst.",
    ),
]
Seed = Annotated[int, Parameter(help="Seed of everything that is drawn.")]


@Parameter(name="*")
@dataclass(frozen=True)
class ReadOptions:
    """How a file is to be read."""

    format: Annotated[
        str | None, Parameter(help="The format, where content should not decide.")
    ] = None
    map: Annotated[
        str | None,
        Parameter(help="Columns of a table of your own: arrival=ts,prompt=in_tok,output=out_tok."),
    ] = None
    unit: Annotated[
        Literal["s", "ms", "us", "ns"] | None, Parameter(help="Unit of numeric times.")
    ] = None
    rate: Annotated[
        float | None, Parameter(help="Draw arrivals at this rate where the file holds none.")
    ] = None
    order: Annotated[
        Literal["strict", "sort", "append"] | None,
        Parameter(help="Rows out of order: refuse, sort, or lay restarted clocks end to end."),
    ] = None
    skip_bad: Annotated[
        bool, Parameter(help="Leave bad rows out and write them to a side file.", negative="")
    ] = False
    bad_file: Annotated[
        Path | None, Parameter(help="The side file; NAME.bad in the current folder by default.")
    ] = None
    keep_cached: Annotated[
        bool, Parameter(help="Keep answers from a cache, which no GPU saw.", negative="")
    ] = False
    prompt_bytes: Annotated[
        float | None, Parameter(help="Bytes a prompt token, where lengths come from bytes.")
    ] = None
    output_bytes: Annotated[
        float | None, Parameter(help="Bytes an output token, where lengths come from bytes.")
    ] = None


DEFAULTS = ReadOptions()


def load(
    file: str, options: ReadOptions, *, seed: int = 0, spread: bool = True, partial: bool = False
) -> "Trace":
    """Read one trace as the options of the command line say."""
    import traces
    from dispatch.errors import InputError
    from traces.formats.columns import parse_map
    from zerolayer import targets

    for name, value in (("--rate", options.rate), ("--prompt-bytes", options.prompt_bytes),
                        ("--output-bytes", options.output_bytes)):  # fmt: skip
        if value is not None and not 0 < value < float("inf"):
            raise InputError.at(name, f"is {value}", "give a positive number")
    side = side_file(file, options)
    if side is not None:
        targets.ready(side, paths_of([file]))
    trace = traces.read(
        file,
        format=options.format,
        columns=parse_map(options.map) if options.map else None,
        unit=options.unit,
        rate_per_s=options.rate,
        order=options.order,
        spread=spread,
        cached=options.keep_cached,
        partial=partial,
        seed=seed,
        skip_bad=side or False,
        prompt_bytes=options.prompt_bytes,
        output_bytes=options.output_bytes,
    )
    if "skipped_rows" in trace.source:
        skipped = trace.source["skipped_rows"]
        print(f"zerolayer: {skipped:,} bad rows left out; they are in {side}", file=sys.stderr)
    return trace


def say(json: bool, document: dict[str, Any], text: str) -> None:
    from zerolayer.output import print_json

    print_json(document) if json else print(text)


def side_file(file: str, options: ReadOptions) -> Path | None:
    """Return where the bad rows of *file* go, None where bad rows are refused."""
    if options.skip_bad or options.bad_file is not None:
        return options.bad_file or Path(f"{Path(file).name}.bad")
    return None


def ready(target: Path, *files: str, read: ReadOptions = DEFAULTS) -> None:
    """Refuse a trace *target* that cannot be written, or is one of *files*, before any work."""
    from traces import export
    from zerolayer import targets

    export.ending(target)
    inputs = paths_of(files)
    sides = [side for file in files if (side := side_file(file, read)) is not None]
    for side in sides:
        targets.ready(side, inputs)
    targets.ready(target, inputs, sides)


def paths_of(files: Iterable[str]) -> list[Path]:
    """Return the files that paths and names of public traces stand for, where they are here."""
    from traces.load import resolve

    return [resolve(file) for file in files]


def written(trace: "Trace", target: Path, json: bool) -> None:
    """Write *trace* and say what was written."""
    import traces
    from traces import export
    from traces.trace import counted

    export.write(trace, target)
    about = traces.describe(trace)
    document = {"path": str(target), **about}
    rate = f", {about['rate_per_s']:.4g}/s" if about["rate_per_s"] else ""
    say(
        json,
        document,
        f"{target}: {counted(len(trace), 'request')} over {trace.span_s:,.6g} s{rate}",
    )


class Counter:
    """Rows so far on stderr, with a rate."""

    def __init__(self, quiet: bool) -> None:
        from time import monotonic

        self._quiet = quiet
        self._clock = monotonic
        self._since = monotonic()
        self._last = self._since
        self._shown = False

    def __call__(self, rows: int) -> None:
        now = self._clock()
        if self._quiet or now - self._last < 1.0:
            return
        self._last = now
        self._shown = True
        rate = rows / (now - self._since)
        print(f"\rzerolayer: {rows:,} rows, {rate:,.0f} rows/s", end="", file=sys.stderr)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)
