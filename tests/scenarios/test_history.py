"""The history of a scenario: cut, scaled and mixed once for all arms."""

from pathlib import Path

import numpy as np
import pytest

from dispatch.errors import InputError
from scenarios import history, share
from scenarios.load import load
from tests.scenarios.small import small
from traces.trace import Trace


def trace(folder: Path, *overrides: str) -> Trace:
    return history.load(load(small(folder), overrides))


def test_twice_the_load_is_twice_the_requests_in_the_same_time(tmp_path: Path) -> None:
    one, two = trace(tmp_path), trace(tmp_path, "trace.scale=2")
    assert len(two) == 2 * len(one)
    assert two.arrival_s[-1] == pytest.approx(one.arrival_s[-1], rel=0.05)


def test_lengths_scale_and_never_fall_below_one_token(tmp_path: Path) -> None:
    one, some = trace(tmp_path), trace(tmp_path, "trace.prompt_scale=2", "trace.output_scale=1e-9")
    assert np.array_equal(some.prompt_tokens, 2 * one.prompt_tokens)
    assert set(some.output_tokens.tolist()) == {1}


def test_a_mix_fills_what_the_trace_lacks_by_its_shares(tmp_path: Path) -> None:
    made = trace(tmp_path, "trace.limit=2000", 'traffic.precision={fp16=1.0, bf16=2.0, ""=1.0}')
    assert made.precision is not None
    shares = [
        np.mean(made.precision == code) for code in (*map(made.names.index, ("fp16", "bf16")), -1)
    ]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.04)


def test_a_mix_is_keyed_by_request_and_not_by_what_else_is_asked(tmp_path: Path) -> None:
    mix = "traffic.precision={fp16=1.0, bf16=1.0}"
    one, more = trace(tmp_path, mix), trace(tmp_path, mix, "trace.limit=300")
    assert one.precision is not None
    assert more.precision is not None
    assert np.array_equal(one.precision, more.precision[: len(one)])


def test_the_first_replicate_is_the_trace_itself(tmp_path: Path) -> None:
    scenario = load(small(tmp_path))
    base = history.load(scenario)
    assert history.replicate(base, scenario, 0) is base
    assert len(history.replicate(base, scenario, 1)) > 0


def test_a_part_without_requests_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        trace(tmp_path, "trace.start_s=1e6")


def test_a_shared_trace_comes_back_column_by_column(tmp_path: Path) -> None:
    made = trace(tmp_path, "traffic.precision={fp16=1.0}")
    share.save(made, tmp_path / "t")
    back = share.load(tmp_path / "t")
    assert share.content_hash(back) == share.content_hash(made)
    assert back.names == made.names
