"""Ring latency: a small all-reduce over the members of a replica, NCCL on GPUs, gloo on CPU."""

import statistics
import time
from datetime import timedelta
from typing import Any

FLOATS = 2  # 8 bytes: latency, no bandwidth
_WARM_UP = 20


def measure(rank: int, world: int, store: str, backend: str, rounds: int = 200) -> float:
    """Join *world* processes at *store* (a ``file://`` or ``tcp://`` address); return seconds.

    The median of *rounds* all-reduces after a warm-up, as seen by this rank; CUDA events time NCCL.
    """
    import torch.distributed as dist

    dist.init_process_group(
        backend, init_method=store, rank=rank, world_size=world, timeout=timedelta(seconds=60)
    )
    try:
        return _median(dist, rank, backend, rounds)
    finally:
        dist.destroy_process_group()


def _median(dist: Any, rank: int, backend: str, rounds: int) -> float:
    import torch

    cuda = backend == "nccl"
    tensor = torch.ones(FLOATS, device=f"cuda:{rank}" if cuda else "cpu")
    for _ in range(_WARM_UP):
        dist.all_reduce(tensor)
    times: list[float] = []
    for _ in range(rounds):
        if cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            dist.all_reduce(tensor)
            end.record()
            end.synchronize()
            times.append(float(begin.elapsed_time(end)) / 1e3)
        else:
            begun = time.perf_counter()
            dist.all_reduce(tensor)
            times.append(time.perf_counter() - begun)
    return float(statistics.median(times))
