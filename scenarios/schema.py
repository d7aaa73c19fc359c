"""The scenario: one trace, one fleet, two or more arms, the SLOs and margins they are judged by."""

from typing import Any, Final, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from dispatch.config import PolicyConfig, Section, WaitConfig
from dispatch.errors import short
from sim.config import (
    DoorConfig,
    EngineConfig,
    FaultConfig,
    FleetConfig,
    ModelConfig,
    TelemetryConfig,
    TransferConfig,
)

NAMED: Final = "named_keys"
"""The type of an error that says itself at which keys it stands."""


class TraceConfig(Section):
    """Which history is replayed, and which part of it."""

    source: str = Field(default="generated:azure-2023-conv", min_length=1)
    """A path, the name of a public trace, or ``generated:NAME``."""
    format: str | None = None
    start_s: float = Field(default=0.0, ge=0)
    duration_s: float | None = Field(default=None, gt=0)
    limit: int | None = Field(default=None, ge=1)
    scale: float = Field(default=1.0, gt=0)
    """Rate by superposition (> 1) or thinning (< 1); time is never squeezed."""
    prompt_scale: float = Field(default=1.0, gt=0)
    """Factor on every prompt's length; the result is at least one token."""
    output_scale: float = Field(default=1.0, gt=0)
    """Factor on every output's length; the result is at least one token."""
    resample: Literal["blocks", "none"] = "blocks"
    """Replicates after the first are block-resampled traces, identical in all arms."""
    block_s: float = Field(default=60.0, gt=0)
    synth: dict[str, Any] = Field(default_factory=dict)
    """Parameters of a generated trace."""


class TrafficConfig(Section):
    """Mixes that fill columns a trace lacks, keyed per request; shares are normalised."""

    precision: dict[str, float] = Field(default_factory=dict)
    kernel_hint: dict[str, float] = Field(default_factory=dict)
    model_hint: dict[str, float] = Field(default_factory=dict)


class ArmConfig(Section):
    """One way of serving: door + policy + engine (+ telemetry, + another fleet)."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = ""
    door: DoorConfig = DoorConfig()
    policy: PolicyConfig = PolicyConfig()
    engine: EngineConfig = EngineConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    fleet: FleetConfig | None = None


class FactorConfig(Section):
    """One switch between the old world and the new, as parts of an arm laid over the defaults."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = ""
    old: dict[str, Any] = Field(default_factory=dict)
    new: dict[str, Any] = Field(default_factory=dict)
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Other readings of *new*, by name: the design is run once more with each."""


class SloConfig(Section):
    """Service-level objectives, judged over offered requests; None is not asked."""

    ttft_p99_s: float | None = Field(default=None, gt=0)
    tpot_p99_s: float | None = Field(default=None, gt=0)
    e2e_p99_s: float | None = Field(default=None, gt=0)
    oom_rate: float | None = Field(default=None, ge=0, le=1)
    error_rate: float | None = Field(default=None, ge=0, le=1)


class MarginConfig(Section):
    """Non-inferiority margins: how much worse still counts as no worse."""

    p99_ratio: float = Field(default=1.02, ge=1)
    oom_rate_points: float = Field(default=0.01, ge=0)
    """Percentage points of the OOM rate."""


class Scenario(Section):
    """A whole comparison. ``[defaults]`` of a file is merged under every arm before validation."""

    schema_version: Literal[1] = 1
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = ""
    reasoning: str = ""
    """Why load and fleet are what they are; printed in the report."""
    story_inputs: tuple[str, ...] = ()
    """Keys whose values are taken from the account under test."""
    seed: int = Field(default=20230701, ge=0, lt=2**63)
    replicates: int = Field(default=5, ge=1)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    trace: TraceConfig = TraceConfig()
    traffic: TrafficConfig = TrafficConfig()
    model: ModelConfig = ModelConfig()
    fleet: FleetConfig
    wait: WaitConfig = WaitConfig()
    transfer: TransferConfig = TransferConfig()
    faults: tuple[FaultConfig, ...] = ()
    max_tokens_default: int = Field(default=1024, ge=1)
    drain_s: float = Field(default=60.0, ge=0)
    warmup_s: float = Field(default=0.0, ge=0)
    """Left out at the start, in judging: of latencies and shares the requests that arrive in it; of
    rates and utilisation what happens in it."""
    utilisation_window_s: float = Field(default=1.0, gt=0)
    slo: SloConfig = SloConfig()
    margins: MarginConfig = MarginConfig()
    baseline: str = ""
    """Arm that the others are compared with; the first where empty."""
    candidate: str = ""
    """Arm that the verdict is about; the second where empty."""
    arms: tuple[ArmConfig, ...] = Field(min_length=1)
    factors: tuple[FactorConfig, ...] = ()
    """Switches of the factorial: all combinations are run by ``evidence --factorial``."""

    @model_validator(mode="after")
    def _names_are_unique_and_known(self) -> "Scenario":
        names = [arm.name for arm in self.arms]
        known = ", ".join(names)
        if len(set(names)) < len(names):
            again = [("arms", n, "name") for n, name in enumerate(names) if names.count(name) > 1]
            raise _at(f"arm names repeat: {known}", *again)
        for key in ("baseline", "candidate"):
            if (named := getattr(self, key)) and named not in names:
                raise _at(f"{short(repr(named))} is no arm; arms are {known}", (key,))
        if self.baseline and self.baseline == self.candidate:
            what = (
                f"baseline and candidate are both {self.baseline!r}, so nothing would be compared"
            )
            raise _at(f"{what}; arms are {known}", ("baseline",), ("candidate",))
        return self


def _at(what: str, *at: tuple[str | int, ...]) -> PydanticCustomError:
    """Return an error of keys that pydantic cannot name itself, as it is one of several keys."""
    return PydanticCustomError(NAMED, "{what}", {"what": what, "at": at})
