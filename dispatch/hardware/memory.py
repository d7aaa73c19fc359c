"""Where the bytes of a replica go: weights, context, workspace, and the KV pool that is left.

The rule is vLLM's: of ``utilization_ratio`` of the card, take the weights, what the CUDA context
and the libraries hold, and the peak of a profiling run; the rest, in whole blocks, is KV cache.
"""

from dataclasses import dataclass
from functools import lru_cache

from dispatch.hardware.calibration import Memory, calibration
from dispatch.hardware.catalogue import PRECISION_BYTES, Gpu, Model
from dispatch.hardware.plans import plan as kernel_plan_of
from dispatch.hardware.plans import workspace_bytes


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of a whole replica (all its GPUs) unless named ``_per_gpu``."""

    weights_bytes: float
    context_bytes: float  # CUDA context, libraries, graph pools, collective buffers
    workspace_bytes: float  # peak of activations in one iteration
    kv_pool_bytes: float
    kv_bytes_per_token: float
    capacity_tokens: int
    block_tokens: int
    tp: int
    budget_bytes: float

    @property
    def fits(self) -> bool:
        """Whether one block of KV cache is left after everything else."""
        return self.capacity_tokens >= self.block_tokens

    @property
    def kv_pool_bytes_per_gpu(self) -> float:
        """KV pool on each GPU of the replica."""
        return self.kv_pool_bytes / self.tp


@lru_cache(maxsize=512)
def _plan(
    gpu: Gpu, model: Model, precision: str, kv_precision: str, tp: int, ratio: float,
    kernel_plan: str, tokens: int, seqs: int, block_tokens: int, memory: Memory,
) -> MemoryPlan:  # fmt: skip
    shards = min(tp, model.kv_heads)  # fewer KV heads than GPUs: heads are copied
    per_token = model.kv_bytes_per_token(kv_precision) * tp / shards
    weights = model.weights_bytes(precision)
    graphed = kernel_plan_of(kernel_plan).graphed
    context = memory.context_bytes(tp, graphed) * tp
    workspace = workspace_bytes(model, kernel_plan, tp, tokens, seqs) * tp
    budget = gpu.memory_bytes * ratio * tp
    pool = max(budget - weights - context - workspace, 0.0)
    blocks = int(pool // (per_token * block_tokens))
    return MemoryPlan(
        weights, context, workspace, blocks * block_tokens * per_token, per_token,
        blocks * block_tokens, block_tokens, tp, budget,
    )  # fmt: skip


def memory_plan(
    gpu: Gpu,
    model: Model,
    precision: str = "fp16",
    kv_precision: str | None = None,
    tp: int = 1,
    utilization_ratio: float = 0.9,
    kernel_plan: str = "strong",
    max_batched_tokens: int = 8192,
    *,
    max_num_seqs: int = 256,
    block_tokens: int = 16,
    memory: Memory | None = None,
) -> MemoryPlan:
    """Return where the bytes of a replica of *tp* GPUs go.

    Shapes as vLLM names them; *kv_precision* None takes 16 bits, or FP8 under FP8 weights. The plan
    may not fit: ask ``.fits``. *memory* replaces the calibration's bytes of context and libraries.
    """
    kv = kv_precision or ("fp8" if precision == "fp8" else "fp16")
    assert kv in PRECISION_BYTES
    return _plan(
        gpu, model, precision, kv, tp, utilization_ratio, kernel_plan,
        max_batched_tokens, max_num_seqs, block_tokens,
        memory or calibration(gpu, kernel_plan).memory,
    )  # fmt: skip
