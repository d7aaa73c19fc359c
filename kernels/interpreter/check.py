"""What a machine without a GPU can check: ``python -m kernels.interpreter.check`` (JSON lines).

Needs ``TRITON_INTERPRET=1`` in its environment from the start, which the verb sees to.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

import torch

from kernels.interpreter.honest import honest
from kernels.interpreter.schedule import ORDERS, Schedule, interleaved
from kernels.selftest import failure
from kernels.spec import BlockSpec, Tiling

_CPU: Final = torch.device("cpu")
_LAYOUTS: Final = {
    "llama": BlockSpec(96, 4, 2, 24, 160),
    "gpt": BlockSpec(80, 4, 4, 20, 200, "layer", False, False, True, True),
    "head size 80, group 7": BlockSpec(64, 7, 1, 80, 96),
}
_TILES: Final = Tiling(bm=16, bn=64, bk=128, bt=32, bq=32, splits=3, least=32)
_LENGTHS: Final = (70, 0, -1)
_TYPES: Final = (torch.bfloat16, torch.float16, torch.float32)


def rows() -> Iterator[dict[str, Any]]:
    """Yield one result a check: what ran, and what is wrong with it (empty: nothing)."""
    with honest() as hooks:
        for layout, spec in _LAYOUTS.items():
            for shape in ("split5", "prefill"):
                for dtype in _TYPES:
                    told = failure(spec, shape, dtype, _CPU, 1, _TILES, _LENGTHS)
                    yield {"what": f"{shape} {layout}", "dtype": str(dtype)[6:], "wrong": told}
            for order in ORDERS:
                with interleaved(hooks, Schedule(order, 1, 0.02)):
                    told = failure(spec, "mega", torch.bfloat16, _CPU, 3, _TILES, _LENGTHS)
                what = f"mega {layout}, 3 programs, order {order}"
                yield {"what": what, "dtype": "bfloat16", "wrong": told}


def main() -> None:
    """Print every result."""
    for row in rows():
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
