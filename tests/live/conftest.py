"""Live tests share two cores: one torch thread each is faster than two that wait for each other."""

import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))  # live_help
torch.set_num_threads(1)

_before = os.environ.get("TRITON_INTERPRET")
os.environ["TRITON_INTERPRET"] = "1"  # read where kernels are decorated: at import
try:
    import triton.experimental.gluon  # noqa: F401  (a launch imports it late)

    import kernels.block  # noqa: F401
except ImportError:
    pass  # the tests that need it skip with a reason
finally:
    if _before is None:
        del os.environ["TRITON_INTERPRET"]
    else:
        os.environ["TRITON_INTERPRET"] = _before
