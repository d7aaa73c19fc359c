"""Load the kernels under Triton's interpreter, once, without touching what other tests inherit."""

import os

import pytest

triton_is_there = True
_before = os.environ.get("TRITON_INTERPRET")
os.environ["TRITON_INTERPRET"] = "1"  # read where functions are decorated: at import
try:
    import triton.experimental.gluon  # noqa: F401  (a launch imports it late)

    import kernels.block
    import kernels.gpu.costs
    import kernels.stages  # noqa: F401
except ImportError:
    triton_is_there = False
finally:
    if _before is None:
        del os.environ["TRITON_INTERPRET"]
    else:
        os.environ["TRITON_INTERPRET"] = _before

NEEDS_TRITON = (
    "test_block", "test_prompt", "test_barrier", "test_counts", "test_honest", "test_aot",
    "test_ops", "test_check", "test_baselines", "test_runner", "test_fallback", "test_tune",
    "test_bars",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs triton where it is not installed; under CI=true let it fail."""
    if triton_is_there or os.environ.get("CI") == "true":
        return
    for item in items:
        if item.path.stem in NEEDS_TRITON and item.path.parent.name == "kernels":
            item.add_marker(pytest.mark.skip(reason="triton is not installed"))
