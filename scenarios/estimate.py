"""What the cost model says of each row of a measured table. Microseconds, one a row."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dispatch import hardware
from dispatch.hardware import Calibration, Gpu, Roofline, calibration, collectives, operators, plan

Column = NDArray[np.float64]
STACK_PLAN: Final[Mapping[str, str]] = {"eager-2023": "eager", "helix": "eager", "vllm": "strong"}
"""The kernel plan that a stack was measured with; other stacks time operators alone."""
HELIX_CONTEXT: Final = 763 + 232 / 2
"""Tokens that a decode of Helix's tables looks at: the means of the trace that it was made for.

The files do not say; Helix's paper (ASPLOS'25) gives 763 prompt and 232 output tokens a request.
"""


def estimate(
    kind: str, stack: str, table: pd.DataFrame, constants: Mapping[str, Calibration] | None = None
) -> Column:
    """Return the model's time of each row; *constants* by GPU name replace the bundled ones."""
    out = np.full(len(table), np.nan)
    place = np.arange(len(table))
    for name, rows in table.assign(_place=place).groupby("gpu", sort=False):
        gpu = hardware.gpu(str(name))
        cal = (constants or {}).get(str(name)) or calibration(gpu, stack_plan(stack), stack)
        out[rows._place.to_numpy()] = ESTIMATES[kind](gpu, cal, rows)
    return out


def stack_plan(stack: str) -> str:
    """Return the kernel plan that *stack* runs."""
    return STACK_PLAN.get(stack, "strong")


def _numbers(rows: pd.DataFrame, *names: str) -> tuple[Column, ...]:
    return tuple(rows[name].to_numpy(dtype=float) for name in names)


def gemm(gpu: Gpu, cal: Calibration, rows: pd.DataFrame) -> Column:
    """Estimate GEMMs timed alone."""
    out = np.empty(len(rows))
    for precision in rows.precision.unique():
        kept = (rows.precision == precision).to_numpy()
        m, n, k = _numbers(rows[kept], "m", "n", "k")
        width = hardware.PRECISION_BYTES[precision]
        flops = gpu.flops_for(precision)
        out[kept] = operators.gemm_s(gpu, cal.gemm, m, n, k, flops, width) * 1e6
    return out + cal.gemm.launch_us


def elementwise(gpu: Gpu, cal: Calibration, rows: pd.DataFrame) -> Column:
    """Estimate norms, residual adds, rotary embeddings and activations timed alone."""
    out = np.empty(len(rows))
    for op in rows.op.unique():
        kept = (rows.op == op).to_numpy()
        moved, count, width = _numbers(rows[kept], "bytes", "rows", "width")
        out[kept] = operators.elementwise_s(gpu, cal.elementwise, op, moved, count, width) * 1e6
    return out + cal.elementwise.launch_us


def prefill_attention(gpu: Gpu, cal: Calibration, rows: pd.DataFrame) -> Column:
    """Estimate causal attention of whole prompts; one token is a decode step."""
    batch, new, past, heads, kv, dim = _numbers(
        rows, "batch", "new", "past", "heads", "kv_heads", "head_dim"
    )
    prefill = operators.prefill_attention_s(gpu, cal.attention, heads, kv, dim, new, past, batch)
    decode = operators.decode_attention_s(gpu, cal.attention, heads, kv, dim, batch, past + 1)
    return np.asarray(np.where(new > 1, prefill, decode) * 1e6)


def decode_attention(gpu: Gpu, cal: Calibration, rows: pd.DataFrame) -> Column:
    """Estimate attention of one query a sequence."""
    batch, context, heads, kv, dim, width = _numbers(
        rows, "batch", "context", "heads", "kv_heads", "head_dim", "kv_bytes"
    )
    return np.asarray(1e6 * operators.decode_attention_s(
        gpu, cal.attention, heads, kv, dim, batch, context, width
    ))  # fmt: skip


def all_reduce(gpu: Gpu, cal: Calibration, rows: pd.DataFrame) -> Column:
    """Estimate all-reduces by NCCL, or by vLLM's one-shot kernel."""
    out = np.empty(len(rows))
    keys = zip(rows.n, rows.per_node, rows.backend, strict=True)
    size = rows.bytes.to_numpy(dtype=float)
    for n, per_node, backend in sorted(set(keys)):
        kept = ((rows.n == n) & (rows.per_node == per_node) & (rows.backend == backend)).to_numpy()
        out[kept] = 1e6 * collectives.measured_s(
            gpu, cal, int(n), int(per_node), size[kept], backend
        )
    return out


def layer(gpu: Gpu, cal: Calibration, rows: pd.DataFrame) -> Column:
    """Estimate Helix's times of one layer: a prompt of that many tokens, or that many decodes."""
    out = []
    for row in rows.itertuples():
        whole = roofline(gpu, cal, row.model, 1)
        p = (
            whole.parts((int(row.tokens),), (0,))
            if row.phase == "prompt"
            else whole.parts(
                decode_batch=int(row.tokens), decode_context=row.tokens * HELIX_CONTEXT
            )
        )
        out.append((p.total_s - p.lm_head_s) / whole.model.layers * 1e6)
    return np.array(out)


def whole(gpu: Gpu, cal: Calibration, rows: pd.DataFrame) -> Column:
    """Estimate the prompt times of whole models; :func:`tokens` has the token times."""
    return np.array([
        1e6 * prompt_parts(roofline(gpu, cal, r.model, r.tp), int(r.prompt), int(r.batch)).total_s
        for r in rows.itertuples()
    ])  # fmt: skip


def tokens(gpu: Gpu, cal: Calibration, rows: pd.DataFrame) -> Column:
    """Estimate the mean time of an output token over 128 of them."""
    return np.array([
        1e6 * token_parts(roofline(gpu, cal, r.model, r.tp), int(r.prompt), int(r.batch)).total_s
        for r in rows.itertuples()
    ])  # fmt: skip


def roofline(gpu: Gpu, cal: Calibration, model: str, tp: int) -> Roofline:
    """Return the roofline of a served model in 16 bits under the stack's own plan."""
    kernel_plan = plan(stack_plan(cal.stack))
    return Roofline(gpu, hardware.model(model), "fp16", "fp16", int(tp), kernel_plan, cal, block=1)


def prompt_parts(cost: Roofline, prompt: int, batch: int) -> Any:
    """Return the parts of one iteration over *batch* whole prompts."""
    return cost.parts((prompt,) * batch, (0,) * batch)


def token_parts(cost: Roofline, prompt: int, batch: int, output: int = 128) -> Any:
    """Return the parts of a decode iteration half-way through *output* tokens."""
    return cost.parts(decode_batch=batch, decode_context=batch * (prompt + output / 2.0))


ESTIMATES: Final[Mapping[str, Callable[[Gpu, Calibration, pd.DataFrame], Column]]] = {
    "gemm": gemm, "elementwise": elementwise, "prefill_attention": prefill_attention,
    "decode_attention": decode_attention, "all_reduce": all_reduce, "layer": layer, "whole": whole,
    "tokens": tokens,
}  # fmt: skip
