"""One iteration of a serving engine on one replica, summed from its operators. Seconds.

An iteration runs prompt chunks (new tokens after past ones, each its own sequence) and one token
for each decoding sequence together: projections see all tokens at once, attention each sequence
apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np

from dispatch.hardware import collectives, operators
from dispatch.hardware.calibration import Calibration
from dispatch.hardware.catalogue import PRECISION_BYTES, Gpu, Model
from dispatch.hardware.plans import KernelPlan, pass_bytes, score_traffic

KNEE_TOKENS: Final = (256, 2048)
"""Contexts a sequence between which a decode iteration is taken as affine in its context."""
_BLOCK: Final = 64  # token counts priced at a time: a simulation asks for many neighbours


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


def on_host_of(gpu: Gpu, cal: Calibration) -> Calibration:
    """Return *cal* with host times as the hosts of *gpu* take them."""
    if gpu.host_ratio == 1.0:
        return cal
    r, h, one = gpu.host_ratio, cal.host, cal.launch
    host = replace(h, iteration_us=h.iteration_us * r, sequence_us=h.sequence_us * r,
                   prefill_us=h.prefill_us * r)  # fmt: skip
    return replace(cal, host=host, launch=replace(one, eager_us=one.eager_us * r))


class Roofline:
    """The cost of iterations of one model on one kind of replica under one kernel plan."""

    def __init__(
        self, gpu: Gpu, model: Model, precision: str, kv_precision: str, tp: int,
        plan: KernelPlan, cal: Calibration, gpus_per_node: int = 8, ring_factor: float = 1.0,
        block: int = _BLOCK,
    ) -> None:  # fmt: skip
        self.block, self.given = block, cal
        self.gpu, self.model, self.plan, self.cal = gpu, model, plan, on_host_of(gpu, cal)
        self.precision, self.kv_precision, self.tp = precision, kv_precision, tp
        self.gpus_per_node, self.ring_factor = gpus_per_node, ring_factor
        self.heads, self.kv_heads = model.heads / tp, max(model.kv_heads / tp, 1.0)
        launch = cal.launch.graph_us
        c = cal.attention  # a plan that fuses attention has no library call to start
        self.attention = replace(
            c, start_us=max(c.start_us - 2 * launch, 0.0) if plan.library else 0.0,
            combine_us=c.combine_us if plan.library else 0.0,
        )  # fmt: skip
        self._projections: dict[int, float] = {}
        self._head: dict[int, float] = {}

    def with_ring(self, factor: float) -> "Roofline":
        """Return the same replica with collectives *factor* times slower."""
        return Roofline(
            self.gpu, self.model, self.precision, self.kv_precision, self.tp, self.plan, self.given,
            self.gpus_per_node, self.ring_factor * factor, self.block,
        )  # fmt: skip

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
        pairs = [n * (p + (n + 1) / 2) for n, p in zip(new_tokens, past_tokens, strict=True)]
        attended = sum(pairs) + decode_context
        gpu = Parts(
            projections_s=self.projections_s(tokens),
            attention_s=self._attention_s(new_tokens, past_tokens, decode_batch, decode_context),
            elementwise_s=self._elementwise_s(tokens, attended),
            launches_s=self._launches_s(bool(new_tokens)),
            collectives_s=2
            * self.model.layers
            * self.all_reduce_s(2.0 * tokens * self.model.hidden),
            lm_head_s=self._head_s(len(new_tokens) + decode_batch),
        )
        return self._with_host(gpu, sum(new_tokens), len(new_tokens) + decode_batch)

    def decode_line(self, batch: int) -> tuple[float, float]:
        """Return (base_s, slope_s): an iteration of *batch* sequences over C tokens of context.

        The chord between two contexts of a sequence, :data:`KNEE_TOKENS`: exact where attention is
        bound by KV bytes, within a few per cent of the iteration elsewhere.
        """
        low, high = (batch * tokens for tokens in KNEE_TOKENS)
        at_low = self.parts(decode_batch=batch, decode_context=low).total_s
        at_high = self.parts(decode_batch=batch, decode_context=high).total_s
        slope = (at_high - at_low) / (high - low)
        return at_low - slope * low, slope

    @property
    def sections(self) -> tuple[str, ...]:
        """The sections of the calibration that iterations of this replica rest on."""
        found = ["gemm", "attention", "host"]
        if self.plan.passes:
            found.append("elementwise")
        if self.tp > self.gpus_per_node:
            found.append("network")
        elif self.tp > 1:
            ring = collectives.ring_of(self.gpu, self.cal, self.tp)
            found.append("crossing" if ring is self.cal.crossing else "collective")
        return tuple(found)

    @property
    def extrapolated(self) -> tuple[str, ...]:
        """Why figures rest on other GPUs' constants, or lie outside what was measured."""
        label = f"{self.gpu.name}, stack {self.cal.stack}"
        known = [s for s in self.sections if s not in self.cal.assumed]
        others = [s for s in self.sections if s in self.cal.assumed]
        where = f"{self.gpu.sibling} or other GPUs" if self.gpu.sibling else "other GPUs"
        notes = [f"{label}: extrapolated, {', '.join(others)} from {where}"] if others else []
        shapes = operators.projections(self.model, self.tp)
        asked: dict[tuple[str, str], list[float]] = {
            ("gemm", "n"): [s.n for s in shapes], ("gemm", "k"): [s.k for s in shapes],
            ("attention", "heads"): [self.heads], ("attention", "kv_heads"): [self.kv_heads],
            ("collective", "n"): [self.tp], ("host", "tp"): [self.tp],
        }  # fmt: skip
        for (section, key), values in asked.items():
            span = self.cal.fits[section].range.get(key) if section in self.cal.fits else None
            if section not in known or span is None:
                continue
            outside = [v for v in values if not span[0] <= v <= span[1]]
            if outside:
                notes.append(
                    f"{label}: extrapolated, {section} {key} {outside[0]:g} is outside the "
                    f"measured {span[0]:g} to {span[1]:g}"
                )
        return tuple(notes)

    def all_reduce_s(self, size: float) -> float:
        """Return the time of one all-reduce of *size* bytes inside the replica."""
        return self.ring_factor * collectives.all_reduce_s(
            self.gpu, self.cal, self.tp, size, self.gpus_per_node, self.plan.graphed
        )

    def projections_s(self, tokens: int) -> float:
        """Return the projections of all layers for *tokens* tokens."""
        if (known := self._projections.get(tokens)) is not None:
            return known
        first = (tokens - 1) // self.block * self.block + 1
        block = np.arange(first, first + self.block, dtype=float)
        total = np.zeros(self.block)
        flops, width = self.gpu.flops_for(self.precision), PRECISION_BYTES[self.precision]
        for s in operators.projections(self.model, self.tp):
            total += operators.gemm_s(self.gpu, self.cal.gemm, block, s.n, s.k, flops, width)
        total *= self.model.layers
        self._projections.update(zip(range(first, first + self.block), total.tolist(), strict=True))
        return self._projections[tokens]

    def _attention_s(
        self, new: Sequence[int], past: Sequence[int], batch: int, context: float
    ) -> float:
        m, c = self.model, self.attention
        total = 0.0
        if new:
            total = float(np.sum(operators.prefill_attention_s(
                self.gpu, c, self.heads, self.kv_heads, m.head_dim,
                np.asarray(new, dtype=float), np.asarray(past, dtype=float),
            )))  # fmt: skip
            # sequences of one iteration share a launch
            total -= (len(new) - 1) * c.start_us * 1e-6
        if batch:
            total += float(operators.decode_attention_s(
                self.gpu, c, self.heads, self.kv_heads, m.head_dim, batch, context / batch,
                PRECISION_BYTES[self.kv_precision],
            ))  # fmt: skip
        return m.layers * total

    def _elementwise_s(self, tokens: int, attended: float) -> float:
        gpu, m, c = self.gpu, self.model, self.cal.elementwise
        moved = pass_bytes(m, self.plan.name, self.tp, tokens, gpu.l2_bytes)
        total = sum(
            size / (gpu.bandwidth_bytes_per_s * operators.elementwise_ratio(c, kind))
            for kind, size in moved.items() if kind != "norm"
        )  # fmt: skip
        norms = self.plan.passes.get(("norm", "hidden"), 0) / 2.0  # each reads and writes
        if norms:
            size = 2.0 * tokens * m.hidden * self.plan.scratch_bytes
            total += norms * float(operators.norm_s(gpu, c, size, tokens, m.hidden))
        scores = score_traffic(m, self.plan.name, self.tp, attended, gpu.l2_bytes)
        total += scores / (gpu.bandwidth_bytes_per_s * self.cal.gemm.memory_ratio)
        return m.layers * total

    def _launches_s(self, prefill: bool) -> float:
        launch = self.cal.launch
        if self.plan.decode_barriers and not prefill:
            each = launch.once_us + self.plan.decode_barriers * launch.barrier_us
        else:
            count = self.plan.prefill_launches if prefill else self.plan.decode_launches
            each = count * launch.graph_us
        return self.model.layers * each * 1e-6

    def _head_s(self, sequences: int) -> float:
        if (known := self._head.get(sequences)) is None:
            n, k = self.model.vocab / self.tp, self.model.hidden
            known = self._head[sequences] = float(
                operators.gemm_s(self.gpu, self.cal.gemm, sequences, n, k, self.gpu.flops["fp16"])
            )
        return known

    def _with_host(self, gpu: Parts, prompt: int, sequences: int) -> Parts:
        host = self.cal.host
        waits = host.sequence_us * sequences * 1e-6
        if self.plan.graphed:
            waits += (host.iteration_us + (host.prefill_us if prompt else 0.0)) * 1e-6
        else:
            plan, count = self.plan, self.model.layers
            count *= plan.prefill_launches if prompt else plan.decode_launches
            count += 2 * self.model.layers if self.tp > 1 else 0
            asked = count * self.cal.launch.eager_us + host.iteration_us
            asked = (asked + (host.prefill_us if prompt else 0.0)) * 1e-6
            busy = gpu.total_s
            waits += (busy**host.blend + asked**host.blend) ** (1.0 / host.blend) - busy
        return Parts(
            gpu.projections_s, gpu.attention_s, gpu.elementwise_s, gpu.launches_s,
            gpu.collectives_s, gpu.lm_head_s, waits,
        )  # fmt: skip
