"""Compile the block ahead of time for GPUs that are not here, and read what it takes of them.

Needs neither GPU nor driver: Triton ships ptxas and cuobjdump. What only a GPU shows (time, real
memory order, co-residency) is not here.
"""

import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernels.spec import BlockSpec, Tiling

POINTERS: Final = {"bfloat16": "*bf16", "float16": "*fp16", "float32": "*fp32"}
_ARGUMENTS: Final = (
    ("x", "w"), ("out", "w"), ("pos", "*i32"), ("seq", "*i32"), ("T", "i32"),
    ("tile_first", "*i32"), ("tile_end", "*i32"), ("TILES", "i32"),
    *((name, "w") for name in (
        "norm1", "norm1_b", "qkv_w", "qkv_b", "out_w", "out_b", "norm2", "norm2_b", "up_w", "up_b",
        "down_w", "down_b",
    )),
    ("rope", "*fp32"), ("k", "w"), ("v", "w"), ("k_table", "*i64"), ("v_table", "*i64"),
    ("table_stride", "i32"), ("page_stride", "i64"), ("token_stride", "i32"),
    ("head_stride", "i32"), ("q_s", "s"), ("part_s", "*fp32"), ("tops_s", "*fp32"),
    ("count_s", "*i32"), ("attn_s", "s"), ("mid_s", "*fp32"), ("ffn_s", "s"), ("bar", "*i32"),
    ("eps", "fp32"), ("scale", "fp32"), ("CONTEXT", "i32"),
)  # fmt: skip
_ALIGNED: Final = ("table_stride", "page_stride", "token_stride", "head_stride")


@dataclass(frozen=True, slots=True)
class Built:
    """One compiled launch: what it takes, and counts of instructions that matter."""

    target: str
    phases: tuple[int, int]
    registers: int
    stack_bytes: int
    shared_bytes: int
    spills: int  # local loads and stores in the machine code
    tensor_cores: int
    async_copies: int
    ptx: str

    @property
    def barriers(self) -> int:
        """Arrivals at a device-wide barrier, or tickets of split attention."""
        return len(re.findall(r"atom\.global\.acq_rel\.gpu\S*\.add\.[us]32|atom\.global\.gpu"
                              r"\.acq_rel\.add\.[us]32", self.ptx))  # fmt: skip

    @property
    def acquires(self) -> int:
        """Polls that acquire."""
        found = r"ld\.global\.gpu\.acquire|ld\.acquire\.gpu|atom\.global\.(gpu\.)?acquire"
        return len(re.findall(found, self.ptx))

    @property
    def dependent_steps(self) -> int:
        """Waits for, and releases of, a launch that depends on another."""
        return len(re.findall(r"griddepcontrol\.(?:wait|launch_dependents)", self.ptx))

    @property
    def early_reads(self) -> int:
        """Loads before the wait for the launch before: their data may not be there yet."""
        before, waits, _ = self.ptx.partition("griddepcontrol.wait")
        return len(re.findall(r"\bld\.global|\bcp\.async\.c[ag]", before)) if waits else 0

    @property
    def warmed(self) -> int:
        """Instructions that ask for lines in L2."""
        return self.ptx.count("prefetch.global.L2")

    @property
    def uncached_reads(self) -> int:
        """Loads through the read-only path, which no acquire reaches."""
        return len(re.findall(r"ld\.global\.\S*nc", self.ptx))


def build(
    spec: BlockSpec, tiling: Tiling, capability: int, phases: Sequence[int],
    dtype: str = "bfloat16", prompt: bool = False, page_tokens: int = 16, scratch: str = "float32",
) -> Built:  # fmt: skip
    """Compile phases [low, high) for compute capability *capability* (80, 90, ...)."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernels.block import block_kernel
    from kernels.launch import constants

    names = {"w": POINTERS[dtype], "s": POINTERS[scratch]}
    signature = {name: names.get(kind, kind) for name, kind in _ARGUMENTS}
    fixed = constants(spec, tiling, page_tokens, prompt)
    dependent = tiling.dependent and phases[1] - phases[0] == 1 and capability >= 90
    fixed |= {"LO": phases[0], "HI": phases[1], "WARM": tiling.warm, "DEPENDENT": dependent}
    order = block_kernel.arg_names
    attributes = {
        (order.index(name),): [["tt.divisibility", 16]]
        for name, kind in signature.items() if kind.startswith("*") or name in _ALIGNED
    }  # fmt: skip
    signature |= dict.fromkeys(fixed, "constexpr")
    places = {(order.index(name),): value for name, value in fixed.items()}
    source = ASTSource(block_kernel, {n: signature[n] for n in order}, places, attributes)
    options = {
        "num_warps": tiling.warps, "num_stages": tiling.stages, "enable_fp_fusion": True,
        "launch_cooperative_grid": phases[1] - phases[0] > 1, "launch_pdl": dependent,
    }  # fmt: skip
    done = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return _read(done, f"sm_{capability}", (phases[0], phases[1]))


def _read(done: Any, target: str, phases: tuple[int, int]) -> Built:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "block.cubin"
        path.write_bytes(done.asm["cubin"])
        usage = _cuobjdump("--dump-resource-usage", path)
        sass = _cuobjdump("-sass", path)
    found = {k: int(v) for k, v in re.findall(r"(REG|STACK|SHARED):(\d+)", usage)}
    return Built(
        target, phases, found["REG"], found["STACK"], int(done.metadata.shared),
        spills=len(re.findall(r"\b(?:LDL|STL)\b", sass)),
        tensor_cores=len(re.findall(r"\bH?G?H?MMA\b|\bHGMMA\b", sass)),
        async_copies=len(re.findall(r"\bLDGSTS\b|\bUTMALDG\b", sass)), ptx=str(done.asm["ptx"]),
    )  # fmt: skip


def _cuobjdump(flag: str, path: Path) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    done = subprocess.run([str(tool), flag, str(path)], check=True, capture_output=True, text=True)
    return done.stdout
