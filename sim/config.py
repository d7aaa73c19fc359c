"""What one simulated run needs to know, section by section; scenarios compose these."""

from typing import Literal

from pydantic import Field

from dispatch.config import PolicyConfig, Section, WaitConfig

SignalName = Literal["memory", "ring", "pcie", "queue", "kv", "health"]


class ModelConfig(Section):
    """The served model, by its catalogue name, and the precision it is served in."""

    name: str = "llama-2-13b"
    precision: Literal["fp16", "bf16", "fp8", "int4"] = "fp16"
    kv_precision: Literal["fp16", "bf16", "fp8"] | None = None
    """Precision of the KV cache; None takes 16 bits, or FP8 where the weights are FP8."""
    context_tokens: int | None = Field(default=None, gt=0)
    """Context limit; None takes the catalogue's."""


class PoolConfig(Section):
    """Replicas of one kind: ``count`` replicas of ``tp`` GPUs each."""

    name: str
    gpu: str
    count: int = Field(ge=0)
    tp: int = Field(default=1, ge=1)
    gpus_per_node: int = Field(default=8, ge=1)
    weight: float = Field(default=1, ge=0)
    """Static weight of each replica in the legacy configuration; 0 means no traffic."""
    group: str = "default"
    """Group of the legacy header rules."""
    model: ModelConfig | None = None
    role: Literal["both", "prefill", "decode"] = "both"
    price_usd_per_gpu_h: float | None = Field(default=None, ge=0)
    """Price; None takes the catalogue's."""


class FleetConfig(Section):
    """The replicas behind the door."""

    pools: tuple[PoolConfig, ...] = Field(min_length=1)
    story: bool = False
    """True where the mix is taken from the account under test; the report says so."""


class EngineConfig(Section):
    """The serving engine of every replica of an arm."""

    kv: Literal["contiguous", "paged"] = "paged"
    block_tokens: int = Field(default=16, ge=1)
    admission: Literal["optimistic", "guarded"] = "guarded"
    """optimistic: a request that does not fit is a CUDA OOM; guarded: it waits until it fits."""
    kernel_plan: Literal["three_stage", "three_stage_graph", "split5", "fused", "strong"] = "fused"
    memory_utilization_ratio: float = Field(default=0.9, gt=0, le=1)
    max_num_seqs: int = Field(default=256, ge=1)
    max_num_batched_tokens: int = Field(default=8192, ge=1)
    chunked_prefill: bool = True
    scheduling: Literal["fcfs", "priority"] = "fcfs"
    preemption: Literal["none", "recompute"] = "recompute"
    oom_kills: Literal["request", "process"] = "request"
    restart_s: float = Field(default=30.0, ge=0)
    prefix_cache: Literal["off", "lru", "lfu", "length"] = "off"
    prefix_cache_blocks: int | None = Field(default=None, ge=0)
    """Capacity in blocks of the trace, in a store beside the KV pool; None: what is free there."""
    prefix_sharing: bool = True
    """Requests that run with a common prefix hold its full blocks once, in one pool with the cache,
    as vLLM does; false: each holds a copy. Of no effect with ``prefix_cache_blocks``."""
    allocator: Literal["arena", "caching"] = "arena"
    """caching: workspace goes through a model of PyTorch's caching allocator."""
    max_waiting: int = Field(default=4096, ge=0)
    host_overhead_us: float | None = Field(default=None, ge=0)
    """Per-iteration host time; None takes the calibration's."""


class DoorConfig(Section):
    """What stands between arrival and placement."""

    kind: Literal["legacy", "direct"] = "direct"
    workers: int = Field(default=16, ge=1)
    queue_limit: int = Field(default=4096, ge=0)
    handling_mean_ms: float = Field(default=8.4, gt=0)
    """Mean handling time of the legacy router (claims.md C4): an input of the story, no result."""
    handling_cv: float = Field(default=0.5, ge=0)
    """Coefficient of variation of a log-normal handling time; 0 is a constant."""
    handling: Literal["lognormal", "exponential"] = "lognormal"
    """exponential: ``handling_cv`` is 1 whatever it says."""
    timeout_s: float = Field(default=30.0, gt=0)
    retries: int = Field(default=0, ge=0)
    settings: dict[str, str | int | float | bool] = Field(default_factory=dict)
    """Overrides of the 47 keys of the legacy configuration."""
    decision_calibration: str = "bundled"
    """Direct door: the calibration file that gives decision times by policy and device count."""
    dispatchers: int = Field(default=1, ge=1)
    """Direct door: dispatchers that decide side by side on one graph; one decision takes one."""
    decision_us: float | None = Field(default=None, gt=0)
    """Direct door: a fixed decision time instead of the calibration's."""


class SignalConfig(Section):
    """How one telemetry signal is sampled; None takes the section's value."""

    interval_ms: float | None = Field(default=None, gt=0)
    delay_ms: float | None = Field(default=None, ge=0)
    window_ms: float | None = Field(default=None, ge=0)
    loss_ratio: float | None = Field(default=None, ge=0, le=1)


class TelemetryConfig(Section):
    """Sampling of the topology graph; 50 ms is the story's figure (claims.md C8)."""

    interval_ms: float = Field(default=50.0, gt=0)
    delay_ms: float = Field(default=5.0, ge=0)
    window_ms: float = Field(default=50.0, ge=0)
    loss_ratio: float = Field(default=0.0, ge=0, le=1)
    signals: dict[SignalName, SignalConfig] = Field(default_factory=dict)
    reservations: bool = True
    """Add what was dispatched since a sample on top of it."""
    stale_after_s: float = Field(default=5.0, gt=0)
    on_stale: Literal["ignore", "last_known", "saturated"] = "last_known"


class FaultConfig(Section):
    """One fault, by schedule (``at_s``) or by rate (``rate_per_h``)."""

    kind: Literal[
        "gpu_lost",
        "link_degraded",
        "ecc_slow",
        "telemetry_outage",
        "router_crash",
        "memory_leak",
        "arrival_surge",
        "slow_client",
        "cancel",
    ]
    at_s: float | None = Field(default=None, ge=0)
    rate_per_h: float | None = Field(default=None, gt=0)
    duration_s: float = Field(default=60.0, gt=0)
    pool: str | None = None
    replica: int | None = Field(default=None, ge=0)
    """Index within the pool; None draws one by seed (a telemetry outage takes them all)."""
    factor: float = Field(default=2.0, gt=0)
    """Strength: times slower, times more arrivals, GB leaked a minute, or the mean seconds until a
    client leaves (cancel)."""
    ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of requests touched (slow_client, cancel), or of the further arrivals that come."""


class TransferConfig(Section):
    """Prefill/decode disaggregation: KV moves over links from prefill to decode replicas."""

    enabled: bool = False
    link: Literal["nvlink", "pcie", "nic"] = "nic"
    nic_gb_per_s: float = Field(default=50.0, gt=0)


class Setup(Section):
    """One arm, ready to run: everything that :func:`sim.replay` reads besides trace and seed."""

    model: ModelConfig = ModelConfig()
    fleet: FleetConfig
    door: DoorConfig = DoorConfig()
    policy: PolicyConfig = PolicyConfig()
    engine: EngineConfig = EngineConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    wait: WaitConfig = WaitConfig()
    faults: tuple[FaultConfig, ...] = ()
    transfer: TransferConfig = TransferConfig()
    max_tokens_default: int = Field(default=1024, ge=1)
    """max_tokens of a request whose trace has none: min(this, context - prompt)."""
    drain_s: float = Field(default=60.0, ge=0)
    """All arms run to this fixed time after the last arrival; what is left then is in flight."""
    device_window_s: float = Field(default=1.0, gt=0)
    """Window of the device series."""
