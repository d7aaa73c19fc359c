"""``zerolayer bench dispatch``: microseconds and allocations per decision, by policy and fleet."""

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from zerolayer.decisions import Row

_FEW = 6  # policies, beyond which each gets fewer rounds

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")]


def dispatch(
    *,
    policy: Annotated[str, Parameter(help="Names, comma-separated; all by default.")] = "",
    devices: Annotated[str, Parameter(help="Fleet sizes, comma-separated.")] = "8,64,1000,10000",
    seconds: Annotated[float, Parameter(help="Time for each row, about.")] = 0.1,
    json: Json = False,
) -> int:
    """Measure a decision of each policy: choose, reserve, journal row, start and release.

    p50 and p99 are over the decisions of one replayed stream, each the best of its rounds (5, or 3
    where many policies are asked for), since interference only ever adds; the raw p99 stands
    beside. ``floor`` is one numpy argmax over as many devices, measured in the same run; ``legacy``
    is the legacy layer's own decision path.
    """
    from dispatch import registry
    from dispatch.errors import InputError, UnknownNameError
    from scenarios.progress import show
    from zerolayer import decision_bars, decisions

    known = [*registry.names(), "legacy"]
    names = [n.strip() for n in policy.split(",") if n.strip()] or known
    for name in names:
        if name not in known:
            raise UnknownNameError("--policy", "policy", name, known)
    try:
        sizes = [int(d) for d in devices.split(",")]
    except ValueError:
        sizes = [0]
    if min(sizes) < 1 or not seconds > 0:
        raise InputError.at(
            "--devices, --seconds", f"found {devices!r}, {seconds}", "give e.g. 8,1000 and 0.5"
        )
    if "legacy" not in names:
        names.append("legacy")
    rows = []
    few = len(names) > _FEW
    with show("bench dispatch", len(names) * len(sizes), "rows") as progress:
        for name in names:
            for size in sizes:
                progress.note(f"{name} at {size} devices")
                barred = name == "topology" or not few
                rounds = decisions.ROUNDS if barred else decisions.FEW_ROUNDS
                rows.append(decisions.measure(name, size, seconds, rounds=rounds))
                progress.add(1)
    sampling = decisions.sampling_ratio(1000)
    bars = decision_bars.bars(rows, sampling)
    if json:
        from dataclasses import asdict
        from json import dumps

        body = {
            "rows": [asdict(r) for r in rows],
            "sampling": sampling,
            "bars": [{**asdict(bar), "holds": bar.holds} for bar in bars],
        }
        print(dumps({**body, "machine": decisions.machine()}, indent=2))
        return 0
    _print(rows, sampling)
    for bar in bars:
        print(bar)
    return 0


def _print(rows: "list[Row]", sampling: dict[str, float]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Microseconds per decision", box=None)
    table.add_column("policy", no_wrap=True)
    for heading in ("devices", "p50", "p99", "raw p99", "floor", "peak B", "kept"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.policy,
            str(row.devices),
            f"{row.p50_us:.1f}",
            f"{row.p99_us:.1f}",
            f"{row.raw_p99_us:.1f}",
            f"{row.floor_us:.1f}",
            str(row.peak_bytes),
            f"{abs(row.kept_blocks):.1f}" if row.kept_blocks > -0.05 else f"{row.kept_blocks:.1f}",
        )
    counts = sorted({row.rounds for row in rows})
    rounds = " or ".join(map(str, counts)) + (" (topology)" if len(counts) > 1 else "")
    console = Console(width=80) if not sys.stdout.isatty() else Console()
    console.print(table)
    console.print(
        f"p50, p99: each decision's best of {rounds} rounds; raw p99: of all; floor: one argmax.\n"
        "peak B: most bytes allocated within a decision; kept: objects that outlive it.\n"
        f"Sampling {sampling['devices']:.0f} devices every {sampling['interval_ms']:.0f} ms takes "
        f"{100 * sampling['core_ratio']:.2f} % of a core.",
        highlight=False,
    )
