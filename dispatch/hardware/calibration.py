"""Constants of the cost model for a GPU and a stack, with where they come from.

A *stack* is the software that a figure was measured under. ``calibration/<gpu>.<stack>.toml`` holds
what was fitted for one GPU; a section that it lacks comes from ``generic.<stack>.toml``, and the
run says so. ``benchmarks/fit_calibration.py`` writes the files; ``[fit.*]`` holds source, rows,
range and residual of each section.
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
    """time = fixed + max(flops / (peak x compute), bytes / (bandwidth x memory))."""

    compute_ratio: float = 0.80
    memory_ratio: float = 0.85
    fixed_us: float = 2.5


@dataclass(frozen=True, slots=True)
class Attention:
    """Flash attention: prefill by flops, decode by KV bytes."""

    compute_ratio: float = 0.60
    memory_ratio: float = 0.80
    fixed_us: float = 5.0


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Norms, rotary embedding, activation, residual: bytes over a share of the bandwidth."""

    memory_ratio: float = 0.80


@dataclass(frozen=True, slots=True)
class Launch:
    """What starting a kernel costs: on the GPU in a graph, on the host when launched eagerly."""

    graph_us: float = 2.5
    eager_us: float = 6.0
    barrier_us: float = 1.5
    once_us: float = 3.0


@dataclass(frozen=True, slots=True)
class Host:
    """Host time that the GPU waits for: of each iteration, and more for each sequence in it."""

    iteration_us: float = 300.0
    sequence_us: float = 2.0
    prefill_us: float = 0.0  # more in an iteration with a prompt in it


@dataclass(frozen=True, slots=True)
class Collective:
    """All-reduce on one topology: the cheapest of protocols (start us, start us a step, GB/s)."""

    start_us: tuple[float, ...] = (3.0, 15.0)
    step_us: tuple[float, ...] = (1.6, 3.0)
    bus_ratio: tuple[float, ...] = (0.25, 0.75)


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
    memory: Memory = Memory()
    fits: Mapping[str, Fit] = field(default_factory=dict, hash=False)
    assumed: tuple[str, ...] = ()


SECTIONS: Final[Mapping[str, type]] = {
    "gemm": Gemm, "attention": Attention, "elementwise": Elementwise, "launch": Launch,
    "host": Host, "collective": Collective, "memory": Memory,
}  # fmt: skip
EAGER: Final = "eager-2023"
GRAPHED: Final = "vllm"


def stack_of(kernel_plan: str) -> str:
    """Return the stack that a kernel plan runs in unless another is named."""
    return GRAPHED if plan(kernel_plan).graphed else EAGER


@lru_cache(maxsize=256)
def calibration(gpu: Gpu, kernel_plan: str = "strong", stack: str | None = None) -> Calibration:
    """Return the constants for *gpu*: its own file's sections over the stack's generic ones."""
    stack = stack or stack_of(kernel_plan)
    known = stacks()
    if stack not in known:
        raise UnknownNameError("", "stack", stack, known)
    own = _find(f"{gpu.name.lower()}.{stack}.toml")
    generic = _find(f"generic.{stack}.toml")
    documents = [(path, read_toml(path)) for path in (generic, own) if path]
    return _merge(gpu, stack, kernel_plan, documents, own is not None)


def stacks() -> list[str]:
    """Return the names of all stacks that some file calibrates."""
    names = {EAGER, GRAPHED}
    for folder in _folders():
        names |= {path.stem.split(".", 1)[1] for path in folder.glob("*.*.toml")}
    return sorted(names)


def _folders() -> list[Path]:
    user = os.environ.get("ZEROLAYER_HARDWARE", "")
    return [*([Path(user) / "calibration"] if user else []), HERE / "calibration"]


def _find(name: str) -> Path | None:
    return next((f / name for f in _folders() if (f / name).is_file()), None)


def _merge(
    gpu: Gpu, stack: str, kernel_plan: str, documents: list[tuple[Path, dict[str, Any]]], own: bool
) -> Calibration:
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
            known = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
            sections[name] = kind(**{k: v for k, v in known.items() if k in keys})
            fits[name] = _fit(document.get("fit", {}).get(name, {}))
    if problems:
        raise InputError(problems)
    last = documents[-1][1] if own else {}
    assumed = tuple(name for name in SECTIONS if name not in last)
    return Calibration(gpu.name, stack, kernel_plan, fits=fits, assumed=assumed, **sections)


def _fit(values: Mapping[str, Any]) -> Fit:
    return Fit(
        source=str(values.get("source", "assumed")),
        rows=int(values.get("rows", 0)),
        range={k: (float(v[0]), float(v[1])) for k, v in values.get("range", {}).items()},
        median_error=float(values.get("median_error", "nan")),
    )
