"""One iteration of a serving engine on one replica, summed from its operators. Seconds.

An iteration runs prompt chunks (new tokens after past ones, each its own sequence) and one token
for each decoding sequence together: projections see all tokens at once, attention each sequence
apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from dispatch.hardware import collectives, operators
from dispatch.hardware.calibration import Calibration
from dispatch.hardware.catalogue import PRECISION_BYTES, Gpu, Model
from dispatch.hardware.plans import KernelPlan, extra_bytes

KNEE_TOKENS = (128, 2048)
"""Contexts a sequence between which a decode iteration is taken as affine in its context."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What an iteration spends, in seconds; their sum is its time."""

    projections_s: float = 0.0
    attention_s: float = 0.0
    elementwise_s: float = 0.0
    launches_s: float = 0.0
    collectives_s: float = 0.0
    lm_head_s: float = 0.0
    host_s: float = 0.0

    @property
    def total_s(self) -> float:
        """The time of the iteration."""
        return float(sum(getattr(self, f.name) for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Roofline:
    """The cost of iterations of one model on one kind of replica under one kernel plan."""

    gpu: Gpu
    model: Model
    precision: str
    kv_precision: str
    tp: int
    plan: KernelPlan
    cal: Calibration
    gpus_per_node: int = 8
    collective_factor: float = 1.0

    def parts(
        self,
        new_tokens: Sequence[int] = (),
        past_tokens: Sequence[int] = (),
        decode_batch: int = 0,
        decode_context: float = 0.0,
    ) -> Parts:
        """Return what one iteration spends.

        *new_tokens* and *past_tokens* describe prompt chunks; *decode_context* is the sum of
        context tokens over the *decode_batch* sequences that produce one token each.
        """
        tokens = sum(new_tokens) + decode_batch
        if tokens <= 0:
            return Parts()
        layers = self.model.layers
        attention = self._attention_s(new_tokens, past_tokens, decode_batch, decode_context)
        attended = (
            sum(n * (p + (n + 1) / 2) for n, p in zip(new_tokens, past_tokens, strict=True))
            + decode_context
        )
        moved = extra_bytes(
            self.model, self.plan.name, self.tp, tokens, attended, self.gpu.l2_bytes
        )
        sequences = len(new_tokens) + decode_batch
        gpu_parts = Parts(
            projections_s=layers * self._projections_s(tokens),
            attention_s=layers * attention,
            elementwise_s=layers * operators.elementwise_s(self.gpu, self.cal, moved),
            collectives_s=layers * 2 * self.all_reduce_s(2.0 * tokens * self.model.hidden),
            lm_head_s=self._head_s(sequences),
        )
        return self._with_host(gpu_parts, bool(new_tokens), sequences)

    def decode_line(self, batch: int) -> tuple[float, float]:
        """Return (base_s, slope_s): an iteration of *batch* sequences over C tokens of context.

        Exactly affine where the GPU is the bottleneck; where the host is (eager plans) it is the
        chord between two contexts of a sequence, :data:`KNEE_TOKENS`.
        """
        low, high = (batch * tokens for tokens in KNEE_TOKENS)
        at_low = self.parts(decode_batch=batch, decode_context=low).total_s
        at_high = self.parts(decode_batch=batch, decode_context=high).total_s
        slope = (at_high - at_low) / (high - low)
        return at_low - slope * low, slope

    @property
    def extrapolated(self) -> tuple[str, ...]:
        """Which constants were not fitted on this GPU and stack."""
        return tuple(f"{self.gpu.name}.{self.cal.stack}: {s} assumed" for s in self.cal.assumed)

    def _projections_s(self, tokens: float) -> float:
        return sum(
            operators.gemm_s(self.gpu, self.cal, tokens, s.n, s.k, self.precision)
            for s in operators.projections(self.model, self.tp)
        )

    def _attention_s(
        self, new: Sequence[int], past: Sequence[int], batch: int, context: float
    ) -> float:
        m = self.model
        heads, kv = m.heads / self.tp, max(m.kv_heads / self.tp, 1.0)
        total = sum(
            operators.prefill_attention_s(self.gpu, self.cal, heads, kv, m.head_dim, n, p)
            for n, p in zip(new, past, strict=True)
        )
        if batch:
            width = PRECISION_BYTES[self.kv_precision]
            base, slope = operators.decode_attention_line(
                self.gpu, self.cal, heads, kv, m.head_dim, batch, width
            )
            total += base + slope * context
        return total

    def all_reduce_s(self, size: float) -> float:
        """Return the time of one all-reduce of *size* bytes inside the replica."""
        return self.collective_factor * collectives.all_reduce_s(
            self.gpu, self.cal, self.tp, size, self.gpus_per_node
        )

    def _head_s(self, sequences: int) -> float:
        n = self.model.vocab / self.tp
        return operators.gemm_s(self.gpu, self.cal, sequences, n, self.model.hidden, "fp16")

    def _with_host(self, gpu: Parts, prefill: bool, sequences: int) -> Parts:
        plan, launch, host = self.plan, self.cal.launch, self.cal.host
        count = plan.prefill_launches if prefill else plan.decode_launches
        on_gpu = count * launch.graph_us
        if plan.decode_barriers and not prefill:
            on_gpu = launch.once_us + plan.decode_barriers * launch.barrier_us
        launches = self.model.layers * on_gpu * 1e-6
        if not plan.graphed:
            asked = self.model.layers * (count + (2 if self.tp > 1 else 0)) * launch.eager_us * 1e-6
            launches = max(launches, asked - gpu.total_s)
        waits = host.iteration_us + host.sequence_us * sequences
        waits += host.prefill_us if prefill else 0.0
        return Parts(
            gpu.projections_s, gpu.attention_s, gpu.elementwise_s, launches,
            gpu.collectives_s, gpu.lm_head_s, waits * 1e-6,
        )  # fmt: skip
