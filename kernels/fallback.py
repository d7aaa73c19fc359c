"""One launch until a GPU refuses it, and from then on five: the same numbers, and it is said."""

import sys
from collections.abc import Callable
from typing import Final

from torch import Tensor

from kernels.launch import Batch, Cache, Shape, Weights, Workspace, run
from kernels.spec import BlockSpec, Tiling

_REFUSALS: Final = (
    "cooperative launch", "out of resource", "too many resources", "operation not supported",
)  # fmt: skip


def is_refusal(error: BaseException) -> bool:
    """Return whether a launch was refused before any of it ran; all else is not ours to hide.

    A grid that does not fit the SMs at once, registers or shared memory that are not there, and
    cards or drivers without cooperative launches, as Triton words what CUDA answers.
    """
    return any(told in str(error).lower() for told in _REFUSALS)


def _to_stderr(told: str) -> None:
    print(f"zerolayer: {told}", file=sys.stderr)


class Launcher:
    """Runs blocks of one engine, in one launch until that is refused once.

    ``refused`` says why, empty where nothing was; ``fallbacks`` counts the blocks that ran in five
    launches although one was wanted. Not thread-safe, as its workspaces are not.
    """

    def __init__(self, tell: Callable[[str], None] = _to_stderr) -> None:
        self.refused = ""
        self.fallbacks = 0
        self._tell = tell

    def run(
        self, spec: BlockSpec, weights: Weights, rope: Tensor | None, x: Tensor, cache: Cache,
        batch: Batch, space: Workspace, tiling: Tiling, shape: Shape, grid: int,
        out: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Run the block as :func:`kernels.launch.run` does; the output is the same either way.

        Raises what the launch raised where that is no refusal.
        """

        def launch(shape: Shape) -> Tensor:
            return run(
                spec, weights, rope, x, cache, batch, space, tiling, shape, grid, out
            )  # fmt: skip

        if shape != "mega":
            return launch(shape)
        if not self.refused:
            try:
                return launch("mega")
            except Exception as error:
                if not is_refusal(error):
                    raise
                self._give_up(str(error).splitlines()[0], space)
        self.fallbacks += 1
        return launch("split5")

    def _give_up(self, why: str, space: Workspace) -> None:
        self.refused = why
        space.bar.zero_()  # a refused launch leaves them alone; nobody must have to know that
        space.count.zero_()
        self._tell(f"one launch a block was refused ({why}); five take its place from now on")
