"""Constants of the cost model for a GPU and a stack, with where they come from.

A *stack* is the software that a figure was measured under. ``calibration/<gpu>.<stack>.toml``
holds what was fitted for one GPU; a section that it lacks comes from a sibling's file or from
``generic.<stack>.toml``, and the run says so. ``benchmarks/fit_calibration.py`` writes the files;
``[fit.*]`` holds card, source, date, rows, range and residual of each section.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from dispatch.errors import InputError, Problem, UnknownNameError, nearest
from dispatch.hardware.catalogue import HERE, Gpu, read_toml
from dispatch.hardware.plans import plan


@dataclass(frozen=True, slots=True)
class Gemm:
    """Shares of the peak rates, the start of a wave, and how small tiles lose rate."""

    compute_ratio: float = 1.0  # of the dense peak, before the loss of small tiles
    memory_ratio: float = 0.78
    launch_us: float = 3.0  # of a GEMM timed alone
    wave_us: float = 0.5
    tile_knee: float = 28.0  # rate is divided by 1 + knee x (bm + bn) / (bm x bn)
    blend: float = 3.8  # power mean of compute and memory time


@dataclass(frozen=True, slots=True)
class Attention:
    """Flash attention in prefill (tiles of 128 query rows) and in decode (KV bytes)."""

    start_us: float = 12.0
    tile_us: float = 1.5
    row_us: float = 3.0
    kv_row_us: float = 15.0
    kv_power: float = 1.0
    compute_ratio: float = 0.62
    tail: float = 0.6
    prefill_blend: float = 1.25
    combine_us: float = 3.0
    unit_us: float = 3.2
    group_cost: float = 0.1
    memory_ratio: float = 0.85
    serial_ns: float = 0.9
    alone_ns: float = 5.0
    decode_blend: float = 2.0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Norms, rotary embedding, activation, residual: bytes at a share of the bandwidth.

    A norm is a block a row: two blocks an SM at a time, each as long as its row.
    """

    launch_us: float = 2.5  # of a pass timed alone
    norm_us: float = 0.8  # a row of 1,024 elements
    norm_ratio: float = 0.35
    add_ratio: float = 0.9
    rope_ratio: float = 0.5
    act_ratio: float = 0.5


@dataclass(frozen=True, slots=True)
class Launch:
    """What starting a kernel costs: on the GPU in a graph, on the host when launched eagerly."""

    graph_us: float = 2.5
    eager_us: float = 6.0
    eager_reduce_us: float = 25.0  # of a collective launched eagerly
    barrier_us: float = 1.5
    once_us: float = 3.0


@dataclass(frozen=True, slots=True)
class Host:
    """Host time of an iteration, of each sequence in it, and more where there is a prompt.

    Graphed plans wait for the host between iterations; eager ones overlap with it, as a power mean.
    """

    iteration_us: float = 300.0
    sequence_us: float = 2.0
    prefill_us: float = 0.0
    blend: float = 4.0


@dataclass(frozen=True, slots=True)
class Collective:
    """All-reduce of a ring: start + steps x hop + moved / rate + sqrt(pipe x steps x moved / rate).

    The rate is ``port_ratio`` of the port's for two GPUs and grows as (n / 2) ** growth. Bytes
    beyond ``crowd_mib`` cost more where over two GPUs take part: seen in prefills of the eager
    stack of 2023 and in no benchmark of NCCL alone; its cause is not known.
    """

    start_us: float = 4.7
    step_us: float = 1.5
    pipe_us: float = 4.2
    port_ratio: float = 0.67
    growth: float = 0.37
    crowd_mib: float = 32.0
    crowd_ratio: float = 0.0  # their rate, of the port's; 0: no such effect


@dataclass(frozen=True, slots=True)
class Network:
    """All-reduce across nodes: as a ring, at a rate by how many GPUs of a node take part."""

    start_us: float = 35.0
    step_us: float = 8.0
    pipe_us: float = 20.0
    one_gb_per_s: float = 6.0  # one GPU of each node, then two, four and eight
    two_gb_per_s: float = 6.0
    four_gb_per_s: float = 20.0
    eight_gb_per_s: float = 20.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on each GPU that are neither weights, activations nor KV cache."""

    context_mib: float = 400.0
    graphs_mib: float = 0.0
    collective_mib: float = 350.0  # buffers of the collectives where tp > 1

    def context_bytes(self, tp: int, graphed: bool) -> float:
        """Return them for one GPU of a replica of *tp*."""
        total = self.context_mib + (self.graphs_mib if graphed else 0.0)
        return (total + (self.collective_mib if tp > 1 else 0.0)) * 2**20


@dataclass(frozen=True, slots=True)
class Fit:
    """Where a section comes from: source, rows, range of its data, residual of the fit."""

    source: str = "assumed"
    rows: int = 0
    range: Mapping[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    median_error: float = float("nan")
    held_out_error: float = float("nan")
    left_out: Mapping[str, float] = field(default_factory=dict, hash=False)
    files: tuple[str, ...] = ()  # SHA-256 of what it was fitted to
    date: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """All constants of a GPU and a stack; ``fits`` says where each section comes from."""

    gpu: str
    stack: str
    plan: str
    gemm: Gemm = Gemm()
    attention: Attention = Attention()
    elementwise: Elementwise = Elementwise()
    launch: Launch = Launch()
    host: Host = Host()
    collective: Collective = Collective()
    crossing: Collective = Collective()  # rings that leave NVLink pairs over PCIe
    custom: Collective = Collective()  # the one-shot kernel of graphed engines
    network: Network = Network()
    memory: Memory = Memory()
    fits: Mapping[str, Fit] = field(default_factory=dict, hash=False)
    assumed: tuple[str, ...] = ()


SECTIONS: Final[Mapping[str, type]] = {
    "gemm": Gemm, "attention": Attention, "elementwise": Elementwise, "launch": Launch,
    "host": Host, "collective": Collective, "crossing": Collective, "custom": Collective,
    "network": Network,
    "memory": Memory,
}  # fmt: skip
EAGER: Final = "eager-2023"
GRAPHED: Final = "vllm"
MEASURED: Final = ("apex", "helix", "vidur")
"""Stacks of operator tables alone: known even where no file calibrates them."""


def stack_of(kernel_plan: str) -> str:
    """Return the stack that a kernel plan runs in unless another is named."""
    return GRAPHED if plan(kernel_plan).graphed else EAGER


@lru_cache(maxsize=256)
def calibration(
    gpu: Gpu, kernel_plan: str = "strong", stack: str | None = None, bare: bool = False
) -> Calibration:
    """Return the constants for *gpu*: each section from the nearest file that has it.

    Nearest is the GPU's own of this stack, then that of a sibling (the same die), then the generic
    one; behind them the generic one of the stack ``vllm``. *bare* leaves the GPU's own files out:
    what a GPU without a fit would get.
    """
    stack = stack or stack_of(kernel_plan)
    known = stacks()
    if stack not in known:
        raise UnknownNameError("", "stack", stack, known)
    names = [] if bare else [n.lower() for n in (gpu.sibling, gpu.name) if n]
    chain = [] if stack == GRAPHED else [_find(f"generic.{GRAPHED}.toml")]
    chain += [_find(f"{name}.{stack}.toml") for name in ("generic", *names)]
    documents = [(path, read_toml(path)) for path in chain if path]
    own = _find(f"{gpu.name.lower()}.{stack}.toml") if not bare else None
    return _merge(gpu, stack, kernel_plan, documents, own)


def stacks() -> list[str]:
    """Return the names of all stacks that some file calibrates."""
    names = {EAGER, GRAPHED, *MEASURED}
    for folder in _folders():
        names |= {path.stem.split(".", 1)[1] for path in folder.glob("*.*.toml")}
    return sorted(names)


def _folders() -> list[Path]:
    user = os.environ.get("ZEROLAYER_HARDWARE", "")
    return [*([Path(user) / "calibration"] if user else []), HERE / "calibration"]


def _find(name: str) -> Path | None:
    return next((f / name for f in _folders() if (f / name).is_file()), None)


def _merge(
    gpu: Gpu, stack: str, kernel_plan: str, documents: list[tuple[Path, dict[str, Any]]],
    own: Path | None,
) -> Calibration:  # fmt: skip
    sections: dict[str, Any] = {}
    fits: dict[str, Fit] = {}
    problems: list[Problem] = []
    for path, document in documents:
        for name, values in document.items():
            if name in ("gpu", "stack", "fit"):
                continue
            if name not in SECTIONS:
                problems.append(
                    Problem(str(path), f"unknown table {name!r}", nearest(name, SECTIONS))
                )
                continue
            kind = SECTIONS[name]
            keys = {f.name for f in fields(kind)}
            problems += [
                Problem(str(path), f"unknown key {name}.{key}", nearest(key, keys))
                for key in values if key not in keys
            ]  # fmt: skip
            sections[name] = kind(**{k: v for k, v in values.items() if k in keys})
            fits[name] = _fit(document.get("fit", {}).get(name, {}))
    if problems:
        raise InputError(problems)
    held = documents[-1][1] if own else {}
    assumed = tuple(name for name in SECTIONS if name not in held)
    return Calibration(gpu.name, stack, kernel_plan, fits=fits, assumed=assumed, **sections)


def _fit(values: Mapping[str, Any]) -> Fit:
    return Fit(
        source=str(values.get("source", "assumed")),
        rows=int(values.get("rows", 0)),
        range={k: (float(v[0]), float(v[1])) for k, v in values.get("range", {}).items()},
        median_error=float(values.get("median_error", "nan")),
        held_out_error=float(values.get("held_out_error", "nan")),
        left_out={k: float(v) for k, v in values.get("left_out", {}).items()},
        files=tuple(str(v) for v in values.get("files", ())),
        date=str(values.get("date", "")),
    )
