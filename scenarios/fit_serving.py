"""Fits an engine's constants to the first half of a measured serving run."""

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final

import numpy as np

from dispatch import hardware
from dispatch.errors import InputError
from dispatch.hardware import Calibration, calibration
from scenarios.fit import Free, changed, get, put
from scenarios.fit_jobs import SERVED
from scenarios.measured import Measured
from scenarios.serving import kind_of, setup_of, simulate, times
from scenarios.split import digest, halves

FREE: Final = (
    Free("gemm", "compute_ratio", 0.3, 1.3), Free("gemm", "memory_ratio", 0.5, 1.0),
    Free("attention", "memory_ratio", 0.3, 0.95), Free("attention", "unit_us", 0.2, 10.0),
    Free("host", "iteration_us", 10.0, 8000.0),
)  # fmt: skip
CONTEXT: Final = Free("memory", "context_mib", 50.0, 4000.0)


def fitted_memory(item: Measured, cal: Calibration) -> Calibration:
    """Return *cal* with the context bytes that leave the blocks which the engine printed."""
    target = int(item.facts["kv_cache"]["num_kv_tokens"])
    setup = setup_of(item)
    low, high = CONTEXT.low, CONTEXT.high
    for _ in range(40):
        middle = (low + high) / 2.0
        tokens = kind_of(setup, put(cal, {CONTEXT: middle})).plan.capacity_tokens
        if tokens == target:
            return put(cal, {CONTEXT: middle})
        low, high = (middle, high) if tokens > target else (low, middle)
    raise InputError.at(str(item.path), f"no context size leaves {target} tokens of KV cache")


def serving_jobs(
    items: Sequence[Measured],
) -> Iterator[tuple[str, str, str, dict[str, Any], dict[str, Any]]]:
    """Yield (GPU, stack, section, constants, record) of every measured run."""
    from scipy.optimize import least_squares

    for item in (i for i in items if i.kind == "serving"):
        setup = setup_of(item)
        name = hardware.gpu(setup.fleet.pools[0].gpu).name
        start = calibration(hardware.gpu(name), setup.engine.kernel_plan, bare=True)
        start = fitted_memory(item, start)
        rows, _, _ = simulate(item, setup, start)
        real = times(rows.queued_ts, rows.first_token_ts, rows.last_token_ts, rows.output_toks)
        first, _ = halves(rows, "queued_ts")

        def residuals(x: Any) -> Any:
            cal = put(start, dict(zip(FREE, np.exp(x), strict=True)))  # noqa: B023
            _, made, _ = simulate(item, setup, cal)  # noqa: B023
            ratios = [np.log(made[q] / real[q])[first] for q in made]  # noqa: B023
            return np.nan_to_num(np.concatenate(ratios), nan=0.0, posinf=1.0)

        low, high = np.log([f.low for f in FREE]), np.log([f.high for f in FREE])
        x0 = np.clip(np.log([get(start, f) for f in FREE]), low + 1e-9, high - 1e-9)
        x = least_squares(residuals, x0, bounds=(low, high), loss="soft_l1", f_scale=0.03,
                          diff_step=1e-2, max_nfev=30).x  # fmt: skip
        cal = put(start, dict(zip(FREE, np.exp(x), strict=True)))
        error = float(np.median(np.abs(np.expm1(residuals(x)))))
        record = {
            "source": SERVED, "card": name, "date": date.today().isoformat(),
            "rows": int(first.sum()), "median_error": error, "files": [digest(item.path)],
            "range": {"prompt": [float(rows.input_toks.min()), float(rows.input_toks.max())]},
        }  # fmt: skip
        for section in ("gemm", "attention", "host", "memory"):
            yield name, "vllm", section, changed(cal, section), record
