"""``zerolayer trace``: describe, convert, fetch, and what a prefix cache finds."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from zerolayer.options import JsonOption, QuietOption
from zerolayer.trace_options import (
    DEFAULTS,
    Counter,
    Out,
    ReadOptions,
    Seed,
    Source,
    load,
    ready,
    say,
    written,
)  # fmt: skip
from zerolayer.verbs import trace_make as make

app = App(name="trace", help="Describe, convert, make and change traces.")
app.command(make.slice_, name="slice")
for _verb in (make.scale, make.mix, make.synth, make.fit, make.anonymise):
    app.command(_verb)


@app.command
def describe(
    file: Source, *, read: ReadOptions = DEFAULTS, seed: Seed = 0, json: JsonOption = False
) -> int:
    """Rate, burstiness, lengths, quirks, and what it cannot tell.

    Times are taken as recorded: what a replay spreads or estimates is listed, not counted.
    """
    import traces
    from traces import show
    from zerolayer.output import print_json, print_table

    about = traces.describe(load(file, read, seed=seed, spread=False, partial=True))
    if json:
        print_json(about)
        return 0
    print_table(str(about["name"]), ("figure", "value"), show.figures(about), numbers=1)
    print_table("tokens", show.LENGTHS, show.lengths(about), numbers=6)
    print("\n".join(show.notes(about)))
    return 0


@app.command
def convert(
    file: Source,
    /,
    *,
    output: Out,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Convert a trace to another format.

    A long clean CSV to .parquet streams in bounded memory.
    Times stay as recorded; a replay of the result still spreads what a coarse clock bunched.
    """
    from traces import export, stream
    from traces.formats.base import Options
    from traces.trace import counted

    ready(output, file, read=read)
    plain = read == DEFAULTS or read == ReadOptions(unit=read.unit)
    if plain and export.ending(output) == ".parquet":
        shown = Counter(quiet)
        done = stream.to_parquet(file, output, Options(unit=read.unit), shown)
        if done is not None:
            shown.end()
            document = {
                "path": str(output), "requests": done.rows, "span_s": done.span_s,
                "format": done.format, "detected": f"{done.format}: {done.why}",
            }  # fmt: skip
            say(
                json,
                document,
                f"{output}: {counted(done.rows, 'request')} over {done.span_s:,.6g} s",
            )
            return 0
    written(load(file, read, seed=seed, spread=False), output, json)
    return 0


@app.command
def fetch(
    name: Annotated[str | None, Parameter(help="A public trace; all are listed without.")] = None,
    *,
    folder: Annotated[Path | None, Parameter(help="Where to; the user's cache otherwise.")] = None,
    mirror: Annotated[Path | None, Parameter(help="A folder that holds copies.")] = None,
    offline: Annotated[bool, Parameter(help="Never use the network.", negative="")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Fetch a public trace, or list all of them.

    A broken transfer resumes; --mirror takes the file from a folder instead.
    """
    if name is None:
        _list_datasets(json)
        return 0
    from traces.fetch import fetch as get

    def progress(done: int, total: int) -> None:
        if not quiet:
            whole = f" of {total:,}" if total else ""
            print(f"\rzerolayer: {done:,}{whole} bytes", end="", file=sys.stderr)

    found = get(name, folder=folder, mirror=mirror, offline=offline, progress=progress)
    state = "checked" if found.checked else "not checked: we have no digest of it"
    document = {
        "path": str(found.path), "origin": found.origin, "sha256": found.sha256,
        "checked": found.checked,
    }  # fmt: skip
    say(json, document, f"{found.path}\n{found.origin}; sha256 {found.sha256} ({state})")
    return 0


def _list_datasets(json: bool) -> None:
    from dataclasses import asdict

    from traces import datasets
    from zerolayer.output import print_json

    known = datasets.DATASETS.values()
    here = {one.name: datasets.search(one.file) for one in known}
    if json:
        rows = [{**asdict(one), "here": str(here[one.name] or "") or None} for one in known]
        print_json({"traces": rows})
        return
    for one in known:
        size = f"{one.size_bytes / 1e6:,.1f} MB" if one.size_bytes else "size unknown"
        print(f"{one.name:<24}{size:>14}  {'here' if here[one.name] else ''}".rstrip())
        print(f"  {one.about}\n  {one.licence}")


@app.command
def cache(
    file: Source,
    /,
    *,
    evict: Annotated[
        Literal["lru", "lfu", "length"], Parameter(help="What goes first when it is full.")
    ] = "lru",
    capacity_blocks: Annotated[
        int | None, Parameter(help="Blocks it holds; without bound otherwise.")
    ] = None,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Hit rates of one prefix cache over all requests of a trace."""
    from dataclasses import asdict

    from traces.cache import hit_rates

    trace = load(file, read, seed=seed, spread=False, partial=True)
    found = hit_rates(trace, capacity_blocks, evict, place=file)
    document = {
        "name": trace.name, "evict": evict, "capacity_blocks": capacity_blocks,
        "block_tokens": trace.block_tokens, **asdict(found),
    }  # fmt: skip
    bound = "no bound" if capacity_blocks is None else f"{capacity_blocks:,} blocks"
    text = (
        f"{evict}, {bound} of {trace.block_tokens} tokens: {found.hit_rate_blocks:.4f} of blocks, "
        f"{found.hit_rate_tokens:.4f} of tokens"
    )
    say(json, document, text)
    return 0
