"""``zerolayer trace``: the verbs that make a trace, or another one of it."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from zerolayer.options import JsonOption
from zerolayer.trace_options import (
    DEFAULTS,
    Out,
    ReadOptions,
    Seed,
    Source,
    load,
    paths_of,
    ready,
    side_file,
    written,
)  # fmt: skip


def slice_(
    file: Source,
    /,
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

    ready(output, file, read=read)
    trace = load(file, read, seed=seed)
    cut = traces.slice(trace, start_s=start, duration_s=duration, limit=limit)
    if not len(cut):
        from dispatch.errors import InputError

        raise InputError.at(
            file, f"has no request there; it spans {trace.span_s:,.6g} s", "move or widen the cut"
        )
    written(cut, output, json)
    return 0


def scale(
    file: Source,
    factor: Annotated[float, Parameter(help="How many times the rate: 0.5, 3, 12.5.")],
    /,
    *,
    output: Out,
    squeeze: Annotated[
        bool, Parameter(help="Divide time instead, which shortens every pause.", negative="")
    ] = False,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Scale the rate by thinning or by superposition.

    Below 1 requests are left out by seed; above it shifted copies are laid over each other.
    """
    import traces

    ready(output, file, read=read)
    trace = load(file, read, seed=seed)
    written(traces.scale(trace, factor, seed, squeeze=squeeze), output, json)
    return 0


def mix(
    files: Annotated[list[str], Parameter(help="Trace files or names, two or more.")],
    /,
    *,
    output: Out,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Lay several traces over each other.

    Models, sessions and prefixes of different traces stay apart.
    """
    import traces

    ready(output, *files, read=read)
    written(traces.mix([load(file, read, seed=seed) for file in files]), output, json)
    return 0


def synth(
    model: Annotated[str, Parameter(help="A bundled model, or a TOML file that `fit` wrote.")],
    /,
    *,
    output: Out,
    settings: Annotated[
        list[str] | None,
        Parameter(name="--set", help="key=value: --set arrivals.rate_per_s=20", negative=""),
    ] = None,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Make a trace from a bundled model or a fitted one.

    Arrivals are Poisson, gamma, MMPP, daily or as fitted; conversations may share prefixes.
    Bundled models: azure-2023-conv, poisson, gamma, mmpp, diurnal, chat.
    """
    from traces import export
    from traces import synth as made
    from traces.synthetic import settings_of
    from zerolayer import targets

    export.ending(output)
    targets.ready(output, [model])
    written(made.generate(model, settings_of(settings or []), seed), output, json)
    return 0


def fit(
    file: Source,
    /,
    *,
    output: Annotated[
        Path | None, Parameter(name=["-o", "--output"], help="TOML file for the model.")
    ] = None,
    picture: Annotated[
        Path | None, Parameter(help="Picture of trace and model: .png, .svg or .pdf.")
    ] = None,
    step: Annotated[
        float | None, Parameter(help="Seconds a step of the rate; by its burstiness otherwise.")
    ] = None,
    window: Annotated[
        float | None, Parameter(help="Seconds a window of lengths; 600, or a 24th of a long trace.")
    ] = None,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Find parameters that reproduce a trace, and show how well they do."""
    from dataclasses import asdict

    from dispatch.errors import InputError
    from traces import fit as fitting
    from traces import goodness, show
    from traces.toml_text import dump
    from zerolayer import targets
    from zerolayer.output import print_json, print_table

    for name, value in (("--step", step), ("--window", window)):
        if value is not None and not 0 < value < float("inf"):
            raise InputError.at(name, f"is {value:g}", "give a positive number of seconds")
    if picture is not None and picture.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError.at(str(picture), "has no known ending", "use .png, .svg or .pdf")
    side = side_file(file, read)
    if output is not None:
        targets.ready(output, paths_of([file]), [picture, side])
    if picture is not None:
        targets.ready(picture, paths_of([file]), [side])
    trace = load(file, read, seed=seed)
    model, made, found = fitting.judged(trace, step_s=step, window_s=window, seed=seed)
    if output is not None:
        targets.write_text(output, dump(model))
    if picture is not None:
        goodness.picture(trace, made, found, picture)
    if json:
        print_json({"model": model, "goodness": asdict(found)})
        return 0
    head = ("figure", "trace", "model")
    print_table("trace and model", head, show.fit_figures(found), numbers=2)
    print(show.fit_verdict(found))
    for path in (output, picture):
        if path is not None:
            print(f"written: {path}")
    return 0


def anonymise(
    file: Source,
    /,
    *,
    output: Out,
    key: Annotated[
        str,
        Parameter(help="Secret that ids are hashed with; keep it.", env_var="ZEROLAYER_TRACE_KEY"),
    ],
    keep_models: Annotated[bool, Parameter(help="Keep model names.", negative="")] = False,
    read: ReadOptions = DEFAULTS,
    seed: Seed = 0,
    json: JsonOption = False,
) -> int:
    """Drop text, dates and lines; hash ids with a key.

    Times start at 0; arrival times and lengths stay, and may tell a rare request.
    """
    from traces.anonymise import anonymise as strip

    ready(output, file, read=read)
    trace = load(file, read, seed=seed, spread=False)
    written(strip(trace, key, keep_models=keep_models), output, json)
    return 0
