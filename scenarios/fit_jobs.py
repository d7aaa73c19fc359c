"""What is fitted to what: one job a stack, GPU and section, with the range that physics allows.

The second list of a job is what a GPU without a fit gets: the same constants, fitted over all GPUs
of the stack together (``generic.<stack>.toml``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pandas as pd

from scenarios.fit import Free
from scenarios.measured import Measured

GEMM: Final = (
    Free("gemm", "compute_ratio", 0.2, 1.3), Free("gemm", "memory_ratio", 0.3, 1.0),
    Free("gemm", "launch_us", 0.3, 20.0), Free("gemm", "wave_us", 0.05, 10.0),
    Free("gemm", "tile_knee", 2.0, 120.0), Free("gemm", "blend", 1.0, 12.0),
)  # fmt: skip
ATTENTION: Final = (
    Free("attention", "start_us", 0.5, 60.0), Free("attention", "tile_us", 0.01, 20.0),
    Free("attention", "row_us", 0.01, 30.0), Free("attention", "kv_row_us", 0.01, 100.0),
    Free("attention", "kv_power", 0.1, 1.5), Free("attention", "compute_ratio", 0.15, 1.0),
    Free("attention", "tail", 0.01, 3.0), Free("attention", "prefill_blend", 0.7, 6.0),
    Free("attention", "combine_us", 0.01, 30.0), Free("attention", "unit_us", 0.05, 30.0),
    Free("attention", "group_cost", 0.001, 3.0), Free("attention", "memory_ratio", 0.3, 1.0),
    Free("attention", "serial_ns", 0.01, 20.0), Free("attention", "alone_ns", 0.01, 30.0),
    Free("attention", "decode_blend", 0.7, 8.0),
)  # fmt: skip
ELEMENTWISE: Final = (
    Free("elementwise", "launch_us", 0.5, 30.0), Free("elementwise", "norm_us", 0.05, 5.0),
    Free("elementwise", "norm_ratio", 0.1, 1.5), Free("elementwise", "add_ratio", 0.1, 1.5),
    Free("elementwise", "rope_ratio", 0.1, 1.5), Free("elementwise", "act_ratio", 0.1, 1.5),
)  # fmt: skip


def ring(section: str) -> tuple[Free, ...]:
    """Return the constants of a ring of one kind of link."""
    return (
        Free(section, "start_us", 0.1, 100.0), Free(section, "step_us", 0.05, 100.0),
        Free(section, "pipe_us", 0.01, 200.0), Free(section, "port_ratio", 0.02, 1.0),
        Free(section, "growth", 0.01, 1.0),
    )  # fmt: skip


NETWORK: Final = (
    Free("network", "start_us", 1.0, 500.0), Free("network", "step_us", 0.1, 200.0),
    Free("network", "pipe_us", 0.01, 2000.0), Free("network", "one_gb_per_s", 0.1, 100.0),
    Free("network", "two_gb_per_s", 0.1, 100.0), Free("network", "four_gb_per_s", 0.1, 100.0),
    Free("network", "eight_gb_per_s", 0.1, 400.0),
)  # fmt: skip
EAGER: Final = (Free("launch", "eager_reduce_us", 2.0, 200.0),)
LAYER: Final = (
    Free("gemm", "compute_ratio", 0.2, 1.3), Free("gemm", "memory_ratio", 0.3, 1.0),
    Free("attention", "memory_ratio", 0.05, 1.0), Free("launch", "eager_us", 2.0, 60.0),
)  # fmt: skip


@dataclass(frozen=True)
class Job:
    """Constants of one section of one stack, and the tables that they are fitted to."""

    stack: str
    section: str
    gpus: tuple[str, ...]
    kinds: tuple[str, ...]
    free: tuple[Free, ...]
    part: str = ""  # of all-reduces: nccl, nodes, crossing, custom
    source: str = ""
    generic: bool = True  # whether the joint fit over its GPUs serves GPUs without one
    own: bool = True  # whether each GPU gets constants of its own
    read: tuple[str, ...] = ()  # the stacks whose tables it takes; its own where empty

    def tables(self, items: Sequence[Measured], gpu: str | None = None) -> list[Measured]:
        """Return the tables of this job, cut to its part and to *gpu* (None: all of its GPUs)."""
        found = []
        for item in items:
            if item.kind not in self.kinds or item.stack not in (self.read or (self.stack,)):
                continue
            rows = item.table[item.table.gpu.isin([gpu] if gpu else list(self.gpus))]
            if item.kind == "all_reduce":
                rows = rows[_part(rows, self.part)]
            if len(rows):
                found.append(replace(item, table=rows.reset_index(drop=True)))
        return found


def _part(rows: pd.DataFrame, part: str) -> pd.Series:
    inside = (rows.n <= rows.per_node) & rows.bytes.between(1024, 512 * 2**20)
    crosses = rows.gpu.str.endswith("-PAIR") & (rows.n > 2)
    nccl = rows.backend == "nccl"
    return {
        "nccl": inside & nccl & ~crosses, "crossing": inside & nccl & crosses,
        "custom": inside & (rows.backend == "custom_graph"),
        "eager": inside & (rows.backend == "custom_eager"), "nodes": rows.n > rows.per_node,
    }[part]  # fmt: skip


AI: Final = "aiconfigurator-core 0.12.0, tables of vLLM 0.14 (NVIDIA, Apache-2.0)"
VIDUR: Final = "microsoft/vidur @ 7d47513, data/profiling (MIT)"
APEX: Final = "microsoft/apex_plus, profile (MIT)"
HELIX: Final = "Thesys-lab/Helix-ASPLOS25 @ 148b733, simulator/model_manager (Apache-2.0)"
SPLITWISE: Final = "Mutinifni/splitwise-sim @ 8f99e7d, data/perf_model.csv (MIT)"
SERVED: Final = "casys-kaist/LLMServingSim @ 5daddb2, bench/examples (MIT)"

JOBS: Final = (
    Job("vllm", "gemm", ("A100-80G",), ("gemm",), GEMM, source=AI, generic=False),
    Job("vllm", "gemm", ("H100-80G",), ("gemm",), GEMM, source=VIDUR, generic=False,
        read=("vidur",)),  # no GEMM table of this GPU under vLLM: the same library, an older one
    Job("vllm", "gemm", ("V100-PCIE-16G",), ("gemm",), GEMM, source=APEX, generic=False,
        read=("apex",)),
    Job("vllm", "gemm", ("A100-80G", "H100-80G"), ("gemm",), GEMM, source=f"{AI}; {VIDUR}",
        own=False, read=("vllm", "vidur")),
    Job("vllm", "elementwise", ("A100-80G", "H100-80G"), ("elementwise",), ELEMENTWISE,
        source=VIDUR, read=("vidur",)),
    Job("vllm", "attention", ("A100-80G", "H100-80G"), ("prefill_attention", "decode_attention"),
        ATTENTION, source=AI),
    Job("vllm", "collective", ("A100-80G", "H100-80G", "H200"), ("all_reduce",),
        ring("collective"), "nccl", AI),
    Job("vllm", "custom", ("A100-80G", "H100-80G", "H200"), ("all_reduce",), ring("custom"),
        "custom", AI),
    Job("vllm", "launch", ("A100-80G", "H100-80G", "H200"), ("all_reduce",), EAGER, "eager", AI),
    Job("vidur", "gemm", ("A100-80G", "H100-80G"), ("gemm",), GEMM, source=VIDUR),
    Job("vidur", "elementwise", ("A100-80G", "H100-80G"), ("elementwise",), ELEMENTWISE,
        source=VIDUR),
    Job("vidur", "collective", ("A100-80G", "H100-80G", "A100-80G-PAIR"), ("all_reduce",),
        ring("collective"), "nccl", VIDUR),
    Job("vidur", "crossing", ("A100-80G-PAIR",), ("all_reduce",), ring("crossing"), "crossing",
        VIDUR),
    Job("vidur", "network", ("A100-80G",), ("all_reduce",), NETWORK, "nodes", VIDUR),
    Job("apex", "gemm", ("V100-PCIE-16G",), ("gemm",), GEMM, source=APEX, generic=False),
    Job("apex", "collective", ("H100-80G", "H200", "V100-PCIE-16G"), ("all_reduce",),
        ring("collective"), "nccl", APEX),
    Job("apex", "network", ("V100-PCIE-16G",), ("all_reduce",), NETWORK, "nodes", APEX),
    Job("helix", "host", ("A100-40G", "V100-16G"), ("layer",), LAYER, source=HELIX),
)  # fmt: skip
