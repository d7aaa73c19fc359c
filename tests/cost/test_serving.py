"""A measured serving run in the simulator, and the two scheduler rules that it needs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.journal import Journal
from scenarios.measured import Measured, read_folder
from scenarios.serving import MEAN_BAR, P99_BAR, serve, setup_of, simulate, times, trace_of
from sim.clock import Clock
from sim.config import EngineConfig
from sim.engine import Engine
from sim.rates import Rates
from sim.recall import Recall, RecallKv
from sim.run import replay
from sim.sequence import Sequence


def run_of(prompts: list[int], outputs: list[int], gaps: list[float], **rules: bool) -> Measured:
    """Return a run in the format of a measured one; its measured times are of no account."""
    at = np.cumsum(gaps)
    table = pd.DataFrame({
        "input_toks": prompts, "output_toks": outputs, "arrival_time": at, "queued_ts": at + 7.0,
        "first_token_ts": at + 8.0, "last_token_ts": at + 9.0,
    })  # fmt: skip
    facts = {
        "model": "meta-llama/Llama-3.1-8B",
        "hardware": {"device_name": "NVIDIA GeForce RTX 4090"},
        "engine_kwargs": {"max_num_seqs": 256, "max_num_batched_tokens": 2048, "dtype": "bfloat16"},
        "kv_cache": {
            "gpu_memory_utilization": 0.9, "block_size": 16, "num_kv_tokens": 41408,
            "enable_prefix_caching": rules.get("recall", False),
        },
        "resolved_config": {
            "scheduler_config": {"scheduler_reserve_full_isl": rules.get("reserve", False)}
        },
    }  # fmt: skip
    return Measured("serving", "vllm", Path(__file__), table, facts)


def test_the_engine_alone_gives_what_the_whole_simulator_gives() -> None:
    count = 60
    rng = np.random.default_rng(5)
    item = run_of(
        rng.integers(200, 3000, count).tolist(), rng.integers(2, 500, count).tolist(),
        rng.exponential(0.1, count).tolist(),
    )  # fmt: skip
    trace, _ = trace_of(item.table)
    journal = Journal(arm="whole")
    replay(trace, setup_of(item), 0, journal)
    rows = journal.to_pandas("requests").sort_values("request")
    whole = times(
        rows.arrival_s.to_numpy(), rows.first_token_s.to_numpy(), rows.end_s.to_numpy(),
        rows.output_tokens.to_numpy(),
    )  # fmt: skip
    _, alone, _ = simulate(item)
    for name, values in alone.items():
        # the door's decision is priced at 1 ns, and an arrival may just miss an iteration's end
        assert np.median(np.abs(values / whole[name] - 1)) < 1e-6
        assert np.nanmean(values) == pytest.approx(np.nanmean(whole[name]), rel=1e-3)


def test_recalled_blocks_save_time_and_reserved_prompts_lose_no_request() -> None:
    count = 80
    item = run_of([900] * count, [600] * count, [0.02] * count)
    kept = run_of([900] * count, [600] * count, [0.02] * count, recall=True)
    careful = run_of([900] * count, [600] * count, [0.02] * count, recall=True, reserve=True)
    mean = [np.mean(simulate(one)[1]["latency"]) for one in (item, kept, careful)]
    assert np.isfinite(mean).all()
    assert mean[1] < mean[0]


class _Cost:
    def decode_line(self, batch: int) -> tuple[float, float]:
        return 0.01, 1e-6

    def mixed_s(self, new, past, decode_batch=0, decode_context=0.0) -> float:
        return 0.001 * len(new) + 1e-5 * sum(new)


class _Host:
    def __init__(self) -> None:
        self.ended = 0

    def started(self, sequence: Sequence) -> None: ...
    def first_token(self, sequence: Sequence) -> None: ...

    def finished(self, sequence: Sequence) -> None:
        self.ended += 1

    def out_of_memory(self, engine: Engine, sequence: Sequence) -> None:
        self.ended += 1


requests = st.lists(
    st.tuples(st.integers(1, 300), st.integers(1, 120), st.integers(0, 10**8)),
    min_size=1, max_size=25,
)  # fmt: skip


@given(requests, st.integers(30, 80), st.booleans(), st.booleans())
def test_all_blocks_come_back_and_none_is_used_twice(
    asked: list[tuple[int, int, int]], blocks: int, reserve: bool, recall: bool
) -> None:
    env, host = Clock(), _Host()
    kv = RecallKv(blocks * 16, 1.0, 16, reserve, recall)
    engine = Engine(env, host, 0, kv, Rates(_Cost()), EngineConfig())
    engine.prefix = Recall(kv)
    for row, (prompt, output, at) in enumerate(asked):
        sequence = Sequence(row, prompt, output, output, hashes=(row,))
        env.call_at(at, engine.submit, sequence)
    while env.peek() != float("inf"):
        env.step()
        assert 0 <= kv.free <= kv.blocks
    assert host.ended == len(asked)
    assert kv.free == kv.blocks


@pytest.mark.data
def test_a_measured_vllm_run_is_met_within_the_bars(data_file: Callable[[str], Path]) -> None:
    path = data_file("llmservingsim_RTX4090_Llama-3.1-8B_vllm_requests.jsonl")
    found, _ = read_folder(path.parent)
    item = next(one for one in found if one.path == path)
    run = serve(item)
    assert run.judged == "second"
    assert run.finished == run.requests == 300
    assert run.capacity_tokens == run.measured_capacity_tokens == 41_408
    for half in ("second", "all"):
        for mean, p99 in run.errors[half].values():
            assert abs(mean) <= MEAN_BAR
            assert abs(p99) <= P99_BAR
    # recomputed from the published per-request times, to their printed digit
    assert run.measured_ms["ttft"] == pytest.approx((65456.6, 137356.3), abs=0.06)
    assert run.measured_ms["latency"][0] == pytest.approx(86578.3, abs=0.06)
    assert all(abs(mean) > MEAN_BAR for mean, _ in run.unfitted["all"].values())
