"""What a live run needs to know: its model, its devices, its engine and its door."""

from typing import Literal

from pydantic import Field

from dispatch.config import PolicyConfig, Section, WaitConfig


class LiveModel(Section):
    """The model that every device serves."""

    name: str = "tiny"
    """A preset of :mod:`live.shapes`, or the folder of a Llama checkpoint (safetensors)."""
    seed: int = 0
    """Seed of random weights, where there is no checkpoint."""
    served_as: str = ""
    """Name in the API; empty takes the preset's or the folder's."""


class LiveDevice(Section):
    """One logical device: a GPU, a slice of one, or a slice of this CPU."""

    name: str
    kind: Literal["cpu", "cuda"] = "cpu"
    index: int = Field(default=0, ge=0)
    """CUDA ordinal."""
    kv_mib: float = Field(default=32.0, gt=0)
    """Size of the one allocation that holds the KV cache."""
    weight: float = Field(default=1.0, ge=0)
    group: str = "default"
    gpu: str = ""
    """Catalogue name; the legacy keys that are bound to a GPU model go by it."""
    ring: str = ""
    """Devices of one name share links: their small all-reduce is timed every ``ring_probe_s``."""


class LiveEngine(Section):
    """Limits of the engine; names and meanings are those of the simulator's engine section."""

    kv: Literal["contiguous", "paged"] = "paged"
    block_tokens: int = Field(default=16, ge=1)
    admission: Literal["optimistic", "guarded"] = "guarded"
    max_num_seqs: int = Field(default=32, ge=1)
    max_num_batched_tokens: int = Field(default=512, ge=1)
    chunked_prefill: bool = True
    preemption: Literal["none", "recompute"] = "recompute"
    max_waiting: int = Field(default=1024, ge=0)
    kernels: Literal["auto", "torch", "triton"] = "auto"
    """What runs the blocks; auto: the Triton kernels on a GPU of capability 8.0 or later."""


class DoorLimits(Section):
    """Limits of the HTTP door; every queue is bounded."""

    max_body_bytes: int = Field(default=4 << 20, ge=1)
    max_header_bytes: int = Field(default=64 << 10, ge=1024)
    max_requests: int = Field(default=4096, ge=1)
    """Requests inside the door; more are answered 503 with Retry-After."""
    stream_buffer: int = Field(default=1024, ge=1)
    """Tokens a slow reader may fall behind; one more cancels its request."""
    send_buffer_bytes: int = Field(default=128 << 10, ge=4096)
    """What the system may hold of one connection's answer beyond that."""
    retry_after_s: int = Field(default=1, ge=1)
    default_max_tokens: int = Field(default=16, ge=1)
    drain_s: float = Field(default=10.0, ge=0)
    """SIGTERM waits this long for what is in flight."""


class LiveConfig(Section):
    """One live set-up."""

    model: LiveModel = LiveModel()
    devices: tuple[LiveDevice, ...] = (LiveDevice(name="cpu0"),)
    engine: LiveEngine = LiveEngine()
    policy: PolicyConfig = PolicyConfig()
    wait: WaitConfig = WaitConfig()
    limits: DoorLimits = DoorLimits()
    sample_interval_ms: float = Field(default=50.0, gt=0)
    ring_probe_s: float = Field(default=1.0, gt=0)
    """Time between two measurements of each ring's latency."""
    seed: int = 0
    settings: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Overrides of the 47 keys of the legacy configuration (legacy door only)."""
