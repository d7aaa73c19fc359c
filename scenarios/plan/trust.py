"""How far the cost model may be off for an arm's GPUs: what its calibration files state."""

import math
from dataclasses import dataclass
from typing import Final

from dispatch import hardware
from dispatch.hardware import Calibration
from scenarios import arms
from scenarios.plan.fleets import Counts
from scenarios.schema import ArmConfig, Scenario

ASSUMED_ERROR: Final = 0.2
"""Shown where no fit states an error: an assumption, and said to be one."""
_OPERATORS: Final = ("gemm", "attention", "elementwise", "host")


@dataclass(frozen=True, slots=True)
class Trust:
    """The error of an iteration's time as a ratio, whether a fit states it, and both in words."""

    error: float
    stated: bool
    text: str


def trust(scenario: Scenario, arm: ArmConfig, counts: Counts | None = None) -> Trust:
    """Return the worst stated error over the GPUs of *arm*, or the assumed one.

    *counts* are the replicas of each pool; of a pool without any nothing needs to be known.
    """
    known: dict[str, float] = {}
    unknown: list[str] = []
    pools = arms.fleet(scenario, arm).pools
    for pool, count in zip(pools, counts or [1] * len(pools), strict=True):
        if not count:
            continue
        card = hardware.gpu(pool.gpu)
        error = stated_error(hardware.calibration(card, arm.engine.kernel_plan), pool.tp)
        if math.isnan(error):
            unknown.append(card.name)
        else:
            known[card.name] = max(error, known.get(card.name, 0.0))
    plan = arm.engine.kernel_plan
    named = ", ".join(f"{name} {100 * error:.1f} %" for name, error in sorted(known.items()))
    missing = ", ".join(dict.fromkeys(unknown))
    if not unknown:
        text = f"Calibration error of iteration times under {plan} kernels: {named}."
        return Trust(max(known.values()), True, text)
    error = max([ASSUMED_ERROR, *known.values()])
    text = (
        f"No fit states an error for {missing} under {plan} kernels: "
        f"± {100 * error:.0f} % is an assumption."
    )
    return Trust(error, False, f"{text} Fitted: {named}." if named else text)


def stated_error(constants: Calibration, tp: int) -> float:
    """Return the error that the fits of one GPU and stack state, NaN where they state none.

    That of whole iterations with this GPU left out of the fit is the best judge; then the worst
    operator on rows that the fit did not see; then on those that it saw.
    """
    needed = (*_OPERATORS, "collective") if tp > 1 else _OPERATORS
    fits = [constants.fits[name] for name in needed if name in constants.fits]
    whole = [v for fit in fits for kind, v in fit.left_out.items() if kind in ("prompt", "token")]
    if whole and "host" not in constants.assumed:  # else they are another GPU's iterations
        return max(whole)
    if set(needed) & set(constants.assumed):
        return math.nan
    errors = [
        fit.median_error if math.isnan(fit.held_out_error) else fit.held_out_error for fit in fits
    ]
    stated = [error for error in errors if not math.isnan(error)]
    return max(stated, default=math.nan)
