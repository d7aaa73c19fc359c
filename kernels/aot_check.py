"""Compile the launches of a model for absent GPUs: ``python -m kernels.aot_check`` (JSON lines)."""

import json
from collections.abc import Iterator
from typing import Any, Final

from dispatch import hardware
from kernels import aot
from kernels.spec import decode_tiling, prompt_tiling, spec_of

CEILINGS: Final = {
    "decode": {"registers": 192, "stack_bytes": 64, "shared_bytes": 100 << 10, "spills": 16},
    "prefill": {"registers": 255, "stack_bytes": 64, "shared_bytes": 163 << 10, "spills": 16},
}
"""Of one launch. Counts of registers move by a third between compilers, so these are no targets."""


def rows(model: str = "llama-3.2-1b", targets: tuple[int, ...] = (80, 90)) -> Iterator[Any]:
    """Yield what each launch takes on each target, and what is above its ceiling."""
    spec = spec_of(hardware.model(model))
    for target in targets:
        yield _row("decode", target, aot.build(spec, decode_tiling(spec, 1), target, (0, 5)))
        tiling = prompt_tiling(spec, 4096)
        for phase in range(5):
            built = aot.build(
                spec, tiling, target, (phase, phase + 1), prompt=True, scratch="bfloat16"
            )
            yield _row("prefill", target, built)


def _row(kind: str, target: int, built: aot.Built) -> dict[str, Any]:
    names = ("registers", "stack_bytes", "shared_bytes", "spills")
    taken = {name: getattr(built, name) for name in names}
    wrong = [
        f"{name} {taken[name]} > {most}"
        for name, most in CEILINGS[kind].items() if taken[name] > most
    ]  # fmt: skip
    if kind == "decode" and (built.barriers, built.acquires, built.uncached_reads) != (5, 4, 0):
        wrong.append("the PTX lacks an acquire or a release, or reads past the cache")
    what = f"{kind} phases {built.phases[0]}-{built.phases[1] - 1}, sm_{target}"
    return {"what": what, **taken, "wrong": "; ".join(wrong)}


def main() -> None:
    """Print every result."""
    for row in rows():
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
