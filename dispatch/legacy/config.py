"""The 47 keys of the legacy router: 19 bound to a hardware model, 7 fed by probes, 21 others."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from dispatch.config import Section
from dispatch.errors import InputError, Problem, nearest

Convert = Literal["fp16", "next", "reject"]
Plan = Literal["", "three_stage", "three_stage_graph"]
RetryClass = Literal["fault", "timeout", "oom"]


class HardwareKeys(Section):
    """Keys that name a GPU model; each loses its meaning when that model leaves the fleet."""

    v100_group: str = "v100"
    """Group that holds the V100s."""
    a100_40g_group: str = "a100-40g"
    """Group that holds the A100-40G cards."""
    a100_80g_group: str = "a100-80g"
    """Group that holds the A100-80G cards."""
    v100_weight_factor: float = Field(default=1.0, ge=0)
    """Static weight of a V100 is multiplied by this; 0 sends it nothing."""
    a100_40g_weight_factor: float = Field(default=1.0, ge=0)
    """Static weight of an A100-40G is multiplied by this; 0 sends it nothing."""
    a100_80g_weight_factor: float = Field(default=1.0, ge=0)
    """Static weight of an A100-80G is multiplied by this; 0 sends it nothing."""
    v100_max_conns: int = Field(default=0, ge=0)
    """Requests in flight on one V100; 0 is no limit."""
    a100_40g_max_conns: int = Field(default=0, ge=0)
    """Requests in flight on one A100-40G; 0 is no limit."""
    a100_80g_max_conns: int = Field(default=0, ge=0)
    """Requests in flight on one A100-80G; 0 is no limit."""
    v100_max_prompt_tokens: int = Field(default=2048, ge=0)
    """Longer prompts sent to the V100 group climb to the A100-40G group; 0 is no limit."""
    a100_40g_max_prompt_tokens: int = Field(default=0, ge=0)
    """Longer prompts sent to the A100-40G group climb to the A100-80G group; 0 is no limit."""
    a100_80g_max_prompt_tokens: int = Field(default=0, ge=0)
    """Longer prompts sent to the A100-80G group are rejected; 0 is no limit."""
    v100_bf16_as: Convert = "fp16"
    """What a BF16 preference becomes on a V100, which has no BF16."""
    a100_fp8_as: Literal["bf16", "fp16", "reject"] = "bf16"
    """What an FP8 preference becomes on an A100, which has no FP8."""
    v100_int4_as: Convert = "next"
    """What an INT4 preference becomes on a V100."""
    v100_timeout_factor: float = Field(default=2.0, gt=0)
    """Time-out of a request sent to the V100 group, as a multiple."""
    a100_40g_timeout_factor: float = Field(default=1.0, gt=0)
    """Time-out of a request sent to the A100-40G group, as a multiple."""
    v100_stage_plan: Plan = "three_stage"
    """Kernel pipeline that the V100 group implies."""
    a100_stage_plan: Plan = "three_stage"
    """Kernel pipeline that both A100 groups imply."""


class ProbeKeys(Section):
    """Last configured values of readings whose probes no longer exist."""

    probe_free_memory_gb: float = Field(default=24.0, ge=0)
    """Free memory of an A100-40G; requests estimated larger climb to the A100-80G group."""
    probe_queue_depth: int = Field(default=0, ge=0)
    """Requests waiting upstream; at ``shed_queue_depth`` or more the router sheds."""
    probe_retry_budget: int = Field(default=3, ge=0)
    """Retries that the fleet has room for; caps ``retries``."""
    probe_latency_ms: float = Field(default=0.0, ge=0)
    """Network latency to the workers; added to every time-out."""
    probe_nvlink_up: bool = True
    """Whether NVLink is up; while it is not, the model table is skipped."""
    probe_drained_group: str = ""
    """Group under maintenance; treated as missing."""
    probe_headroom_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share of the connection limits that is usable."""


class OtherKeys(Section):
    """The rules themselves: groups by header, time-outs, retries, failure accounting."""

    model_groups: str = ""
    """Table of ``x-model-hint``: ``pattern=group`` parts with commas; first wins."""
    model_aliases: str = ""
    """``hint=model`` parts with commas, applied before the table."""
    fp16_group: str = ""
    """Group of ``x-precision-preference: fp16``; empty is no rule."""
    bf16_group: str = "a100-80g"
    """Group of ``x-precision-preference: bf16``; empty is no rule."""
    fp8_group: str = "a100-80g"
    """Group of ``x-precision-preference: fp8``; empty is no rule."""
    int4_group: str = "a100-80g"
    """Group of ``x-precision-preference: int4``; empty is no rule."""
    default_group: str = ""
    """Group of a request that no rule claims; empty is every device."""
    default_precision: str = ""
    """Precision of a request without the header; empty is the engine's own."""
    long_prompt_tokens: int = Field(default=0, ge=0)
    """Prompts of at least this many tokens go to ``long_prompt_group``; 0 is no rule."""
    long_prompt_group: str = "a100-80g"
    """Group of long prompts."""
    missing_group: Literal["any", "reject"] = "any"
    """What becomes of a request whose group no device is in."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Time-out of one attempt."""
    timeout_per_token_ms: float = Field(default=0.0, ge=0)
    """Added to the time-out for each token of ``max_tokens``."""
    retries: int = Field(default=0, ge=0)
    """Further attempts after a failure of a class in ``retry_on``."""
    retry_on: str = "fault,timeout"
    """Failure classes that may be retried: fault, timeout, oom."""
    retry_non_idempotent: bool = False
    """Whether a request whose body was sent upstream may be retried (generations are POSTs)."""
    max_fails: int = Field(default=1, ge=0)
    """Failures within ``fail_timeout_s`` that take a device out; 0 never does."""
    fail_timeout_s: float = Field(default=10.0, gt=0)
    """Window of the failure count, and the time a device stays out."""
    worker_processes: int = Field(default=1, ge=1)
    """Router processes; each keeps its own round-robin state (no shared zone)."""
    kv_mb_per_token: float = Field(default=0.8, ge=0)
    """Memory the router books for one token, in MB, against ``probe_free_memory_gb``."""
    shed_queue_depth: int = Field(default=0, ge=0)
    """Waiting requests at which the router answers 503; 0 never sheds."""


class LegacyConfig(HardwareKeys, ProbeKeys, OtherKeys):
    """The whole configuration of the legacy router."""

    @classmethod
    def from_settings(
        cls, settings: Mapping[str, Any], place: str = "legacy settings"
    ) -> "LegacyConfig":
        """Build a configuration from overrides of the defaults, or raise every problem at once."""
        try:
            return cls.model_validate(dict(settings))
        except ValidationError as error:
            raise InputError(
                Problem(f"{place}.{name}", found, way_out)
                for name, found, way_out in _readable(error)
            ) from None


def _readable(error: ValidationError) -> list[tuple[str, str, str]]:
    rows = []
    for item in error.errors():
        name = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            rows.append((name, "unknown key", nearest(name, KEYS)))
        else:
            rows.append((name, f"{item['input']!r} is not allowed", item["msg"]))
    return rows


HARDWARE_KEYS: Final = tuple(HardwareKeys.model_fields)
PROBE_KEYS: Final = tuple(ProbeKeys.model_fields)
OTHER_KEYS: Final = tuple(OtherKeys.model_fields)
KEYS: Final = HARDWARE_KEYS + PROBE_KEYS + OTHER_KEYS
