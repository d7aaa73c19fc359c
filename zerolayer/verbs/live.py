"""``zerolayer live``: serve, replay, calibrate, validate and check on real devices."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter, validators

app = App(name="live", help="The same dispatcher on real devices, behind a real door.")

_ONE_OR_MORE = validators.Number(gte=1)
Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]
Config = Annotated[Path | None, Parameter(help="A live set-up in TOML; see docs/live.md.")]
DoorKind = Annotated[
    Literal["direct", "legacy"], Parameter(help="The shared dispatcher, or the legacy router.")
]
Devices = Annotated[
    int | None,
    Parameter(help="So many equal devices, instead of the set-up's.", validator=_ONE_OR_MORE),
]
Limit = Annotated[
    int | None, Parameter(help="Take only so many rows of the trace.", validator=_ONE_OR_MORE)
]
Model = Annotated[
    str | None, Parameter(help="tiny, small, medium, or the folder of a Llama checkpoint.")
]
Policy = Annotated[str | None, Parameter(help="How the direct door places; `zerolayer policies`.")]
Format = Annotated[str | None, Parameter(help="Format of the trace; told by its content without.")]
Key = Annotated[
    str, Parameter(env_var="ZEROLAYER_API_KEY", help="Key that requests must bear; empty: none.")
]
Port = Annotated[
    int, Parameter(help="0 takes a free one.", validator=validators.Number(gte=0, lt=65536))
]
Kind = Annotated[
    Literal["cpu", "cuda"], Parameter(help="What devices are; cuda without --devices: one a card.")
]


def _setup(
    config: Path | None, devices: int | None, kind: str, model: str | None, policy: str | None
) -> Any:
    from live.load import cuda_count, read_config, slices

    cards = cuda_count() if kind == "cuda" else 0
    count = devices or cards  # one device a card where no number is given
    return read_config(
        config,
        devices=slices(count, kind, cards=cards) if count else None,
        model={"name": model} if model else None,
        policy={"name": policy} if policy else None,
    )


@app.command
def serve(
    *,
    config: Config = None,
    door: DoorKind = "direct",
    host: Annotated[str, Parameter(help="Address to listen on.")] = "127.0.0.1",
    port: Port = 8000,
    devices: Devices = None,
    kind: Kind = "cpu",
    model: Model = None,
    policy: Policy = None,
    api_key: Key = "",
    json: Json = False,
) -> int:
    """Serve /v1/completions until SIGTERM or Ctrl-C, then drain.

    Loopback unless --host says otherwise; a public host without an API key is refused.
    """
    import asyncio
    import json as codec
    import sys

    from dispatch.errors import InputError
    from live.main import backend_of, open_door
    from live.serve import until_signal

    if host not in ("127.0.0.1", "::1", "localhost") and not api_key:
        raise InputError.at("--host", f"{host} is not loopback", "set --api-key too")
    whole = _setup(config, devices, kind, model, policy)

    async def run() -> None:
        options = {"host": host, "port": port, "api_key": api_key}
        async with open_door(door, whole, None, **options) as running:
            backend = backend_of(running)
            told = {"url": running.url, "door": door, "model": backend.model_name}
            if json:
                print(codec.dumps(told), flush=True)
            else:
                print(f"{door} door at {running.url}, model {told['model']}", file=sys.stderr)
            await until_signal()
            print("draining", file=sys.stderr)

    asyncio.run(run())
    return 0


@app.command
def replay(
    trace: str,
    /,
    *,
    target: Annotated[
        str, Parameter(help="URL of a server, or local: a door started here.")
    ] = "local",
    config: Config = None,
    door: DoorKind = "direct",
    devices: Devices = None,
    kind: Kind = "cpu",
    model: Model = None,
    policy: Policy = None,
    format: Format = None,
    limit: Limit = None,
    deadline_s: Annotated[float, Parameter(help="No answer after so long: timed out.")] = 30.0,
    drain_s: Annotated[float, Parameter(help="Wait so long after the last request.")] = 60.0,
    lag_limit_ms: Annotated[
        float, Parameter(help="A client later than this at p99 degrades the run.")
    ] = 10.0,
    max_error_ratio: Annotated[
        float, Parameter(help="Stop where more than this share of the answers are errors.")
    ] = 1.0,
    api_key: Key = "",
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Run folder to write.")
    ] = None,
    force: Annotated[bool, Parameter(help="Replace an existing run folder.", negative="")] = False,
    json: Json = False,
) -> int:
    """Replay a trace open loop against a URL, or against a door started here (``local``).

    Writes a run folder (tables and manifest) into -o, which ``explain`` and ``diff`` read. Exit
    code 3 where the client itself was late or stopped: such a run says nothing of the server.
    """
    import json as codec
    from contextlib import nullcontext

    from dispatch.errors import InputError
    from live.replay.run import Plan
    from scenarios.folder import whole
    from traces import read
    from zerolayer.live_replay import Order, carry_out

    ours = {"config": config, "devices": devices, "policy": policy}
    given = [f"--{name}" for name, value in ours.items() if value is not None]
    given += ["--door"] if door != "direct" else []
    if target != "local" and given:
        raise InputError.at(given[0], f"says nothing to the server at {target}", "leave it out")
    rows = read(trace, format=format)
    if limit is not None and limit < len(rows):
        import numpy as np

        rows = rows.take(np.arange(limit))
    plan = Plan(
        deadline_s=deadline_s,
        drain_s=drain_s,
        lag_limit_s=lag_limit_ms / 1e3,
        max_error_ratio=max_error_ratio,
    )
    local = target == "local"
    order = Order(
        rows,
        plan,
        door if local else "remote",
        _setup(config, devices, kind, model, policy) if local else None,
        target,
        api_key,
        model or "",
    )
    place = nullcontext(None) if output is None else whole(output, force)
    with place as folder:
        summary = carry_out(order, folder, _progress)
    if json:
        print(codec.dumps(summary, indent=2))
    else:
        _print_table("replay", summary)
    return 3 if summary["degraded"] else 0


@app.command
def calibrate(
    output: Annotated[Path, Parameter(name=["--output", "-o"], help="Hardware folder to write.")],
    *,
    config: Config = None,
    name: Annotated[str, Parameter(help="Name of the device in the folder.")] = "live-cpu",
    kind: Kind = "cpu",
    model: Model = None,
    seconds: Annotated[float, Parameter(help="How long to measure.")] = 20.0,
    json: Json = False,
) -> int:
    """Measure the first device of a set-up into a hardware folder that the simulator reads.

    Then: ZEROLAYER_HARDWARE=FOLDER zerolayer live validate TRACE --hardware FOLDER.
    """
    import json as codec

    from zerolayer.live_worlds import calibrate as run

    found = run(_setup(config, None, kind, model, None), output, name, seconds)
    print(codec.dumps(found, indent=2)) if json else _print_table("calibration", found)
    return 0


@app.command
def validate(
    trace: Annotated[str | None, Parameter(help="A trace; without one, one is made.")] = None,
    *,
    hardware: Annotated[Path, Parameter(help="Folder written by `live calibrate`.")],
    config: Config = None,
    name: Annotated[str, Parameter(help="Name of the device in the folder.")] = "live-cpu",
    kind: Kind = "cpu",
    model: Model = None,
    format: Format = None,
    limit: Annotated[int, Parameter(help="Take only so many rows of the trace.")] = 200,
    repeats: Annotated[int, Parameter(help="Live runs, to know how far two differ.")] = 2,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Folder for tables and the Q-Q plot.")
    ] = None,
    json: Json = False,
) -> int:
    """Replay one trace live and simulated, and state the error quantile by quantile.

    Holds (0) where medians are within max(10 %, twice the error between two live repeats) and p99
    within 25 % likewise, and every recorded decision comes out the same; else 1. Inconclusive (3)
    where two live repeats are more than 25 % apart: then no bar means anything.
    """
    import json as codec

    from zerolayer.live_worlds import validate as run

    whole = _setup(config, None, kind, model, None)
    found = run(whole, hardware, name, trace, format, limit, repeats, output)
    if json:
        print(codec.dumps(found, indent=2))
    else:
        _print_rows("live against simulated", found["rows"])
        _print_table("placement", found["placement"])
    if not found["steady"]:
        return 3
    return 0 if found["holds"] else 1


@app.command
def check(
    *,
    gpu: Annotated[bool, Parameter(help="CUDA devices, one a card.", negative="")] = False,
    model: Model = None,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="File for the JSON.")
    ] = None,
    json: Json = False,
) -> int:
    """Serve, replay, calibrate, an OOM drill and the sampler's cost, in one run of < 4 minutes.

    --gpu uses CUDA devices (one a GPU); without it CPU devices. Writes JSON to -o. Exit code 3
    where nothing failed but two live repeats differed too much to judge the simulator.
    """
    import json as codec

    from zerolayer.live_check import check as run

    found = run(gpu, model)
    text = codec.dumps(found, indent=2)
    if output is not None:
        output.write_text(text + "\n", encoding="utf-8")
    print(text) if json or output is None else _print_table("live check", found["verdicts"])
    verdicts = set(found["verdicts"].values())
    return 1 if "does not hold" in verdicts else 3 if "inconclusive" in verdicts else 0


def _progress(done: int, of: int) -> None:
    import sys

    end = "\n" if done == of else ""
    print(f"\rsent {done:,} of {of:,}", end=end, file=sys.stderr, flush=True)


def _print_table(title: str, values: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, show_header=False)
    for key, value in values.items():
        table.add_row(key, _shown(value))
    Console(width=80).print(table)


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(map(_shown, value)) or "none"
    return {"True": "yes", "False": "no", "None": "-"}.get(str(value), str(value))


def _print_rows(title: str, rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for key in rows[0]:
        table.add_column(key)
    for row in rows:
        table.add_row(*map(_shown, row.values()))
    Console(width=80).print(table)
