"""What the fork server loads once, so that a worker (and its successor) starts in no time."""

import contextlib

for _module in ("numpy", "pyarrow", "pandas", "scenarios.schema", "traces", "sim"):
    with contextlib.suppress(ImportError):
        __import__(_module)
