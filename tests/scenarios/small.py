"""A scenario small enough for tests, written as a user would."""

from pathlib import Path

TEXT = """name = "small"
seed = 7
replicates = 2
drain_s = 30.0
[trace]
source = "generated:azure-2023-conv"
limit = {limit}
[model]
name = "llama-2-13b"
[[fleet.pools]]
name = "a"
gpu = "A100-40G"
count = 2
[[fleet.pools]]
name = "b"
gpu = "A100-80G"
count = 1
weight = 2
[slo]
ttft_p99_s = 5.0
oom_rate = 0.01
[defaults.door]
decision_us = 50.0
[defaults.engine]
kv = "contiguous"
admission = "optimistic"
kernel_plan = "three_stage"
max_num_batched_tokens = 2048
preemption = "none"
[[arms]]
name = "legacy"
door.kind = "legacy"
policy.name = "static_weights"
[[arms]]
name = "direct"
"""


def small(folder: Path, limit: int = 150, more: str = "") -> Path:
    """Write the scenario to a file in *folder* and return it."""
    path = folder / "small.toml"
    path.write_text(TEXT.format(limit=limit) + more)
    return path
