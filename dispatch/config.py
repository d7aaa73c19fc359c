"""Sections that the core itself understands; a scenario is composed of such sections."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Section(BaseModel):
    """A frozen part of a scenario; unknown keys are refused, units stand in key names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class PolicyConfig(Section):
    """A placement policy by its registered name, with its typed parameters."""

    name: str = "topology"
    params: dict[str, Any] = Field(default_factory=dict)


class WaitConfig(Section):
    """Waiting and holding limits; equal in all arms of a comparison."""

    deadline_s: float = Field(default=30.0, gt=0)
    """A request without success this long after its planned arrival has timed out."""
    hold_limit: int = Field(default=4096, ge=0)
    """Requests the dispatcher holds while nothing fits; 0 rejects at once."""
    retries: int = Field(default=0, ge=0)
    """Further attempts after an OOM, a fault or a refused hand-off."""
    retry_backoff_s: float = Field(default=0.05, ge=0)
    retry_on: tuple[Literal["oom", "fault", "timeout"], ...] = ("fault",)
