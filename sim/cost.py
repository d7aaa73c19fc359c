"""The cost model as an engine asks for it: the time of its next iteration, affine in decode."""

from collections.abc import Sequence
from dataclasses import replace

from dispatch.hardware import Calibration, Gpu, Model, Parts, Roofline, calibration, plan

RING_PROBE_BYTES = 8192.0
"""Message of the ring probe: small, so that it reads latency and not bandwidth."""


class StepCost:
    """Times of iterations of one model on one kind of replica under one kernel plan.

    Pure and deterministic; answers are cached. ``extrapolated`` names every reason why a figure
    rests on constants that were not fitted on this GPU and stack.
    """

    def __init__(
        self,
        gpu: Gpu,
        model: Model,
        precision: str = "fp16",
        tp: int = 1,
        kernel_plan: str = "fused",
        *,
        kv_precision: str | None = None,
        stack: str | None = None,
        gpus_per_node: int = 8,
        host_overhead_us: float | None = None,
        constants: Calibration | None = None,
    ) -> None:
        cal = constants or calibration(gpu, kernel_plan, stack)
        if host_overhead_us is not None:
            cal = replace(cal, host=replace(cal.host, iteration_us=host_overhead_us))
        kv = kv_precision or ("fp8" if precision == "fp8" else "fp16")
        self.roofline = Roofline(
            gpu, model, precision, kv, tp, plan(kernel_plan), cal, gpus_per_node
        )
        self._lines: dict[int, tuple[float, float]] = {}

    @property
    def ring_s(self) -> float:
        """Latency of a small all-reduce inside the replica; 0 where it is one GPU."""
        return self.roofline.all_reduce_s(RING_PROBE_BYTES)

    @property
    def extrapolated(self) -> tuple[str, ...]:
        """Why figures are extrapolated, if they are."""
        return self.roofline.extrapolated

    def ring_scaled(self, factor: float) -> "StepCost":
        """Return the same replica with collectives *factor* times slower (a degraded ring)."""
        other = object.__new__(StepCost)
        other.roofline = self.roofline.with_ring(factor)
        other._lines = {}
        return other

    def decode_line(self, batch: int) -> tuple[float, float]:
        """Return (base_s, slope_s): *batch* sequences over C tokens take base_s + slope_s x C."""
        line = self._lines.get(batch)
        if line is None:
            line = self._lines[batch] = self.roofline.decode_line(batch)
        return line

    def mixed_s(
        self,
        new_tokens: Sequence[int],
        past_tokens: Sequence[int],
        decode_batch: int = 0,
        decode_context: float = 0.0,
    ) -> float:
        """Return the time of an iteration with prompt chunks and *decode_batch* decodes."""
        return self.parts(new_tokens, past_tokens, decode_batch, decode_context).total_s

    def parts(
        self,
        new_tokens: Sequence[int] = (),
        past_tokens: Sequence[int] = (),
        decode_batch: int = 0,
        decode_context: float = 0.0,
    ) -> Parts:
        """Return what an iteration spends, part by part."""
        return self.roofline.parts(new_tokens, past_tokens, decode_batch, decode_context)
