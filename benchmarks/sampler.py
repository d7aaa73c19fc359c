"""What telemetry costs: ``python benchmarks/sampler.py [--gpus 8] [--ring 2] [--seconds 20]``.

Runs the door's own sampler every 50 ms over as many devices, with the real ``pynvml`` on the NVML
stand-in of the tests (built here from C; needs a C compiler), and a ring probe every second over
``--ring`` members. Prints the share of a core and the bar, 1 %; exit code 1 where it is missed.

The stand-in answers at once: what a driver takes for the same calls is not measured here. On a
machine with GPUs: ``zerolayer live check --gpu``.
"""

import argparse
import asyncio
import ctypes
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

BAR = 0.01
SOURCE = Path(__file__).parents[1] / "tests" / "live" / "fake_nvml.c"


def build(folder: Path) -> Any:
    """Build and load the stand-in under NVML's soname, so that pynvml finds it."""
    out = folder / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run(["cc", *flags, "-o", str(out), str(SOURCE)], check=True)
    return ctypes.CDLL(str(out), mode=ctypes.RTLD_GLOBAL)


async def sample(gpus: int, ring: int, seconds: float) -> dict[str, Any]:
    """Return what the sampler of a door over *gpus* devices costs."""
    from live import sampler as room
    from live.config import LiveConfig
    from live.placer import Placer

    devices = [
        {"name": f"gpu{at}", "kv_mib": 1, "ring": "r" if at < ring else ""} for at in range(gpus)
    ]
    config = LiveConfig.model_validate({"devices": devices})
    placer = Placer(config)
    uuids = {at: f"GPU-{at}" for at in range(gpus)}
    opened = room.Sampler._open_nvml
    with (
        patch.object(room, "cuda_uuids", lambda devices: uuids),
        patch.object(room.Sampler, "_open_gpus", opened),
    ):
        async with room.Sampler(placer, config, None) as sampler:
            await asyncio.sleep(seconds)
            found = {
                "cpu_ratio": sampler.cpu_ratio,
                "nvml_cpu_ratio": sampler.nvml_cpu_ratio,
                "samples": sampler.samples,
                "late": sampler.late,
                "door_cpu_ratio": sampler._cpu_s / seconds,
                "ring_us": {name: s * 1e6 for name, s in sampler.ring_s.items()},
            }
    await placer.stop()
    return found


def main() -> int:
    """Print the figure and the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--ring", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder)).fake_reset(asked.gpus)
        found = asyncio.run(sample(asked.gpus, asked.ring, asked.seconds))
    print(json.dumps({**vars(asked), **found, "bar": BAR, "holds": found["cpu_ratio"] <= BAR}))
    return 0 if found["cpu_ratio"] <= BAR else 1


if __name__ == "__main__":
    raise SystemExit(main())
