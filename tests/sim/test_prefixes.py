"""A replica's prefix cache saves the work it should and hits as often as the trace says."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from arms import arm, run, trace

import traces
from dispatch.config import PolicyConfig, WaitConfig
from dispatch.journal import Journal
from sim.config import DoorConfig
from sim.rates import Rates
from sim.run import _Run

BLIND = PolicyConfig(name="round_robin")


def prompts(blocks, tokens=2048, gap_s=10.0, output=5):
    """Return requests of four blocks each."""
    offsets = np.concatenate([[0], np.cumsum([len(b) for b in blocks])])
    return trace(np.arange(len(blocks)) * gap_s, tokens, output, block_offsets=offsets,
                 block_hashes=np.concatenate(blocks), block_tokens=512)  # fmt: skip


def first_token_s(rows):
    rows = rows.sort_values("request")
    return (rows["first_token_s"] - rows["started_s"]).to_numpy()


def test_a_shared_prefix_is_not_computed_again_and_the_journal_says_how_much():
    offered = prompts([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 7, 8], [9, 2, 3, 4]])
    _, rows, _, _ = run(offered, arm(count=1, policy=BLIND, engine={"prefix_cache": "lru"}))
    assert list(rows.sort_values("request")["cached_tokens"]) == [0, 2032, 1024, 0]
    took = first_token_s(rows)
    assert took[1] < took[2] < took[0]
    assert took[3] == pytest.approx(took[0], rel=1e-9)
    _, plain, _, _ = run(offered, arm(count=1, policy=BLIND))
    assert list(plain["cached_tokens"]) == [0] * 4


def test_an_engine_that_copies_computes_the_last_token_alone():
    offered = prompts([[1, 2, 3, 4], [1, 2, 3, 4]])
    engine = {"prefix_cache": "lru", "prefix_sharing": False}
    _, rows, _, _ = run(offered, arm(count=1, policy=BLIND, engine=engine))
    assert list(rows.sort_values("request")["cached_tokens"]) == [0, 2047]


def test_a_cache_without_room_saves_nothing():
    offered = prompts([[1, 2, 3, 4], [1, 2, 3, 4]])
    engine = {"prefix_cache": "lru", "prefix_cache_blocks": 0}
    _, rows, _, _ = run(offered, arm(count=1, policy=BLIND, engine=engine))
    assert list(rows["cached_tokens"]) == [0, 0]


def test_what_runs_pushes_cached_blocks_out_of_the_pool():
    filler = [[100 + 10 * i + j for j in range(4)] for i in range(14)]
    offered = prompts([[1, 2, 3, 4], *filler, [1, 2, 3, 4]])
    engine = {"prefix_cache": "lru", "memory_utilization_ratio": 0.25}
    _, rows, _, _ = run(offered, arm(count=1, policy=BLIND, engine=engine))
    assert rows.sort_values("request")["cached_tokens"].iloc[-1] == 0
    few = prompts([[1, 2, 3, 4], *filler[:3], [1, 2, 3, 4]])
    _, rows, _, _ = run(few, arm(count=1, policy=BLIND, engine=engine))
    assert rows.sort_values("request")["cached_tokens"].iloc[-1] == 2032


class Instant:
    """A cost model in which nothing takes time worth a queue."""

    def decode_line(self, batch):
        return 1e-9, 0.0

    def mixed_s(self, new_tokens, past_tokens, decode_batch=0, decode_context=0.0):
        return 1e-9


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize(
    ("evict", "expected"), [("lru", 0.2112), ("lfu", 0.1315), ("length", 0.1063)]
)
def test_a_replica_hits_as_the_published_trace_does_to_four_digits(data_file, evict, expected):
    """10,000 blocks, Mooncake conversation; admitted in the order of their arrival."""
    offered = traces.read(data_file("mooncake_conversation_trace.jsonl"))
    setup = arm(
        count=1, policy=BLIND, max_tokens_default=1, drain_s=1.0,
        engine={"prefix_cache": evict, "prefix_cache_blocks": 10_000, "max_waiting": 10**6,
                "chunked_prefill": False, "max_num_batched_tokens": 200_000},
        wait=WaitConfig(deadline_s=1e6), door=DoorConfig(kind="direct", decision_us=0.001),
    )  # fmt: skip
    replay = _Run(offered, setup, 1, Journal(lambda *_: None), None)
    engine = replay.world.engines[0]
    engine.rates = Rates(Instant())
    replay.go()
    prefixes = engine.prefix
    assert prefixes.asked == len(offered.block_hashes)
    assert round(prefixes.hit / prefixes.asked, 4) == expected
