"""The parameters of a generated trace: arrivals, lengths, sessions and shared prefixes."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError, model_validator

from dispatch.config import Section
from dispatch.errors import InputError, Problem, UnknownNameError, nearest
from traces.trace import MOST_REQUESTS

CHUNK: Final = 1 << 16  # requests drawn at a time; part of what a seed means
MOST_STEPS: Final = 5_000_000  # of the rate in a chunk: a few seconds and 300 MB
FOLDER: Final = Path(__file__).parent / "models"


def _quantiles(
    name: str, probs: tuple[float, ...], values: tuple[float, ...], least: float
) -> None:
    """Refuse what is no row of quantiles."""
    if len(probs) < 2 or probs[0] != 0 or probs[-1] != 1:
        raise ValueError(f"{name}probs must run from 0 to 1")
    if list(probs) != sorted(set(probs)):
        raise ValueError(f"{name}probs must rise")
    if len(values) != len(probs) or list(values) != sorted(values) or values[0] < least:
        raise ValueError(f"{name}values must rise from {least:g} or more, one a prob")


class ArrivalModel(Section):
    """When requests come: a point process in operational time, under a rate that varies.

    Gaps of mean 1 are drawn (exponential, or gamma for *cv* other than 1) and mapped through the
    inverse of the cumulative rate, so that *cv* is the burstiness that the rate does not explain.
    """

    process: Literal["poisson", "gamma", "quantiles", "mmpp"] = "poisson"
    rate_per_s: float = Field(default=1.0, ge=1e-9, le=1e9)
    """Mean rate; the profile and the states of an MMPP are relative to it."""
    cv: float = Field(default=1.0, gt=0, le=50)
    """Coefficient of variation of the gaps; gamma only."""
    gap_probs: tuple[float, ...] = ()
    gap_values: tuple[float, ...] = ()
    """Quantiles of the gaps at *gap_probs*, process quantiles only; scaled to a mean of 1."""
    profile: tuple[float, ...] = ()
    """Relative rate, step by step; repeats after its last step."""
    profile_step_s: float = Field(default=300.0, gt=0)
    diurnal_amplitude: float = Field(default=0.0, ge=0, lt=1)
    """Half the peak-to-trough swing of a daily sine, as a share of the mean."""
    diurnal_period_s: float = Field(default=86400.0, gt=0)
    diurnal_peak_s: float = Field(default=50400.0, ge=0)
    states: tuple[float, ...] = (0.5, 3.0)
    """Relative rate of each state of an MMPP; the chain goes round."""
    sojourn_s: tuple[float, ...] = (40.0, 10.0)
    """Mean stay in each state."""

    @model_validator(mode="after")
    def _fits(self) -> "ArrivalModel":
        if any(not 0 <= rate < 1e6 for rate in (*self.profile, *self.states)):
            raise ValueError("relative rates must lie between 0 and a million")
        if self.profile and not sum(self.profile) > 0:
            raise ValueError("profile is zero everywhere")
        if len(self.states) != len(self.sojourn_s) or not self.states:
            raise ValueError("states and sojourn_s must have the same length, at least 1")
        if not sum(self.states) > 0 or any(not stay > 0 for stay in self.sojourn_s):
            raise ValueError("some state must have a rate, and every stay must be positive")
        if self.process != "gamma" and self.cv != 1.0:
            raise ValueError(f"cv is for process gamma, not {self.process}")
        if self.process == "quantiles":
            _quantiles("gap_", self.gap_probs, self.gap_values, least=0.0)
            if not self.gap_values[-1] > 0:
                raise ValueError("gap_values are all zero")
        return self


class LengthModel(Section):
    """How long prompts or outputs are: quantiles, a log-normal, or a constant."""

    kind: Literal["quantiles", "lognormal", "constant"] = "lognormal"
    probs: tuple[float, ...] = ()
    values: tuple[tuple[float, ...], ...] = ()
    """Quantiles at *probs*, one row a window of time; the last row holds for all later time."""
    window_s: float = Field(default=600.0, gt=0)
    median: float = Field(default=512.0, ge=1)
    """Of a log-normal; the value of a constant."""
    sigma: float = Field(default=1.0, ge=0, le=5)
    """Standard deviation of the logarithm."""
    longest: int = Field(default=131072, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> "LengthModel":
        if self.kind != "quantiles":
            return self
        if not self.values:
            raise ValueError("values holds no row")
        for row in self.values:
            _quantiles("", self.probs, row, least=1.0)
        return self


class SessionModel(Section):
    """Conversations: each later turn carries the prompt and answer of the one before it."""

    turns_mean: float = Field(default=1.0, ge=1)
    """Mean turns a conversation, geometric; 1 means no conversations."""
    think_s: float = Field(default=30.0, gt=0)
    """Mean time from a turn's arrival to the next, exponential; the answer's time comes on top."""
    answer_s_per_token: float = Field(default=0.0, ge=0)
    """What an answer is taken to need, so that no turn comes before the answer it replies to."""


class PrefixModel(Section):
    """Prompts that begin alike: system prompts shared by all requests that draw them."""

    count: int = Field(default=0, ge=0)
    """Distinct system prompts; 0 means none."""
    tokens: int = Field(default=1024, ge=1)
    zipf: float = Field(default=1.0, ge=0)
    """Popularity: the k-th prompt is drawn in proportion to 1 / k to this power."""
    share: float = Field(default=1.0, ge=0, le=1)
    """Share of conversations that begin with one."""


class TraceModel(Section):
    """A whole generated trace; *requests* counts turns, not conversations."""

    requests: int = Field(default=10_000, ge=1, le=MOST_REQUESTS)
    duration_s: float | None = Field(default=None, gt=0)
    """Stop here, even where *requests* is not reached."""
    arrivals: ArrivalModel = ArrivalModel()
    prompt: LengthModel = LengthModel()
    output: LengthModel = LengthModel(median=128.0)
    correlation: float = Field(default=0.0, gt=-1, lt=1)
    """Of prompt and output length, through a Gaussian copula."""
    sessions: SessionModel = SessionModel()
    prefixes: PrefixModel = PrefixModel()
    block_tokens: int = Field(default=0, ge=0)
    """Emit prefix blocks of this size; 0 means none."""
    about: str = ""
    source: str = ""

    @model_validator(mode="after")
    def _ends(self) -> "TraceModel":
        """Refuse a rate whose steps are so short beside it that making them would take hours."""
        a = self.arrivals
        step_s = a.diurnal_period_s / 288
        if a.process == "mmpp":
            step_s = sum(a.sojourn_s) / len(a.sojourn_s)
        elif a.profile:
            step_s = a.profile_step_s
        steps = CHUNK / a.rate_per_s / step_s
        if steps > MOST_STEPS:
            raise ValueError(
                f"{CHUNK:,} arrivals at {a.rate_per_s:g}/s take {steps:.1g} steps of {step_s:g} s, "
                f"more than {MOST_STEPS:,}; raise the rate or the step"
            )
        return self


def names() -> list[str]:
    """Return the names of the bundled models."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def model(name: str | Path, params: Mapping[str, Any] | None = None) -> TraceModel:
    """Return a bundled model, or the one in a TOML file, with *params* laid over it."""
    path = Path(name)
    if path.suffix != ".toml":
        path = FOLDER / f"{name}.toml"
        if str(name) not in names():
            raise UnknownNameError("generated trace", "model", str(name), names())
    try:
        base = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError.at(str(path), f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError.at(str(path), f"is no TOML: {error}") from None
    return checked(str(name), _laid_over(base, params or {}))


def checked(place: str, document: Mapping[str, Any]) -> TraceModel:
    """Return *document* as a model; every wrong key is one problem."""
    try:
        return TraceModel.model_validate(document)
    except ValidationError as error:
        raise InputError([_problem(place, item) for item in error.errors()]) from None


def _laid_over(base: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in params.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _laid_over(old, value) if both and isinstance(old, Mapping) else value
    return merged


def _problem(place: str, item: Any) -> Problem:
    key = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        section: Any = TraceModel
        for part in item["loc"][:-1]:
            section = section.model_fields[part].annotation
        return Problem(
            f"{place}: {key}", "unknown key", nearest(item["loc"][-1], section.model_fields)
        )
    found = "" if isinstance(item["input"], dict | list | tuple) else f", not {item['input']!r}"
    return Problem(f"{place}: {key}" if key else place, f"{item['msg']}{found}")


def settings_of(settings: Iterable[str]) -> dict[str, Any]:
    """Return ``a.b=value`` settings as a nested object; values are TOML, else text."""
    document: dict[str, Any] = {}
    for text in settings:
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise InputError.at(f"--set {text}", "is no key=value", "write --set requests=1000")
        node = document
        *path, last = key.strip().split(".")
        for part in path:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise InputError.at(f"--set {text}", f"{part} is set to a value already")
        try:
            node[last] = tomllib.loads(f"x = {value}")["x"]
        except tomllib.TOMLDecodeError:
            node[last] = value
    return document
