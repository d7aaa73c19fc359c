"""``zerolayer bench live``: what the doors cost, beside floors measured in the same run."""

from typing import Annotated, Any

from cyclopts import Parameter


def live(
    *,
    calls: Annotated[int, Parameter(help="Requests a figure, in five rounds.")] = 100,
    clients: Annotated[str, Parameter(help="Numbers of concurrent clients.")] = "1,8,64",
    sizes: Annotated[str, Parameter(help="Prompt sizes in bytes.")] = "5,4000,100000",
    streams: Annotated[int, Parameter(help="Streams to hold open; 0 leaves that out.")] = 0,
    seconds: Annotated[float, Parameter(help="How long they are held.")] = 60.0,
    json: Annotated[bool, Parameter(name="--json", negative="", help="Print JSON.")] = False,
) -> int:
    """Measure handling time before the device, legacy and direct, and the doors over their floors.

    Legacy over direct is reported with its interval, never judged. Exit code 1: a bar is missed.
    """
    import json as codec

    from live.bench import measure

    counts = _numbers("--clients", clients, "1,8,64")
    found: dict[str, Any] = measure(calls, counts, _numbers("--sizes", sizes, "5,4000"))
    if streams:
        found["streams"] = _streams(streams, seconds)
        found["bars"]["streams held without error, books balanced"] = found["streams"]["holds"]
    if json:
        print(codec.dumps(found, indent=2))
    else:
        _print(found)
    return 0 if all(found["bars"].values()) else 1


def _numbers(option: str, text: str, example: str) -> tuple[int, ...]:
    from dispatch.errors import InputError

    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise InputError.at(option, f"{text!r} is no list of numbers", f"write {example}")
    return tuple(int(part) for part in parts)


def _streams(count: int, seconds: float) -> dict[str, Any]:
    import asyncio

    from live.bench import hold_streams, resident_bytes
    from live.config import LiveConfig
    from live.process import DoorProcess

    config = LiveConfig.model_validate(
        {
            "devices": [{"name": "a", "kv_mib": 256}, {"name": "b", "kv_mib": 256}],
            "engine": {"max_num_seqs": 64, "max_waiting": 4096},
            "wait": {"deadline_s": 10 * seconds + 600},
        }
    )
    with DoorProcess(config) as door:
        for _ in range(2):  # what the first round of so many leaves is the allocator's, not growth
            asyncio.run(hold_streams(door.url, count, seconds / 6))
        warm = resident_bytes(door.process.pid)
        counts = asyncio.run(hold_streams(door.url, count, seconds))
        grown = resident_bytes(door.process.pid) - warm
        code = door.stop()  # a door whose books do not balance at the end fails
    holds = counts["errors"] == 0 and code == 0 and grown < 0.05 * warm
    return {**counts, "grown_mib": grown / 2**20, "exit": code, "holds": holds}


def _by_body(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title="round trip before a device that answers at once, ms")
    for heading in ("clients", "prompt bytes", "direct p50", "legacy p50"):
        table.add_column(heading, justify="right")
    for row in rows:
        figures = [f"{row[k]:.2f}" for k in ("direct_p50_ms", "legacy_p50_ms")]
        table.add_row(str(row["clients"]), f"{row['prompt_bytes']:,}", *figures)
    return table


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=80)
    table = Table(title="handling time before the device, ms")
    for heading in ("clients", "direct p50", "p99", "legacy p50", "p99", "legacy / direct"):
        table.add_column(heading, justify="right")
    for row in found["handling"]:
        low, high = row["interval"]
        table.add_row(
            str(row["clients"]),
            *(f"{row[k]:.3f}" for k in ("direct_p50_ms", "direct_p99_ms")),
            *(f"{row[k]:.3f}" for k in ("legacy_p50_ms", "legacy_p99_ms")),
            f"{row['legacy_over_direct']:.2f} [{low:.2f}, {high:.2f}]",
        )
    console.print(table)
    console.print(_by_body(found["by_body"]))
    for name, value in {**found["round_trips"], **found["ratios"]}.items():
        console.print(f"{name}: {value:.3f}")
    spread = ", ".join(f"{n} {low:.2f} to {high:.2f}" for n, (low, high) in found["spread"].items())
    console.print(f"ratios by round: {spread}")
    if found["load_per_core"] > 1.5:
        console.print(f"the machine is busy ({found['load_per_core']:.1f} a core): measure again")
    for name, held in found["bars"].items():
        console.print(f"{'holds' if held else 'MISSED'}: {name}")
