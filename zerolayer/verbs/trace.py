"""``zerolayer trace``: describe, convert, make and change histories of traffic."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from zerolayer.options import JsonOption, QuietOption

if TYPE_CHECKING:
    from traces.trace import Trace

app = App(name="trace", help="Describe, convert, make and change traces.")

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

    for name, value in (("--rate", options.rate), ("--prompt-bytes", options.prompt_bytes),
                        ("--output-bytes", options.output_bytes)):  # fmt: skip
        if value is not None and not 0 < value < float("inf"):
            raise InputError.at(name, f"is {value}", "give a positive number")
    side: Path | bool = False
    if options.skip_bad or options.bad_file is not None:
        side = options.bad_file or Path(f"{Path(file).name}.bad")
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
        skip_bad=side,
        prompt_bytes=options.prompt_bytes,
        output_bytes=options.output_bytes,
    )
    if "skipped_rows" in trace.source:
        skipped = trace.source["skipped_rows"]
        print(f"zerolayer: {skipped} bad rows left out; they are in {side}", file=sys.stderr)
    return trace


def _say(json: bool, document: dict[str, Any], text: str) -> None:
    from zerolayer.output import print_json

    print_json(document) if json else print(text)


def _written(trace: "Trace", target: Path, json: bool) -> None:
    """Write *trace* and say what was written."""
    import traces
    from traces import export

    export.write(trace, target)
    about = traces.describe(trace)
    document = {"path": str(target), **about}
    rate = f", {about['rate_per_s']:.4g}/s" if about["rate_per_s"] else ""
    _say(json, document, f"{target}: {len(trace)} requests over {trace.span_s:.6g} s{rate}")


@app.command
def describe(
    file: Source, *, read: ReadOptions = DEFAULTS, seed: Seed = 0, json: JsonOption = False
) -> int:
    """Rows, span, rate, burstiness, token quantiles, quirks, and what the trace cannot tell.

    Times are taken as recorded: what a replay spreads or estimates is listed, not counted.
    """
    import traces
    from zerolayer.output import print_json

    trace = load(file, read, seed=seed, spread=False, partial=True)
    about = traces.describe(trace)
    if json:
        print_json(about)
    else:
        _print_description(about)
    return 0


def _print_description(about: dict[str, Any]) -> None:
    from zerolayer.output import print_table

    def figure(value: float | None, unit: str = "") -> str:
        return "n/a" if value is None else f"{value:,.6g}{unit}"

    print_table(
        f"{about['name']} ({about.get('detected', about['format'])})",
        ("figure", "value"),
        (
            ("requests", f"{about['requests']:,}"),
            ("of these failed at the source", f"{about['failed']:,}"),
            ("span", figure(about["span_s"], " s")),
            ("rate", figure(about["rate_per_s"], "/s")),
            ("CV of the gaps", figure(about["cv"])),
            ("index of dispersion, 1 s", figure(about["dispersion_1s"])),
            ("index of dispersion, 10 s", figure(about["dispersion_10s"])),
            ("sessions", figure(about["sessions"])),
            ("prefix block", figure(about["block_tokens"], " tokens")),
        ),
        numbers=1,
    )
    rows = []
    for name in ("prompt_tokens", "output_tokens"):
        found = about[name] or {}
        cells = (figure(found.get(key)) for key in ("mean", "p50", "p90", "p99", "max", "known"))
        rows.append((name, *cells))
    head = ("length", "mean", "p50", "p90", "p99", "max", "known")
    print_table("tokens", head, rows, numbers=6)
    for quirk in about["quirks"]:
        print(f"quirk {quirk['code']}: {quirk['text']}")
    for text in about["cannot_tell"]:
        print(f"cannot tell: {text}")


@app.command
def convert(
    file: Source,
    *,
    output: Out,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> int:
    """Convert a trace; a long clean CSV to .parquet streams in bounded memory.

    Times stay as recorded; a replay of the result still spreads what a coarse clock bunched.
    """
    from traces import export, stream
    from traces.formats.base import Options

    plain = read == DEFAULTS or read == ReadOptions(unit=read.unit)
    if plain and export.ending(output) == ".parquet":
        shown = _Counter(quiet)
        done = stream.to_parquet(file, output, Options(unit=read.unit), shown)
        if done is not None:
            shown.end()
            document = {
                "path": str(output), "requests": done.rows, "span_s": done.span_s,
                "format": done.format, "detected": f"{done.format}: {done.why}",
            }  # fmt: skip
            _say(json, document, f"{output}: {done.rows} requests over {done.span_s:.6g} s")
            return 0
    _written(load(file, read, seed=seed, spread=False), output, json)
    return 0


class _Counter:
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


@app.command(name="slice")
def slice_(
    file: Source,
    *,
    output: Out,
    start: Annotated[float, Parameter(help="First second of the cut.")] = 0.0,
    duration: Annotated[float | None, Parameter(help="Length of the cut in seconds.")] = None,
    limit: Annotated[int | None, Parameter(help="At most this many requests.")] = None,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Cut a part out of a trace by time, by count, or both."""
    import traces

    trace = load(file, read, seed=seed)
    cut = traces.slice(trace, start_s=start, duration_s=duration, limit=limit)
    if not len(cut):
        from dispatch.errors import InputError

        raise InputError.at(
            file, f"has no request there; it spans {trace.span_s:.6g} s", "move the cut"
        )
    _written(cut, output, json)
    return 0


@app.command
def scale(
    file: Source,
    factor: Annotated[float, Parameter(help="How many times the rate: 0.5, 3, 12.5.")],
    *,
    output: Out,
    squeeze: Annotated[
        bool, Parameter(help="Divide time instead, which shortens every pause.", negative="")
    ] = False,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Scale the rate: thin below 1, lay shifted copies over each other above it."""
    import traces

    trace = load(file, read, seed=seed)
    _written(traces.scale(trace, factor, seed, squeeze=squeeze), output, json)
    return 0


@app.command
def mix(
    files: Annotated[list[str], Parameter(help="Trace files or names, two or more.")],
    *,
    output: Out,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Lay several traces over each other; models and sessions stay apart."""
    import traces

    _written(traces.mix([load(file, read, seed=seed) for file in files]), output, json)
    return 0


@app.command
def synth(
    model: Annotated[str, Parameter(help="A bundled model, or a TOML file that `fit` wrote.")],
    *,
    output: Out,
    settings: Annotated[
        list[str] | None,
        Parameter(name="--set", help="key=value: --set arrivals.rate_per_s=20", negative=""),
    ] = None,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Make a trace: Poisson, gamma, MMPP or daily arrivals, fitted lengths, conversations.

    Bundled models: azure-2023-conv, poisson, gamma, mmpp, diurnal, chat.
    """
    from traces import synth as made

    _written(made.generate(model, _params(settings or []), seed), output, json)
    return 0


def _params(settings: list[str]) -> dict[str, Any]:
    """Return ``a.b=value`` settings as a nested object; values are TOML, else text."""
    import tomllib

    from dispatch.errors import InputError

    document: dict[str, Any] = {}
    for text in settings:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InputError.at(f"--set {text}", "is no key=value", "write --set requests=1000")
        node = document
        *path, last = key.strip().split(".")
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise InputError.at(f"--set {text}", f"{part} is set to a value already")
        try:
            node[last] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            node[last] = value
    return document


@app.command
def fit(
    file: Source,
    *,
    output: Annotated[
        Path | None, Parameter(name=["-o", "--output"], help="TOML file for the model.")
    ] = None,
    picture: Annotated[
        Path | None, Parameter(help="Picture of trace and model: .png, .svg or .pdf.")
    ] = None,
    step: Annotated[float, Parameter(help="Seconds a step of the rate.")] = 300.0,
    window: Annotated[float, Parameter(help="Seconds a window of lengths.")] = 600.0,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Find parameters that reproduce a trace, and show how well they do."""
    from dataclasses import asdict

    from dispatch.errors import InputError
    from traces import fit as fitting
    from traces import goodness
    from traces.synth import of_model
    from traces.synthetic import checked
    from traces.toml_text import dump

    if not (step > 0 and window > 0):
        raise InputError.at("--step, --window", "must be positive")
    if picture is not None and picture.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError.at(str(picture), "has no known ending", "use .png, .svg or .pdf")
    trace = load(file, read, seed=seed)
    document = fitting.document(trace, step_s=step, window_s=window)
    document = {"about": f"like {trace.name}", "source": "zerolayer trace fit", **document}
    made = of_model(checked(trace.name, document), seed)
    found = goodness.compare(trace, made)
    if output is not None:
        output.write_text(dump(document), "utf-8")
    if picture is not None:
        goodness.picture(trace, made, found, picture)
    if json:
        from zerolayer.output import print_json

        print_json({"model": document, "goodness": asdict(found)})
    else:
        _print_fit(found, output, picture)
    return 0


def _print_fit(found: Any, output: Path | None, picture: Path | None) -> None:
    from zerolayer.output import print_table

    keys = ("requests", "rate_per_s", "cv", "dispersion_1s", "dispersion_10s")
    rows = [(k, *(f"{one[k]:,.6g}" if one[k] is not None else "n/a"
                  for one in (found.trace, found.model))) for k in keys]  # fmt: skip
    for name in ("prompt_tokens", "output_tokens"):
        for q in ("mean", "p50", "p99"):
            pair = ((one[name] or {}).get(q) for one in (found.trace, found.model))
            cells = (f"{v:,.6g}" if v is not None else "n/a" for v in pair)
            rows.append((f"{name} {q}", *cells))
    print_table("trace and model", ("figure", "trace", "model"), rows, numbers=2)
    print(
        f"KS distances: gaps {found.ks_gaps:.4f}, prompt {found.ks_prompt:.4f}, output "
        f"{found.ks_output:.4f}; independent samples of one distribution stay below "
        f"{found.ks_threshold:.4f} 99 times in 100"
    )
    for path in (output, picture):
        if path is not None:
            print(f"written: {path}")


@app.command
def anonymise(
    file: Source,
    *,
    output: Out,
    key: Annotated[str, Parameter(help="Secret that ids are hashed with; keep it.")],
    keep_models: Annotated[bool, Parameter(help="Keep model names.", negative="")] = False,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Drop text, dates and row numbers; hash ids with a key; start times at 0."""
    from traces.anonymise import anonymise as strip

    trace = load(file, read, seed=seed, spread=False)
    _written(strip(trace, key, keep_models=keep_models), output, json)
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
    """Fetch a public trace, or list them with licence and size; a broken transfer resumes."""
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
    _say(json, document, f"{found.path}\n{found.origin}; sha256 {found.sha256} ({state})")
    return 0


def _list_datasets(json: bool) -> None:
    from dataclasses import asdict

    from traces import datasets
    from zerolayer.output import print_json, print_table

    known = datasets.DATASETS.values()
    here = {one.name: datasets.search(one.file) for one in known}
    if json:
        rows = [{**asdict(one), "here": str(here[one.name] or "") or None} for one in known]
        print_json({"traces": rows})
        return
    table = [
        (one.name, one.about, one.licence, f"{one.size_bytes / 1e6:,.1f} MB" if one.size_bytes else "unknown",
         "yes" if here[one.name] else "no") for one in known
    ]  # fmt: skip
    print_table("public traces", ("name", "what", "licence", "size", "here"), table, numbers=2)


@app.command
def cache(
    file: Source,
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
    found = hit_rates(trace, capacity_blocks, evict)
    document = {
        "name": trace.name, "evict": evict, "capacity_blocks": capacity_blocks,
        "block_tokens": trace.block_tokens, **asdict(found),
    }  # fmt: skip
    bound = "no bound" if capacity_blocks is None else f"{capacity_blocks:,} blocks"
    text = (
        f"{evict}, {bound} of {trace.block_tokens} tokens: {found.hit_rate_blocks:.4f} of blocks, "
        f"{found.hit_rate_tokens:.4f} of tokens"
    )
    _say(json, document, text)
    return 0
