"""One check of a machine in under four minutes: replay, OOM drill, sampler, both worlds."""

import asyncio
import platform
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from dispatch.errors import NotMeasurable
from dispatch.journal import Journal
from live.config import LiveConfig
from live.load import parse_config, slices
from zerolayer.live_worlds import calibrate, say, validate

_SAMPLER_BAR: Final = 0.01  # of a core
_SAMPLER_SECONDS: Final = 5.0
_RING_START_S: Final = 60.0  # its members load torch first


def check(gpu: bool, model: str | None) -> dict[str, Any]:
    """Run every part on CUDA devices (one a GPU), or on two CPU devices."""
    begun = time.monotonic()
    found: dict[str, Any] = {"machine": machine(gpu), "date": time.strftime("%Y-%m-%d")}
    config = _config(gpu, model)
    verdicts: dict[str, str] = {}
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "replay": lambda: _replay(config),
            "oom_drill": lambda: _oom_drill(config),
            "sampler": lambda: _sampler(config, gpu),
            "calibrate": lambda: calibrate(config, folder, "checked", 10.0),
            "validate": lambda: validate(config, folder, "checked", None, None, 0, 2, None),
        }
        for name, part in parts.items():
            say(f"{name} ...")
            started = time.monotonic()
            result = part()
            verdicts[name] = verdict(result)
            found[name] = {**result, "wall_s": time.monotonic() - started}
    found["verdicts"] = verdicts
    found["wall_s"] = time.monotonic() - begun
    return found


def verdict(result: dict[str, Any]) -> str:
    """Return holds, does not hold, or inconclusive where live repeats were too far apart."""
    if not result.get("steady", True):
        return "inconclusive"
    return "holds" if result.get("holds", True) else "does not hold"


def machine(gpu: bool) -> dict[str, Any]:
    """Say what this was measured on."""
    import torch

    found: dict[str, Any] = {
        "cpu": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if gpu:
        if not torch.cuda.is_available():
            raise NotMeasurable("torch sees no CUDA device; run without --gpu for CPU devices")
        count = torch.cuda.device_count()
        found["gpus"] = [torch.cuda.get_device_name(at) for at in range(count)]
    return found


def _config(gpu: bool, model: str | None) -> LiveConfig:
    count = 2
    if gpu:
        import torch

        count = max(1, torch.cuda.device_count())
    devices = slices(count, "cuda" if gpu else "cpu", 256.0 if gpu else 32.0)
    return parse_config({"devices": devices, "model": {"name": model or "tiny"}}, "live check")


def _replay(config: LiveConfig) -> dict[str, Any]:
    from live.calibrate import calibration_trace
    from live.replay.local import replay_local
    from live.replay.run import Plan

    journal = Journal(arm="check")
    run = replay_local(calibration_trace(8.0, 4096), config, "direct", Plan(), journal)
    summary = run.summary()
    finished = summary["outcomes"].get("finished", 0)
    return {**summary, "holds": finished == summary["offered"]}


def _oom_drill(config: LiveConfig) -> dict[str, Any]:
    """Fill contiguous memory; the one that does not fit dies alone, and all is free at the end."""
    import httpx

    from live.serve import direct_door

    small = config.devices[0].model_copy(update={"kv_mib": 1.0})
    engine = config.engine.model_copy(update={"kv": "contiguous", "admission": "optimistic"})
    policy = config.policy.model_copy(update={"name": "round_robin", "params": {}})
    tight = config.model_copy(update={"devices": (small,), "engine": engine, "policy": policy})

    async def run() -> dict[str, Any]:
        async with direct_door(tight) as door:
            room = door.placer.devices[0].engine.cache.capacity_tokens
            body = {
                "model": door.placer.model_name,
                "prompt": "x",
                "max_tokens": min(int(room * 0.6), door.placer.context_tokens - 8),
                "output_tokens": 64,
            }
            async with httpx.AsyncClient(base_url=door.url, timeout=120) as http:
                posts = [http.post("/v1/completions", json=body) for _ in range(2)]
                answers = await asyncio.gather(*posts)
                after = await http.post("/v1/completions", json=body)
            await asyncio.sleep(0.1)
            left = door.placer.devices[0].snapshot().used_bytes
            statuses = sorted(a.status_code for a in answers)
            holds = statuses == [200, 503] and after.status_code == 200 and left == 0
            return {"statuses": statuses, "left_bytes": left, "holds": holds}

    return asyncio.run(run())


def _sampler(config: LiveConfig, gpu: bool) -> dict[str, Any]:
    """Measure what telemetry costs at the configured interval, a ring over all devices included."""
    from live.serve import direct_door

    count = len(config.devices)
    if count > 1:
        ringed = tuple(one.model_copy(update={"ring": "check"}) for one in config.devices)
        config = config.model_copy(update={"devices": ringed})

    async def run() -> dict[str, Any]:
        async with direct_door(config) as door:
            limit = time.monotonic() + _RING_START_S
            while count > 1 and not door.sampler.ring_s and time.monotonic() < limit:
                await asyncio.sleep(0.1)
            await asyncio.sleep(_SAMPLER_SECONDS)
            ring_us = {name: ring_s * 1e6 for name, ring_s in door.sampler.ring_s.items()}
            ratio = door.sampler.cpu_ratio
            return {"cpu_ratio": ratio, "devices": count, "nvml": gpu, "ring_us": ring_us}

    found = asyncio.run(run())
    measured = bool(found["ring_us"]) or count == 1
    return {**found, "holds": measured and found["cpu_ratio"] <= _SAMPLER_BAR}
