"""Runs peer simulators, where they are installed, on the requests that ours was timed on.

Each is run by its own command line on its own trace format, written here from the trace; start-up
counts, as a user pays it. Nothing of theirs is bundled.
"""

import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from traces.trace import Trace

_LIMIT_S: Final = 600.0
_ROWS: Final = 2000  # what a peer that steps every iteration can do in minutes


@dataclass(frozen=True, slots=True)
class Peer:
    """One peer's run, or why there is none."""

    name: str
    requests: int = 0
    wall_s: float = 0.0
    requests_per_s: float = 0.0
    note: str = ""


def run_all(trace: Trace, say: Callable[[str], None]) -> list[Peer]:
    """Return one row a peer, in a fixed order."""
    found = []
    for name, peer in (("vidur", _vidur), ("splitwise-sim", _splitwise), ("vllm-sr-sim", _sr_sim)):
        say(f"peer {name}")
        with tempfile.TemporaryDirectory(prefix="zerolayer-peer-") as folder:
            found.append(peer(name, trace, Path(folder)))
    return found


def _timed(name: str, command: list[str], requests: int, cwd: Path, **environment: str) -> Peer:
    began = time.perf_counter()
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True,
            timeout=_LIMIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Peer(name, requests, note=f"did not end within {_LIMIT_S:.0f} s")
    wall = time.perf_counter() - began
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Peer(name, requests, note=f"failed with {done.returncode}: {last[:200]}")
    return Peer(name, requests, wall, requests / wall)


def _write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


def _first(trace: Trace, count: int) -> list[tuple[float, int, int]]:
    columns = (trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    return list(zip(*(c[:count].tolist() for c in columns), strict=True))


def _vidur(name: str, trace: Trace, folder: Path) -> Peer:
    home = os.environ.get("ZEROLAYER_VIDUR")
    if home is None and importlib.util.find_spec("vidur") is None:
        return Peer(name, note="not found: install it here, or set ZEROLAYER_VIDUR to a checkout")
    rows: list[list[object]] = [list(row) for row in _first(trace, _ROWS)]
    path = folder / "trace.csv"
    _write(path, ["arrived_at", "num_prefill_tokens", "num_decode_tokens"], rows)
    command = [
        os.environ.get("ZEROLAYER_VIDUR_PYTHON", sys.executable), "-m", "vidur.main",
        "--replica_config_device", "a100",
        "--replica_config_model_name", "meta-llama/Llama-2-7b-hf",
        "--replica_config_tensor_parallel_size", "1",
        "--replica_config_num_pipeline_stages", "1",
        "--cluster_config_num_replicas", "8", "--global_scheduler_config_type", "round_robin",
        "--replica_scheduler_config_type", "vllm",
        "--request_generator_config_type", "trace_replay",
        "--trace_request_generator_config_trace_file", str(path),
        "--trace_request_generator_config_max_tokens", "4096",
        "--no-metrics_config_store_plots", "--no-metrics_config_enable_chrome_trace",
    ]  # fmt: skip
    cwd = Path(home) if home else folder
    return _timed(name, command, len(rows), cwd, WANDB_MODE="disabled")


def _splitwise(name: str, trace: Trace, folder: Path) -> Peer:
    home = os.environ.get("ZEROLAYER_SPLITWISE_SIM")
    if home is None:
        return Peer(name, note="not found: set ZEROLAYER_SPLITWISE_SIM to a checkout")
    # It fails with "No instances available" where the first request comes at 0.
    rows: list[list[object]] = [
        [i, 0, 0, 0, max(at, 0.001), prompt, output]
        for i, (at, prompt, output) in enumerate(_first(trace, len(trace)))
    ]
    header = ["request_id", "request_type", "application_id", "batch_size", "arrival_timestamp",
              "prompt_size", "token_size"]  # fmt: skip
    path = Path(home) / "traces" / "zerolayer_bench.csv"
    _write(path, header, [[r[0], 2, 0, 1, *r[4:]] for r in rows])
    try:
        command = [
            os.environ.get("ZEROLAYER_SPLITWISE_PYTHON", sys.executable), "run.py",
            "cluster=half_half", "cluster.servers.0.count=8", "cluster.servers.1.count=0",
            "applications.0.scheduler=round_robin",
            "applications.0.model_architecture=llama2-70b",
            "applications.0.model_size=llama2-70b-fp16", "start_state=baseline",
            "performance_model=db", f"trace.filename={path.stem}", "seed=0",
        ]  # fmt: skip
        return _timed(name, command, len(rows), Path(home))
    finally:
        path.unlink(missing_ok=True)


def _sr_sim(name: str, trace: Trace, folder: Path) -> Peer:
    command = shutil.which("vllm-sr-sim")
    if command is None:
        return Peer(name, note="not found: its command vllm-sr-sim is not on the PATH")
    # It drops the published timestamps without a word, so it gets the lengths and the rate.
    rate = len(trace) / trace.span_s if trace.span_s else 1.0
    total = (trace.prompt_tokens + trace.output_tokens).tolist()
    total.sort()
    steps = [total[min(len(total) - 1, i * len(total) // 100)] for i in range(1, 101)]
    cdf = [[tokens, (i + 1) / 100] for i, tokens in enumerate(steps)]
    (folder / "cdf.json").write_text(json.dumps(cdf), encoding="utf-8")
    pool = {"id": "all", "gpu": "a100", "n_gpus": 8, "max_ctx": 8192}
    fleet = {"pools": [pool], "router": "least_loaded"}
    (folder / "fleet.json").write_text(json.dumps(fleet), encoding="utf-8")
    words = [command, "simulate-fleet", "fleet.json", "--cdf", "cdf.json", "--lam", f"{rate:.3f}",
             "--n-req", str(len(trace)), "--out", "out.json"]  # fmt: skip
    return _timed(name, words, len(trace), folder)
