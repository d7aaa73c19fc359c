"""``zerolayer bench sim``: simulated requests per second on this machine, beside the bars."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from zerolayer.peers import Peer
    from zerolayer.simulations import Timed

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


def sim(
    *,
    rounds: Annotated[int, Parameter(help="Runs of the short shapes; the best counts.")] = 3,
    large: Annotated[
        bool, Parameter(help="Also 1.8 million requests on 4,000 GPUs.", negative="")
    ] = False,
    week: Annotated[
        bool, Parameter(help="Also a generated week of 27.3 million requests.", negative="")
    ] = False,
    peers: Annotated[
        bool, Parameter(help="Also the peer simulators that are installed.", negative="")
    ] = False,
    json: Json = False,
) -> int:
    """Replay fixed traces on fixed fleets, journal written, and print requests per second.

    Times are of the processor, so that other work on the machine counts less; `loop` is a bare
    Python loop beside each run and says how fast the core was. With --peers the same requests go
    through Vidur, splitwise-sim and vllm-sr-sim, those that are found, in the same run.
    """
    from dispatch.errors import InputError
    from zerolayer import simulations as s

    if rounds < 1:
        raise InputError.at("--rounds", f"found {rounds}", "give 1 or more")
    hour = s.hour()
    done: list[Timed] = []

    def take(run: "Timed") -> None:
        done.append(run)

    def say(text: str) -> None:
        print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    for shape in (s.HOUR_ON_8, s.HOUR_ON_8_LEAST):
        say(f"{shape.name}, {shape.policy}")
        take(s.timed(shape, lambda: hour, hour.name, rounds=rounds))
    say(s.FLEET_OF_1000.name)
    crowd = list(s.at_rate(700.0, 60.0))
    take(s.timed(s.FLEET_OF_1000, lambda: iter(crowd), "Poisson, 700/s", rounds=rounds))
    long = [
        (large, s.FLEET_OF_4000, 30_000.0, 60.0, 0.0),
        (week, s.WEEK, s.WEEK_REQUESTS / 604_800, 604_800.0, 0.5),
    ]
    for wanted, shape, rate, span_s, daily in long:
        if not wanted:
            continue
        count = [0]

        def progress(n: int, count: list[int] = count, whole: float = rate * span_s) -> None:
            count[0] += n
            if count[0] % 65_536 < n:
                say(f"{count[0]:,} of {whole:,.0f} requests")

        offered = s.at_rate(rate, span_s, daily=daily)
        run = s.timed(shape, lambda o=offered: o, f"Poisson, {rate:,.0f}/s", progress=progress)  # type: ignore[misc]
        take(run)
    found = []
    if peers:
        from zerolayer.peers import run_all

        found = run_all(hour, say)
    say("")
    if json:
        _print_json(done, found)
    else:
        _print(done, found)
    return 0


def _print_json(runs: "list[Timed]", peers: "list[Peer]") -> None:
    from dataclasses import asdict
    from json import dumps

    from zerolayer import decisions

    rows = [{**asdict(r), "requests_per_s": r.per_s, "holds": r.holds} for r in runs]
    body = {"rows": rows, "peers": [asdict(p) for p in peers], "machine": decisions.machine(),
            "sources": _sources()}  # fmt: skip
    print(dumps(body, indent=2))


def _print(runs: "list[Timed]", peers: "list[Peer]") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=80) if not sys.stdout.isatty() else Console()
    table = Table(title="Simulated requests per second, one core", box=None)
    table.add_column("shape")
    table.add_column("policy", no_wrap=True)
    for heading in ("requests", "req/s", "bar", "wall s", "MiB", "loop ns"):
        table.add_column(heading, justify="right", no_wrap=True)
    for r in runs:
        bar = f"{r.shape.bar_per_s:,.0f}" if r.shape.bar_per_s else ""
        if r.shape.bar_s:
            bar = f"{r.shape.bar_s:.0f} s"
        table.add_row(
            r.shape.name, r.shape.policy, f"{r.requests:,}", f"{r.per_s:,.0f}", bar,
            f"{r.wall_s:.1f}", f"{r.peak_bytes / 2**20:,.0f}", f"{r.loop_ns:.0f}",
        )  # fmt: skip
    console.print(table)
    ours = next(r for r in runs if r.shape.policy == "least_requests")  # as cheap as theirs
    for p in peers:
        if p.requests_per_s:
            ratio = ours.per_s / p.requests_per_s
            console.print(
                f"{p.name}: {p.requests_per_s:,.0f} requests/s over {p.requests:,} requests, "
                f"start-up included; this simulator under {ours.shape.policy} is {ratio:.1f} "
                "times as fast.", highlight=False,
            )  # fmt: skip
        else:
            console.print(f"{p.name}: {p.note}", highlight=False)
    console.print(
        f"Trace of the hour: {runs[0].trace}. req/s by processor time; MiB is the peak so far. "
        f"Sources {_sources()}.", highlight=False,
    )  # fmt: skip


def _sources() -> str:
    """Say whether the simulator that ran is compiled (:mod:`zerolayer.compiled`)."""
    from sim import engine

    return "as they are" if str(engine.__file__).endswith(".py") else "compiled"
