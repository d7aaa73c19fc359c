"""The unit of placement: what is known of a replica from the start."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from dispatch.errors import Problem
from dispatch.request import Request

Size = tuple[float, int, int, float]
"""KV bytes a token, share of max_tokens that is reserved, spare tokens, workspace bytes."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One replica: one or more GPUs that hold one copy of a model; the unit of placement.

    Bytes are those of the whole replica; of unlike GPUs a replica can use ``gpus`` times the least.
    ``reserve_output`` says that KV is contiguous and reserves prompt + max_tokens; paged KV needs
    prompt + one block. ``workspace_bytes`` is the peak workspace that each request in flight adds
    (0 where the engine allocates it once). An empty ``model`` serves any. Weight 0: no traffic.
    A ``prefill`` replica is charged no output, and is done with a request at its first token.
    """

    name: str
    pool: str
    gpu: str
    gpus: int = 1
    model: str = ""
    weight: float = 1.0
    group: str = "default"
    total_bytes: float = 0.0
    kv_bytes_per_token: float = 0.0
    workspace_bytes: float = 0.0
    reserve_output: bool = False
    block_tokens: int = 16
    capacity_tokens: float = 0.0
    speed_tokens_per_s: float = 1.0
    role: Literal["both", "prefill", "decode"] = "both"

    @property
    def capacity_bytes(self) -> float:
        """The most that the KV memory of this replica can ever hold; infinite where not given."""
        held = self.capacity_tokens * self.kv_bytes_per_token or self.total_bytes
        return held or math.inf

    @property
    def size(self) -> Size:
        """What a request needs here, as factors."""
        if self.role == "prefill":
            return self.kv_bytes_per_token, 0, 0, self.workspace_bytes
        share, spare = (1, 0) if self.reserve_output else (0, self.block_tokens)
        return self.kv_bytes_per_token, share, spare, self.workspace_bytes

    def need_bytes(self, request: Request) -> float:
        """Return what *request* needs here before its first token."""
        per_token, output_share, spare_tokens, workspace = self.size
        later = request.max_tokens * output_share + spare_tokens
        return (request.prompt_tokens + later) * per_token + workspace

    def problems(self) -> list[Problem]:
        """Return what is wrong with this device, nothing when all is well."""
        found = []
        for name in _NUMBERS:
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                found.append(Problem(f"device {self.name}", f"{name} is {value}", "give it >= 0"))
        if self.gpus < 1:
            found.append(Problem(f"device {self.name}", "no GPU", "give gpus >= 1"))
        return found


_NUMBERS = tuple(f.name for f in fields(DeviceInfo) if f.type in (int, float))
