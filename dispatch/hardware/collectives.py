"""Collectives by topology and message size. Seconds.

An all-reduce of S bytes on n GPUs moves 2 (n - 1) / n x S over each GPU's port. A pipelined ring of
chunks costs its start, its steps, its bytes, and, for chunks of the best size, twice the geometric
mean of the last two; the constant of that term is fitted with the others.
"""

from typing import Any

import numpy as np

from dispatch.hardware.calibration import Calibration, Collective
from dispatch.hardware.catalogue import Gpu

CUSTOM_BYTES = 8 << 20
"""Largest message of the one-shot all-reduce that graphed engines use instead of NCCL."""


def port_bytes_per_s(gpu: Gpu, n: int) -> float:
    """Return the nominal rate of the slowest port that a ring of *n* GPUs of one node crosses."""
    if gpu.nvlink_bytes_per_s == 0 or (gpu.topology == "pairwise" and n > 2):
        return gpu.pcie_bytes_per_s
    if gpu.topology == "cube_mesh" and n == 2:
        return gpu.nvlink_bytes_per_s / 3  # two of six links join a pair
    return gpu.nvlink_bytes_per_s


def ring_s(c: Collective, port: float, n: Any, size_bytes: Any) -> Any:
    """Return an all-reduce of *size_bytes* on *n* GPUs over ports of *port* bytes per second."""
    moved = 2.0 * (n - 1) / n * size_bytes / (port * c.port_ratio * (n / 2.0) ** c.growth)
    steps = c.start_us + c.step_us * (n - 1)
    time = steps * 1e-6 + moved + np.sqrt(c.pipe_us * 1e-6 * (n - 1) * moved)
    if c.crowd_ratio > 0 and n > 2:
        crowd = np.maximum(size_bytes - c.crowd_mib * 2**20, 0.0)
        rate = port * c.crowd_ratio * (n / 2.0) ** c.growth
        time = time + 2.0 * (n - 1) / n * crowd / rate
    return time


def ring_of(gpu: Gpu, cal: Calibration, n: int) -> Collective:
    """Return the constants of a ring of *n* GPUs of one node, by the links that it crosses."""
    return cal.crossing if gpu.topology == "pairwise" and n > 2 else cal.collective


def network_s(cal: Calibration, n: int, per_node: int, size_bytes: Any) -> Any:
    """Return an all-reduce of *size_bytes* on *n* GPUs, *per_node* of them on each node."""
    c = cal.network
    rates = (c.one_gb_per_s, c.two_gb_per_s, c.four_gb_per_s, c.eight_gb_per_s)
    rate = np.interp(np.log2(per_node), (0, 1, 2, 3), rates) * 1e9
    moved = 2.0 * (n - 1) / n * size_bytes / rate
    steps = c.start_us + c.step_us * (n - 1)
    return steps * 1e-6 + moved + np.sqrt(c.pipe_us * 1e-6 * (n - 1) * moved)


def all_reduce_s(
    gpu: Gpu, cal: Calibration, n: int, size_bytes: float, per_node: int = 8, graphed: bool = False
) -> float:
    """Return one all-reduce of *size_bytes* on *n* GPUs; 0 for one GPU.

    Under CUDA graphs and one NVSwitch domain, small messages go by the one-shot kernel.
    """
    if n <= 1:
        return 0.0
    if n > per_node:
        return float(network_s(cal, n, per_node, size_bytes))
    port = port_bytes_per_s(gpu, n)
    ring = float(ring_s(ring_of(gpu, cal, n), port, n, size_bytes))
    if graphed and gpu.topology == "nvswitch" and size_bytes <= CUSTOM_BYTES:
        return min(ring, float(ring_s(cal.custom, port, n, size_bytes)))
    return ring


def measured_s(
    gpu: Gpu, cal: Calibration, n: int, per_node: int, size_bytes: Any, backend: str = "nccl"
) -> Any:
    """Return all-reduces as a benchmark times them: NCCL's, or the one-shot kernel's.

    *backend* is nccl, custom_graph or custom_eager; an eager call costs the host its launch.
    """
    if n > per_node:
        return network_s(cal, n, per_node, size_bytes)
    port = port_bytes_per_s(gpu, n)
    ring = ring_s(ring_of(gpu, cal, n), port, n, size_bytes)
    if backend == "nccl":
        return ring
    own = np.where(size_bytes <= CUSTOM_BYTES, ring_s(cal.custom, port, n, size_bytes), ring)
    return np.maximum(own, cal.launch.eager_reduce_us * 1e-6) if "eager" in backend else own
