"""A refused single launch gives way to five: once, counted, told, and with the same numbers."""

from typing import Any

import pytest
import torch

from kernels import fallback
from kernels.fallback import Launcher, is_refusal
from kernels.interpreter.honest import honest
from kernels.launch import Workspace
from tests.kernels.blocks import LLAMA, WIDE_TILES, Case, assert_right, batch_of, case

REFUSED = "Triton Error [CUDA]: too many blocks in cooperative launch"


def launch(launcher: Launcher, c: Case, shape: str = "mega") -> torch.Tensor:
    space = Workspace(c.spec, len(c.x), WIDE_TILES, c.x.device)
    space.poison()
    with honest():
        return launcher.run(
            c.spec, c.weights, c.rope, c.x, c.cache, batch_of(c, False, WIDE_TILES), space,
            WIDE_TILES, shape, 1,  # type: ignore[arg-type]
        )  # fmt: skip


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Refuse every single launch, and return the shapes that were asked for."""
    asked: list[str] = []
    real = fallback.run

    def run(*given: Any) -> torch.Tensor:
        asked.append(given[8])
        if given[8] == "mega":
            raise RuntimeError(REFUSED)
        return real(*given)

    monkeypatch.setattr(fallback, "run", run)
    return asked


def test_five_launches_take_the_place_of_one_that_is_refused(refusing: list[str]) -> None:
    told: list[str] = []
    launcher, c = Launcher(told.append), case(LLAMA, [20])
    assert_right(c, launch(launcher, c))
    assert refusing == ["mega", "split5"]
    assert launcher.refused == REFUSED
    assert told == [f"one launch a block was refused ({REFUSED}); five take its place from now on"]


def test_one_launch_is_not_tried_again(refusing: list[str]) -> None:
    told: list[str] = []
    launcher = Launcher(told.append)
    for _ in range(3):
        launch(launcher, case(LLAMA, [20]))
    assert refusing == ["mega", "split5", "split5", "split5"]
    assert launcher.fallbacks == 3
    assert len(told) == 1


def test_any_other_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered")

    monkeypatch.setattr(fallback, "run", broken)
    launcher = Launcher()
    with pytest.raises(RuntimeError, match="illegal memory access"):
        launch(launcher, case(LLAMA, [20]))
    assert not launcher.refused
    assert not launcher.fallbacks


def test_where_nothing_is_refused_nothing_is_counted() -> None:
    launcher, c = Launcher(), case(LLAMA, [20])
    assert_right(c, launch(launcher, c))
    assert (launcher.refused, launcher.fallbacks) == ("", 0)


def test_tritons_own_refusal_for_want_of_resources_counts() -> None:
    from triton.runtime.errors import OutOfResources

    assert is_refusal(OutOfResources(300_000, 232_448, "shared memory"))
    assert not is_refusal(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"))
