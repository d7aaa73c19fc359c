"""Measure a live device into files that the simulator reads.

An iteration is fitted as a line in what it does: a base, a cost a sequence, a token, a (query, key)
pair of prompt chunks and a token of decode context, none negative. The files state that line in the
terms of ``dispatch/hardware``: a GPU whose rates are set high enough to vanish, and a calibration
whose constants carry the measured costs. Put the folder into ``$ZEROLAYER_HARDWARE``.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dispatch.errors import NotMeasurable
from live.shapes import LlamaShape
from live.steps import durations
from traces.trace import Trace

_HUGE_TFLOPS: Final = 1e6
_HUGE_GB_PER_S: Final = 1e6
_TERMS: Final = ("base", "sequence", "token", "pair", "context")
_LEAST_STEPS: Final = 30


@dataclass(frozen=True, slots=True)
class StepLine:
    """Seconds of an iteration: base + each coefficient times its count."""

    base: float
    sequence: float
    token: float
    pair: float
    context: float
    rows: int
    median_error: float

    def predict(self, frame: Any) -> NDArray[np.float64]:
        """Return the seconds of each row of a frame of steps."""
        coefficients = np.array([getattr(self, term) for term in _TERMS])
        return np.asarray(_design(frame) @ coefficients)


def _design(frame: Any) -> NDArray[np.float64]:
    tokens = frame["new"] + frame["decodes"]
    columns = (np.ones(len(frame)), frame["sequences"], tokens, frame["pairs"], frame["context"])
    return np.column_stack([np.asarray(c, dtype=float) for c in columns])


def fit(steps: Any) -> StepLine:
    """Fit the line to *steps* (a frame of :data:`live.steps.COLUMNS`) by relative least squares."""
    frame = durations(steps)
    if len(frame) < _LEAST_STEPS:
        raise NotMeasurable(f"{len(frame)} iterations are too few to fit (need {_LEAST_STEPS})")
    took = np.asarray(frame["took_s"], dtype=float)
    kept = took <= np.quantile(took, 0.995)  # a stall of the machine is not a cost of the step
    frame, took = frame[kept], took[kept]
    found = nonnegative(_design(frame) / took[:, None], np.ones(len(took)))
    line = StepLine(found[0], found[1], found[2], found[3], found[4], len(took), 0.0)
    error = float(np.median(np.abs(line.predict(frame) - took) / took))
    return replace(line, median_error=error)


def nonnegative(a: NDArray[np.float64], b: NDArray[np.float64]) -> list[Any]:
    """Solve min |a x - b| with x >= 0: drop the most negative column until none is."""
    active = list(range(a.shape[1]))
    scale = np.maximum(np.abs(a).max(axis=0), 1e-300)
    while active:
        solution, *_ = np.linalg.lstsq(a[:, active] / scale[active], b, rcond=None)
        if solution.min() >= 0:
            found = [0.0] * a.shape[1]
            for at, value in zip(active, solution, strict=True):
                found[at] = float(value / scale[at])
            return found
        active.pop(int(solution.argmin()))
    return [0.0] * a.shape[1]


def write(
    folder: Path, name: str, shape: LlamaShape, line: StepLine, memory_bytes: int, machine: str
) -> list[Path]:
    """Write GPU, model and calibration *name* below *folder*; return the files."""
    paths = {
        "gpus": _gpu(name, memory_bytes, machine),
        "models": _model(name, shape),
        "calibration": _calibration(name, shape, line, machine),
    }
    written = []
    for kind, text in paths.items():
        file = f"{name}.vllm.toml" if kind == "calibration" else f"{name}.toml"
        path = folder / kind / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def _gpu(name: str, memory_bytes: int, machine: str) -> str:
    return f"""name = "{name}"
memory_bytes = {memory_bytes}
bandwidth_gb_per_s = {_HUGE_GB_PER_S:.0f}
sms = 1
l2_bytes = 0
compute_capability = 8.0

[tflops]  # vanishing on purpose: the calibration carries what was measured
fp32 = {_HUGE_TFLOPS:.0f}
fp16 = {_HUGE_TFLOPS:.0f}
bf16 = {_HUGE_TFLOPS:.0f}

[link]
topology = "pcie"
nvlink_gb_per_s = 0
pcie_gb_per_s = 10

[sources]
rates = "zerolayer live calibrate on {machine}, {time.strftime("%Y-%m-%d")}"
"""


def _model(name: str, shape: LlamaShape) -> str:
    return f"""name = "{name}"
parameters = {shape.parameters}
layers = {shape.layers}
hidden = {shape.hidden}
heads = {shape.heads}
kv_heads = {shape.kv_heads}
head_dim = {shape.head_dim}
ffn = {shape.ffn}
gated = true
vocab = {shape.vocab}
context_tokens = {shape.context_tokens}
tied_embeddings = {str(shape.tied).lower()}
source = "live preset or checkpoint {shape.name}"
"""


def _calibration(name: str, shape: LlamaShape, line: StepLine, machine: str) -> str:
    """State the line as constants of the ``strong`` plan (graphed: the host waits add up)."""
    bandwidth, flops = _HUGE_GB_PER_S * 1e9, _HUGE_TFLOPS * 1e12
    # Passes of the plan over one token of one layer, in bytes, by kind (dispatch.hardware.plans).
    passes = pass_bytes_per_token(name, shape)
    token_s = max(line.token, 1e-12) / shape.layers
    ratio = sum(passes.values()) / (bandwidth * token_s)
    context_bytes = 2.0 * shape.kv_heads * shape.head_dim * 2.0
    kv_ratio = context_bytes / (bandwidth * max(line.context, 1e-15) / shape.layers)
    pair_flops = 4.0 * shape.head_dim * shape.heads
    pair_ratio = pair_flops / (flops * max(line.pair, 1e-18) / shape.layers)
    return f"""gpu = "{name}"
stack = "vllm"

[gemm]
wave_us = 0.0
launch_us = 0.0

[attention]
start_us = 0.0
tile_us = 0.0
row_us = 0.0
kv_row_us = 0.0
tail = 0.0
combine_us = 0.0
unit_us = 0.0
serial_ns = 0.0
alone_ns = 0.0
compute_ratio = {pair_ratio!r}
memory_ratio = {kv_ratio!r}

[elementwise]
launch_us = 0.0
norm_us = 0.0
norm_ratio = {ratio!r}
add_ratio = {ratio!r}
rope_ratio = {ratio!r}
act_ratio = {ratio!r}

[launch]
graph_us = 0.0
barrier_us = 0.0
once_us = 0.0

[host]
iteration_us = {line.base * 1e6!r}
sequence_us = {line.sequence * 1e6!r}

[memory]
context_mib = 0.0
graphs_mib = 0.0

[fit.host]
source = "zerolayer live calibrate on {machine}, {time.strftime("%Y-%m-%d")}"
rows = {line.rows}
median_error = {line.median_error!r}
"""


def pass_bytes_per_token(name: str, shape: LlamaShape) -> dict[str, float]:
    """Return the elementwise bytes of one token and layer that the ``strong`` plan counts."""
    from dispatch.hardware import Model
    from dispatch.hardware.plans import pass_bytes

    model = Model(
        name=name,
        parameters=shape.parameters,
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        ffn=shape.ffn,
        gated=True,
        vocab=shape.vocab,
        context_tokens=shape.context_tokens,
        tied_embeddings=shape.tied,
    )
    return {kind: float(size) for kind, size in pass_bytes(model, "strong", 1, 1, 0).items()}


def calibration_trace(seconds: float, context_tokens: int, seed: int = 0) -> Trace:
    """Return a trace that visits lone requests, batches, long prompts and long contexts."""
    rng = np.random.default_rng(seed)
    count = max(12, int(seconds * 6))
    gaps = rng.exponential(seconds / count, count)
    gaps[rng.random(count) < 0.3] = 0.0  # bursts: batches of several
    longest = max(32, min(context_tokens // 3, 900))
    prompts = np.exp(rng.uniform(np.log(8), np.log(longest), count)).astype(np.int32)
    outputs = np.exp(rng.uniform(np.log(4), np.log(96), count)).astype(np.int32)
    arrivals = np.cumsum(gaps)
    return Trace(arrivals - arrivals[0], prompts, outputs, name="calibration")
