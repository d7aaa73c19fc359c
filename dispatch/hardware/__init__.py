"""GPU and model catalogue, and the one cost model that sim, live and kernels read."""

from dispatch.hardware.calibration import Calibration, calibration, stacks
from dispatch.hardware.catalogue import (
    PRECISION_BYTES,
    Gpu,
    Model,
    gpu,
    gpus,
    model,
    models,
)  # fmt: skip
from dispatch.hardware.memory import MemoryPlan, memory_plan
from dispatch.hardware.plans import PLANS, KernelPlan, plan
from dispatch.hardware.roofline import Parts, Roofline

__all__ = [
    "PLANS", "PRECISION_BYTES", "Calibration", "Gpu", "KernelPlan", "MemoryPlan", "Model", "Parts",
    "Roofline", "calibration", "gpu", "gpus", "memory_plan", "model", "models", "plan", "stacks",
]  # fmt: skip
