"""The history that a scenario replays: read or generated, cut, scaled and mixed, once for all."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

import traces
from dispatch import keyed
from dispatch.errors import InputError
from scenarios.schema import Scenario
from sim import recorded
from traces import resample, router_log, synth
from traces.trace import SmallColumn, Trace

GENERATED = "generated:"
_MOST_BLOCKS: Final = 1_000_000


def load(scenario: Scenario) -> Trace:
    """Return the trace of *scenario* as its first replicate replays it."""
    config = scenario.trace
    if config.source.startswith(GENERATED):
        name = config.source.removeprefix(GENERATED)
        trace = synth.generate(name, dict(config.synth), scenario.seed)
    else:
        trace = traces.read(config.source, format=config.format)
    if config.start_s or config.duration_s is not None or config.limit is not None:
        trace = traces.slice(
            trace, start_s=config.start_s, duration_s=config.duration_s, limit=config.limit
        )
    if config.scale != 1.0:
        trace = traces.scale(trace, config.scale, scenario.seed)
    trace = _lengths(trace, config.prompt_scale, config.output_scale)
    if not len(trace):
        raise InputError.at(
            config.source,
            "holds no request in the part asked for",
            "widen trace.start_s, trace.duration_s or trace.limit",
        )
    _blocks(trace, scenario)
    if trace.source_row is None and any(a.policy.name == recorded.NAME for a in scenario.arms):
        trace = replace(trace, source_row=router_log.source_rows(trace))
    return mix(trace, scenario)


def _lengths(trace: Trace, prompt_scale: float, output_scale: float) -> Trace:
    """Scale token counts; prefix blocks name fixed content, so longer prompts lose them."""
    if prompt_scale == 1.0 and output_scale == 1.0:
        return trace
    prompt, output = (
        np.maximum(np.rint(column * scale), 1).astype(np.int32)
        for column, scale in (
            (trace.prompt_tokens, prompt_scale),
            (trace.output_tokens, output_scale),
        )
    )
    trace = replace(trace, prompt_tokens=prompt, output_tokens=output)
    if prompt_scale != 1.0 and trace.block_hashes is not None:
        trace = replace(trace, block_hashes=None, block_offsets=None, block_tokens=0)
    return trace


def _blocks(trace: Trace, scenario: Scenario) -> None:
    """Refuse blocks so short that a replicate would be drawn from more of them than memory has."""
    config = scenario.trace
    if scenario.replicates < 2 or config.resample == "none":
        return
    span_s = float(trace.arrival_s[-1])
    if span_s / config.block_s > _MOST_BLOCKS:
        raise InputError.at(
            "trace.block_s",
            f"{config.block_s:g} s cut the {span_s:g} s of the trace into "
            f"{span_s / config.block_s:.3g} blocks",
            f"expected at most {_MOST_BLOCKS:,}: at least {span_s / _MOST_BLOCKS:.3g} s each",
        )


def replicate(trace: Trace, scenario: Scenario, number: int) -> Trace:
    """Return replicate *number* of *trace*: itself for 0, else one resampled by blocks of time."""
    if number == 0 or scenario.trace.resample == "none":
        return trace
    drawn = resample.blocks(trace, scenario.trace.block_s, scenario.seed, number)
    if not len(drawn):
        raise InputError.at(
            scenario.trace.source,
            f"replicate {number} drew only blocks of {scenario.trace.block_s:g} s without requests",
            "take more of the trace, or set a smaller trace.block_s",
        )
    return drawn


def mix(trace: Trace, scenario: Scenario) -> Trace:
    """Fill the columns that *trace* lacks from the scenario's traffic mix, keyed per request."""
    traffic = scenario.traffic
    for column, shares in (
        ("precision", traffic.precision),
        ("kernel_hint", traffic.kernel_hint),
        ("model", traffic.model_hint),
    ):
        if shares and getattr(trace, column) is None:
            trace = _fill(trace, column, shares, scenario.seed)
    return trace


def _fill(trace: Trace, column: str, shares: Mapping[str, float], seed: int) -> Trace:
    """Draw *column* by *shares*; a share under the empty name leaves the request without."""
    names = list(trace.names)
    names += [name for name in shares if name and name not in names]
    codes = np.array([names.index(name) if name else -1 for name in shares], dtype=np.int32)
    borders = np.cumsum(np.array(list(shares.values()), dtype=np.float64))
    draws = keyed.uniforms(
        keyed.stream(seed, f"traffic {column}"), np.arange(len(trace), dtype=np.int64)
    )
    picks = np.searchsorted(borders / borders[-1], draws, side="right")
    values: SmallColumn = codes[np.minimum(picks, len(codes) - 1)]
    changes: dict[str, Any] = {column: values, "names": tuple(names)}
    return replace(trace, **changes)
