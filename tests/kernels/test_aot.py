"""Compiled ahead of time for GPUs that are not here: what kernels take, and what the PTX says.

Compiler and interpreter cannot share a process, so one child compiles them all.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.aot_check import CEILINGS

ROOT = Path(__file__).parents[2]
_CODE = """
import json, sys
from dataclasses import asdict
from dispatch.hardware import model
from kernels import aot
from kernels.spec import decode_tiling, prompt_tiling, spec_of
for name, batch, target, phases, prompt in json.loads(sys.argv[1]):
    spec = spec_of(model(name))
    tiling = prompt_tiling(spec, batch) if prompt else decode_tiling(spec, batch)
    built = aot.build(spec, tiling, target, phases, prompt=prompt,
                      scratch="bfloat16" if prompt else "float32")
    told = {f: getattr(built, f) for f in ("registers", "stack_bytes", "shared_bytes", "spills",
            "tensor_cores", "async_copies", "barriers", "acquires", "uncached_reads")}
    head = next(line for line in built.ptx.splitlines() if line.startswith(".target"))
    print(json.dumps({**told, "target": head.split()[1]}), flush=True)
"""
WANTED = [
    ("gpt-2", 1, 80, (0, 5), False), ("llama-3.2-1b", 8, 90, (0, 5), False),
    ("llama-3.1-8b", 4096, 90, (0, 1), True), ("llama-3.1-8b", 4096, 90, (1, 2), True),
    ("llama-3.1-8b", 4096, 90, (3, 4), True), ("llama-3.1-8b", 4096, 80, (1, 2), True),
]  # fmt: skip


@pytest.fixture(scope="module")
def built() -> list[dict[str, Any]]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _CODE, json.dumps(WANTED)], cwd=ROOT,
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_every_launch_stays_under_its_ceilings(built: list[dict[str, Any]]) -> None:
    for (*_, prompt), one in zip(WANTED, built, strict=True):
        for name, ceiling in CEILINGS["prefill" if prompt else "decode"].items():
            assert one[name] <= ceiling, (name, one)


@pytest.mark.slow
def test_weights_stream_and_tensor_cores_multiply(built: list[dict[str, Any]]) -> None:
    for one in built:
        assert one["tensor_cores"] > 0
        assert one["async_copies"] > 0


@pytest.mark.slow
def test_every_barrier_releases_and_acquires_in_the_ptx(built: list[dict[str, Any]]) -> None:
    for (*_, phases, _), one in zip(WANTED, built, strict=True):
        if phases != (0, 5):
            continue
        assert one["barriers"] == 5  # four barriers and the ticket of split attention
        assert one["acquires"] == 4
        assert one["uncached_reads"] == 0  # no acquire would reach those


@pytest.mark.slow
def test_the_target_is_the_one_asked_for(built: list[dict[str, Any]]) -> None:
    for (_, _, target, *_), one in zip(WANTED, built, strict=True):
        assert one["target"].rstrip(",").startswith(f"sm_{target}")
