"""The cost model in plain floats: numpy's call overhead would be most of an iteration's price.

The formulas are those of :mod:`dispatch.hardware.operators`, with all that hangs on the replica
alone worked out once. A pace compares itself with the roofline when it is made, and where they
differ (somebody changed a formula there) the roofline is asked every time: slower, never wrong.
"""

import math
from collections.abc import Sequence
from typing import Final

from dispatch.hardware import Parts, Roofline
from dispatch.hardware.plans import pass_bytes, score_traffic
from sim.cost import StepCost

_ROWS: Final = 128  # query rows of one attention tile
_PROBES: Final[tuple[tuple[tuple[int, ...], tuple[int, ...], int, float], ...]] = (
    ((700,), (0,), 0, 0.0), ((1,), (3000,), 0, 0.0), ((64, 900), (0, 512), 0, 0.0),
    ((2048,), (0,), 12, 9000.0), ((17, 5), (0, 0), 1, 40.0), ((300,), (1500,), 200, 300_000.0),
)  # fmt: skip


def _blend(a: float, b: float, power: float) -> float:
    if a < b:
        a, b = b, a
    return float(a * (1.0 + (b / a) ** power) ** (1.0 / power))


class Pace:
    """Times of iterations of one kind of replica (:class:`sim.rates.Cost`), equal to its cost's."""

    def __init__(self, cost: StepCost) -> None:
        self.cost = cost
        roofline = self._roofline = cost.roofline
        self.decode_line = cost.decode_line
        self._base: dict[int, float] = {}
        self._prompts: dict[int, float] = {}
        self._heads: dict[int, float] = {}
        self._units: dict[int, float] = {}
        self._waits: dict[int, float] = {}  # of the host, by sequences; a prompt is always there
        self._constants(roofline)
        self.exact = all(self._agrees(*probe) for probe in _PROBES)
        """Whether this pace agrees with the roofline; else it asks it."""
        self.mixed_s = self._mixed_s if self.exact else cost.mixed_s

    def _agrees(self, new: Sequence[int], past: Sequence[int], batch: int, context: float) -> bool:
        whole = self._roofline.parts(new, past, batch, context).total_s
        return math.isclose(self._mixed_s(new, past, batch, context), whole, rel_tol=1e-9)

    def _constants(self, r: Roofline) -> None:
        gpu, c, m, us = r.gpu, r.attention, r.model, 1e-6
        self._layers = float(m.layers)
        self._start = c.start_us * us
        self._tile, self._row = c.tile_us * us, c.row_us * us / _ROWS
        self._pair = 4.0 * m.head_dim / (gpu.flops["fp16"] / gpu.sms * c.compute_ratio)
        self._copied = r.kv_heads**c.kv_power / _ROWS * c.kv_row_us * us
        self._sms, self._tail, self._prefill_blend = gpu.sms, c.tail, c.prefill_blend
        self._n_heads = r.heads
        group = r.heads / r.kv_heads
        self._unit = r.kv_heads * c.unit_us * (1.0 + c.group_cost * math.log2(group)) * us / gpu.sms
        width = 1.0 if r.kv_precision == "fp8" else 2.0
        moved = 2.0 * r.kv_heads * m.head_dim * width
        self._read = moved / (gpu.bandwidth_bytes_per_s * c.memory_ratio)
        self._walk = (c.alone_ns if group == 1 else c.serial_ns) * 1e-9
        self._combine = c.combine_us * us if group > 1 else 0.0
        self._p = c.decode_blend
        self._launches = r._launches_s(True)
        huge = 1 << 50  # beyond any cache: the traffic is proportional to what is attended
        self._score = score_traffic(m, r.plan.name, r.tp, huge) / huge
        self._score_rate = self._layers / (gpu.bandwidth_bytes_per_s * r.cal.gemm.memory_ratio)
        self._score_least = gpu.l2_bytes / 2

    def _mixed_s(
        self, new: Sequence[int], past: Sequence[int], batch: int = 0, context: float = 0.0
    ) -> float:
        """Return the time of an iteration with prompt chunks and *batch* decodes."""
        prompt, attention, attended = 0, 0.0, context
        for at, n in enumerate(new):
            p = past[at]
            prompt += n
            if p:
                attention += self._prefill_s(n, p)
            else:  # most prompts are computed from their first token on, and many are as long
                whole = self._prompts.get(n)
                if whole is None:
                    whole = self._prompts[n] = self._prefill_s(n, 0)
                attention += whole
            if self._score:
                attended += n * (p + (n + 1) / 2)
        attention -= (len(new) - 1) * self._start
        if batch:
            attention += self._decode_s(batch, context / batch)
        base = self._base.get(prompt + batch)
        if base is None:
            base = self._base[prompt + batch] = self._base_s(prompt + batch)
        sequences = len(new) + batch
        head = self._heads.get(sequences)
        if head is None:
            head = self._heads[sequences] = self._roofline._head_s(sequences)
        gpu_s = base + head + self._layers * attention + self._launches
        if self._score:
            scores = attended * self._score
            passes = self._roofline.plan.score_passes
            if scores > self._score_least * passes:
                gpu_s += scores * self._score_rate
        waits = self._waits.get(sequences)
        if waits is None:
            waits = self._host_s(gpu_s, prompt, sequences)
            if self._roofline.plan.graphed:  # nothing hangs on how long the GPU was busy
                self._waits[sequences] = waits
        return gpu_s + waits

    def _prefill_s(self, new: int, past: int) -> float:
        rows = new if new < _ROWS else _ROWS
        tiles = self._n_heads * -(-new // _ROWS)
        tile = self._tile + self._row * rows + self._pair * rows * (past + (new + rows) / 2.0)
        work = (tiles * tile + new * self._copied) / self._sms
        longest = self._tail * self._pair * rows * (past + new)
        return _blend(self._start, work + longest, self._prefill_blend)

    def _decode_s(self, batch: int, context: float) -> float:
        p = self._p
        units = self._units.get(batch)
        if units is None:
            units = self._units[batch] = (batch * self._unit) ** p
        combine = self._combine if context > _ROWS else 0.0
        spread = (batch * context * self._read) ** p + (self._walk * context) ** p
        return float(self._start + combine + (units + spread) ** (1.0 / p))

    def _base_s(self, tokens: int) -> float:
        """Return projections, elementwise passes and collectives of *tokens* tokens."""
        r = self._roofline
        moved = pass_bytes(r.model, r.plan.name, r.tp, tokens, r.gpu.l2_bytes)
        collective = 2 * r.model.layers * r.all_reduce_s(2.0 * tokens * r.model.hidden)
        passes = r._elementwise_s(tokens, 0.0) if moved else 0.0
        return r.projections_s(tokens) + passes + collective

    def _host_s(self, busy: float, prompt: int, sequences: int) -> float:
        return self._roofline._with_host(Parts(projections_s=busy), prompt, sequences).host_s
