"""Seeded traces: arrivals, lengths, conversations and shared prefixes from a few parameters."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dispatch import keyed
from traces.conversations import Conversations
from traces.synthetic import CHUNK, ArrivalModel, LengthModel, TraceModel, model
from traces.trace import Quirk, Trace


def generate(name: str | Path, params: Mapping[str, Any] | None = None, seed: int = 0) -> Trace:
    """Return the trace that the model *name* (bundled, or a TOML file) makes under *seed*.

    *params* are laid over the model's own, nested as it is: ``{"arrivals": {"rate_per_s": 2}}``.
    The same name, parameters and seed give the same trace everywhere.
    """
    return replace(of_model(model(name, params), seed), name=str(name))


def of_model(chosen: TraceModel, seed: int) -> Trace:
    """Return the trace that *chosen* makes under *seed*."""
    parts = list(chunks(chosen, seed))
    trace = parts[0].joined(parts[1:]) if len(parts) > 1 else parts[0]
    return replace(trace, name="generated", format="generated")


def chunks(chosen: TraceModel, seed: int) -> Iterator[Trace]:
    """Yield the trace of a model in pieces of at most CHUNK requests, in bounded memory."""
    if chosen.sessions.turns_mean > 1 or chosen.prefixes.count or chosen.block_tokens:
        yield Conversations(chosen, seed).trace(_starts)
        return
    made = 0
    for number, arrival_s in enumerate(_starts(chosen, seed)):
        arrival_s = arrival_s[: chosen.requests - made]
        if chosen.duration_s is not None:
            arrival_s = arrival_s[arrival_s < chosen.duration_s]
        if len(arrival_s) or not made:
            prompt, output = lengths(chosen, arrival_s, seed, number)
            made += len(arrival_s)
            yield Trace(arrival_s, prompt, output, quirks=(quirk(chosen),), cannot_tell=_CANNOT)
        if made == chosen.requests or len(arrival_s) < CHUNK:
            return


_CANNOT: Final = ("anything about real traffic beyond the statistics that its model holds",)


def quirk(chosen: TraceModel) -> Quirk:
    """Say that a trace is generated, and from what."""
    text = f"generated: {chosen.about}" if chosen.about else "generated"
    return Quirk("generated", f"{text} ({chosen.source})" if chosen.source else text)


def _starts(chosen: TraceModel, seed: int) -> Iterator[NDArray[np.float64]]:
    """Yield arrival times without end, CHUNK at a time; the first request comes at 0."""
    arrivals = chosen.arrivals
    rate = RatePath(arrivals, seed)
    shape = 1.0 / arrivals.cv**2
    knots = np.array(arrivals.gap_values)
    if arrivals.process == "quantiles":  # the mean of what np.interp draws between the knots
        knots = knots / float(np.dot(np.diff(arrivals.gap_probs), (knots[1:] + knots[:-1]) / 2))
    total = 0.0
    for number in range(1 << 40):
        draw = keyed.generator(seed, f"gaps {number}")
        if arrivals.process == "gamma":
            gaps = draw.gamma(shape, 1.0 / shape, CHUNK)
        elif arrivals.process == "quantiles":
            gaps = np.interp(draw.random(CHUNK), arrivals.gap_probs, knots)
        else:
            gaps = draw.exponential(1.0, CHUNK)
        if number == 0:
            gaps[0] = 0.0
        counts = total + np.cumsum(gaps)
        total = float(counts[-1])
        yield rate.when(counts)


@dataclass(slots=True)
class RatePath:
    """The rate over time as steps, made as far as it is needed; maps expected counts to times."""

    arrivals: ArrivalModel
    seed: int
    _times: list[float] = field(default_factory=lambda: [0.0])
    _counts: list[float] = field(default_factory=lambda: [0.0])
    _steps: Iterator[tuple[float, float]] | None = None

    def when(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the times at which the expected number of arrivals reaches *counts*."""
        if self._steps is None:
            self._steps = self._make_steps()
        while self._counts[-1] <= counts[-1]:
            stay_s, rate = next(self._steps)
            self._times.append(self._times[-1] + stay_s)
            self._counts.append(self._counts[-1] + stay_s * rate)
        times: NDArray[np.float64] = np.interp(counts, self._counts, self._times)
        # What lies behind is not needed again: memory stays bounded over weeks.
        behind = max(0, int(np.searchsorted(self._counts, counts[-1])) - 1)
        del self._times[:behind], self._counts[:behind]
        return times

    def _make_steps(self) -> Iterator[tuple[float, float]]:
        a = self.arrivals
        if a.process == "mmpp":
            yield from self._mmpp_steps()
        elif a.profile:
            scale = a.rate_per_s * len(a.profile) / sum(a.profile)
            yield from self._profile_steps(scale)
        else:
            yield from self._diurnal_steps()

    def _profile_steps(self, scale: float) -> Iterator[tuple[float, float]]:
        a = self.arrivals
        at = 0.0
        while True:
            for share in a.profile:
                yield a.profile_step_s, share * scale * self._sine(at, a.profile_step_s)
                at += a.profile_step_s

    def _diurnal_steps(self) -> Iterator[tuple[float, float]]:
        step_s = self.arrivals.diurnal_period_s / 288  # five minutes of a day
        at = 0.0
        while True:
            yield step_s, self.arrivals.rate_per_s * self._sine(at, step_s)
            at += step_s

    def _mmpp_steps(self) -> Iterator[tuple[float, float]]:
        a = self.arrivals
        stays = np.array(a.sojourn_s)
        mean = float(np.dot(a.states, stays) / stays.sum())
        draw = keyed.generator(self.seed, "mmpp states")
        at, state = 0.0, int(draw.choice(len(stays), p=stays / stays.sum()))
        while True:
            stay_s = max(1e-9, float(draw.exponential(stays[state])))
            yield stay_s, a.rate_per_s * a.states[state] / mean * self._sine(at, stay_s)
            at += stay_s
            state = (state + 1) % len(stays)

    def _sine(self, at_s: float, step_s: float) -> float:
        """Return the daily factor in the middle of a step."""
        a = self.arrivals
        if not a.diurnal_amplitude:
            return 1.0
        phase = (at_s + step_s / 2 - a.diurnal_peak_s) / a.diurnal_period_s
        return 1.0 + a.diurnal_amplitude * math.cos(2 * math.pi * phase)


def lengths(
    chosen: TraceModel, arrival_s: NDArray[np.float64], seed: int, number: int
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return prompt and output lengths of requests that arrive at *arrival_s*."""
    draw = keyed.generator(seed, f"lengths {number}")
    normal = draw.standard_normal((len(arrival_s), 2)).T
    rho = chosen.correlation
    second = rho * normal[0] + math.sqrt(1 - rho * rho) * normal[1]
    return (
        _drawn(chosen.prompt, arrival_s, normal[0]),
        _drawn(chosen.output, arrival_s, second),
    )


def _drawn(
    chosen: LengthModel, arrival_s: NDArray[np.float64], normal: NDArray[np.float64]
) -> NDArray[np.int32]:
    if chosen.kind == "constant":
        tokens = np.full(len(normal), chosen.median)
    elif chosen.kind == "lognormal":
        tokens = chosen.median * np.exp(chosen.sigma * normal)
    else:
        tokens = np.empty(len(normal))
        u = normal_cdf(normal)
        window = np.minimum(arrival_s // chosen.window_s, len(chosen.values) - 1).astype(np.int64)
        for row, knots in enumerate(chosen.values):
            inside = window == row
            tokens[inside] = np.interp(u[inside], chosen.probs, knots)
    whole: NDArray[np.int32] = np.clip(np.rint(tokens), 1, chosen.longest).astype(np.int32)
    return whole


def normal_cdf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the standard normal distribution function, to 1e-7 (Abramowitz and Stegun 26.2.17)."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(x))
    poly = t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    upper = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) * poly
    cdf: NDArray[np.float64] = np.where(x >= 0, 1.0 - upper, upper)
    return cdf
