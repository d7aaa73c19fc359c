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
from dataclasses import replace
from dispatch.hardware import model
from kernels import aot
from kernels.spec import decode_tiling, prompt_tiling, spec_of
for name, batch, target, phases, prompt, ahead in json.loads(sys.argv[1]):
    spec = spec_of(model(name))
    tiling = prompt_tiling(spec, batch) if prompt else decode_tiling(spec, batch)
    tiling = replace(tiling, warm=ahead, dependent=ahead)
    built = aot.build(spec, tiling, target, phases, prompt=prompt,
                      scratch="bfloat16" if prompt else "float32")
    told = {f: getattr(built, f) for f in ("registers", "stack_bytes", "shared_bytes", "spills",
            "tensor_cores", "async_copies", "barriers", "acquires", "uncached_reads",
            "dependent_steps", "early_reads", "warmed")}
    head = next(line for line in built.ptx.splitlines() if line.startswith(".target"))
    print(json.dumps({**told, "target": head.split()[1]}), flush=True)
"""
WANTED = [
    ("gpt-2", 1, 80, (0, 5), False, False), ("llama-3.2-1b", 8, 90, (0, 5), False, True),
    ("llama-3.1-8b", 4096, 90, (0, 1), True, False),
    ("llama-3.1-8b", 4096, 90, (1, 2), True, False),
    ("llama-3.1-8b", 4096, 90, (3, 4), True, True), ("llama-3.1-8b", 4096, 80, (1, 2), True, False),
    ("llama-3.2-1b", 1, 90, (0, 1), False, True), ("gpt-2", 1, 80, (4, 5), False, True),
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
    for (*_, prompt, _), one in zip(WANTED, built, strict=True):
        for name, ceiling in CEILINGS["prefill" if prompt else "decode"].items():
            assert one[name] <= ceiling, (name, one)


@pytest.mark.slow
def test_weights_stream_and_tensor_cores_multiply(built: list[dict[str, Any]]) -> None:
    for one in built:
        assert one["tensor_cores"] > 0
        assert one["async_copies"] > 0


@pytest.mark.slow
def test_every_barrier_releases_and_acquires_in_the_ptx(built: list[dict[str, Any]]) -> None:
    for (*_, phases, _, _), one in zip(WANTED, built, strict=True):
        if phases != (0, 5):
            continue
        assert one["barriers"] == 5  # four barriers and the ticket of split attention
        assert one["acquires"] == 4
        assert one["uncached_reads"] == 0  # no acquire would reach those


@pytest.mark.slow
def test_a_dependent_launch_reads_nothing_before_the_last_one_has_ended(
    built: list[dict[str, Any]],
) -> None:
    for (_, _, target, (low, high), _, ahead), one in zip(WANTED, built, strict=True):
        depends = ahead and target >= 90 and high - low == 1
        assert one["dependent_steps"] == (2 if depends else 0)  # one release, one wait
        assert one["early_reads"] == 0


@pytest.mark.slow
def test_weights_are_asked_for_early_where_that_is_wanted(built: list[dict[str, Any]]) -> None:
    for (_, _, target, (low, high), _, ahead), one in zip(WANTED, built, strict=True):
        whole = high - low > 1
        assert bool(one["warmed"]) == (ahead and (whole or target >= 90))


@pytest.mark.slow
def test_the_target_is_the_one_asked_for(built: list[dict[str, Any]]) -> None:
    for (_, _, target, *_), one in zip(WANTED, built, strict=True):
        assert one["target"].rstrip(",").startswith(f"sm_{target}")
