"""Collectives by topology and message size. Seconds.

An all-reduce of S bytes on n GPUs moves 2 (n - 1) / n x S over each GPU's port. NCCL picks the
cheapest of its protocols (LL, LL128, Simple), so the time is the least of
start + steps x hop + moved / bandwidth over them.
"""

from functools import lru_cache

from dispatch.hardware.calibration import Calibration
from dispatch.hardware.catalogue import Gpu


def port_bytes_per_s(gpu: Gpu, n: int, gpus_per_node: int = 8) -> float:
    """Return the nominal rate of the slowest port that a ring of *n* GPUs crosses."""
    if n > gpus_per_node or gpu.nvlink_bytes_per_s == 0:
        return gpu.pcie_bytes_per_s
    if gpu.topology == "pairwise" and n > 2:
        return gpu.pcie_bytes_per_s
    if gpu.topology == "cube_mesh" and n == 2:
        return gpu.nvlink_bytes_per_s / 3  # two of six links join a pair
    return gpu.nvlink_bytes_per_s


@lru_cache(maxsize=4096)
def all_reduce_s(
    gpu: Gpu, cal: Calibration, n: int, size_bytes: float, gpus_per_node: int = 8
) -> float:
    """Return the time of one all-reduce of *size_bytes* on *n* GPUs; 0 for one GPU."""
    if n <= 1:
        return 0.0
    moved = 2.0 * (n - 1) / n * size_bytes
    port = port_bytes_per_s(gpu, n, gpus_per_node)
    c = cal.collective
    return min(
        (start + step * (n - 1)) * 1e-6 + moved / (port * ratio)
        for start, step, ratio in zip(c.start_us, c.step_us, c.bus_ratio, strict=True)
    )
