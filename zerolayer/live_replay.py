"""Carry out one live replay, and leave it as a run folder."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dispatch.journal import Journal
from live.config import LiveConfig
from live.replay.journal import write
from live.replay.local import replay_local
from live.replay.run import Plan, Replay, Target, find_target
from live.replay.run import replay as send
from scenarios import manifest
from scenarios.run import describe
from traces.sink import ParquetSink
from traces.trace import Trace


@dataclass(frozen=True, slots=True)
class Order:
    """What to replay and against what: a door of *setup* started here, or the server at a URL."""

    rows: Trace
    plan: Plan
    arm: Any  # direct, legacy or remote
    setup: LiveConfig | None
    url: str = ""
    api_key: str = ""
    model: str = ""


def carry_out(
    order: Order, folder: Path | None, progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Replay, write tables and manifest into *folder*, and return the summary."""
    started_at = manifest.now()
    sink = None if folder is None else ParquetSink(folder)
    journal = Journal(sink, arm=order.arm)
    if order.setup is not None:
        run = replay_local(order.rows, order.setup, order.arm, order.plan, journal, progress)
    else:
        target = asyncio.run(find_target(order.url, order.api_key, order.model))
        run = asyncio.run(_send(order, target, progress))
        write(run, order.rows, journal)
    journal.close()
    summary = run.summary()
    if sink is not None and folder is not None:
        sink.close()
        manifest.write(folder, _about(order, summary, started_at))
    return summary


async def _send(order: Order, target: Target, progress: Callable[[int, int], None]) -> Replay:
    return await send(order.rows, target, order.plan, progress)


def _about(order: Order, summary: dict[str, Any], started_at: str) -> dict[str, Any]:
    """Return the manifest: a scenario of one arm, as far as a replay has one."""
    devices = order.setup.devices if order.setup is not None else ()
    facts = {**summary, "notes": [*summary["notes"], *summary["problems"]]}
    return {
        "manifest_version": 1,
        "world": "live",
        "scenario": {"name": "replay", "baseline": order.arm, "arms": [{"name": order.arm}]},
        "trace": describe(order.rows),
        "live": order.setup.model_dump(mode="json") if order.setup is not None else order.url,
        "arms": {
            order.arm: {
                "devices": [
                    {"device": at, "name": d.name, "pool": d.kind, "gpu": d.gpu, "gpus": 1}
                    for at, d in enumerate(devices)
                ],
                "facts": [facts],
            }
        },
        "seed": order.plan.seed,
        "replicates": 1,
        "code": manifest.code_version(),
        "packages": manifest.packages(),
        "machine": manifest.machine(),
        "argv": [a.replace(order.api_key, "(key)") if order.api_key else a for a in sys.argv],
        "started_at": started_at,
    }
