"""Continuous batching on real memory: results, limits, and errors that stay local."""

from typing import Any

import pytest
import torch

from dispatch.hints import PLANS
from live.config import LiveEngine
from live.engine import Engine
from live.memory_errors import is_memory_error
from live.model import Llama, random_weights
from live.sequence import Event, Job, Kind
from live.shapes import LlamaShape

SHAPE = LlamaShape("test", 48, 2, 4, 2, 12, 80, 64, 128)
MODEL = Llama(SHAPE, random_weights(SHAPE, 3), "cpu")
TOKEN = SHAPE.kv_bytes_per_token


class Bench:
    """An engine and the events it delivered."""

    def __init__(self, tokens: int = 4096, **limits: Any) -> None:
        self.events: list[Event] = []
        setup = LiveEngine(**{"block_tokens": 4, **limits})
        self.engine = Engine(MODEL, setup, tokens * TOKEN, self.events.extend)

    def run(self, limit: int = 2000) -> None:
        for _ in range(limit):
            if not self.engine.busy:
                return
            self.engine.step()
        raise AssertionError("the engine does not come to an end")

    def tokens(self, id_: int) -> list[int]:
        return [t for e in self.events if e.id == id_ for t in e.tokens]

    def end(self, id_: int) -> Event:
        (end,) = [e for e in self.events if e.id == id_ and e.is_end]
        return end


def job(id_: int, prompt: int = 5, output: int = 6, **more: Any) -> Job:
    return Job(id_, [(id_ * 7 + i) % 64 for i in range(prompt)], output, **more)


def alone(one: Job) -> list[int]:
    bench = Bench()
    bench.engine.submit(one)
    bench.run()
    return bench.tokens(one.id)


@pytest.mark.parametrize("kv", ["paged", "contiguous"])
def test_a_batch_gives_each_request_what_it_gets_alone(kv: str) -> None:
    bench = Bench(kv=kv, max_num_batched_tokens=8)
    jobs = [job(i, prompt=3 + 4 * i, output=2 + i) for i in range(6)]
    for one in jobs:
        bench.engine.submit(one)
    bench.run()
    assert [bench.tokens(one.id) for one in jobs] == [alone(one) for one in jobs]


def test_events_come_in_order_started_tokens_end() -> None:
    bench = Bench()
    bench.engine.submit(job(1, output=3))
    bench.run()
    kinds = [e.kind for e in bench.events]
    assert kinds == [Kind.started, Kind.tokens, Kind.tokens, Kind.tokens, Kind.finished]
    times = [e.time_s for e in bench.events]
    assert times == sorted(times)


def test_output_tokens_end_a_request_before_max_tokens() -> None:
    bench = Bench()
    bench.engine.submit(job(1, output=50, output_tokens=4))
    bench.run()
    assert len(bench.tokens(1)) == 4


def test_no_more_sequences_run_than_the_limit() -> None:
    bench = Bench(max_num_seqs=3)
    for i in range(8):
        bench.engine.submit(job(i))
    seen = 0
    while bench.engine.busy:
        bench.engine.step()
        seen = max(seen, len(bench.engine.running))
    assert seen == 3


def test_a_job_beyond_the_queue_limit_fails_at_once_and_alone() -> None:
    bench = Bench(max_waiting=2)
    for i in range(3):
        bench.engine.submit(job(i))
    assert bench.end(2).kind == Kind.failed
    bench.run()
    assert [bench.end(i).kind for i in range(2)] == [Kind.finished] * 2


@pytest.mark.parametrize("kv", ["paged", "contiguous"])
def test_optimistic_admission_turns_a_lack_of_room_into_an_oom_of_that_request(kv: str) -> None:
    bench = Bench(tokens=100, kv=kv, admission="optimistic", preemption="none")
    bench.engine.submit(job(1, prompt=40, output=8))
    bench.engine.submit(job(2, prompt=90, output=8))
    bench.engine.submit(job(3, prompt=20, output=8))
    bench.run()
    assert [bench.end(i).kind for i in (1, 2, 3)] == [Kind.finished, Kind.oom, Kind.finished]
    assert bench.tokens(1) == alone(job(1, prompt=40, output=8))


def test_guarded_admission_waits_until_there_is_room() -> None:
    bench = Bench(tokens=100, kv="contiguous")
    bench.engine.submit(job(1, prompt=60, output=8))
    bench.engine.submit(job(2, prompt=60, output=8))
    bench.run()
    assert [bench.end(i).kind for i in (1, 2)] == [Kind.finished] * 2


def test_what_can_never_fit_is_an_oom_even_when_guarded() -> None:
    bench = Bench(tokens=40)
    bench.engine.submit(job(1, prompt=60))
    bench.run()
    assert bench.end(1).kind == Kind.oom


def test_a_preempted_request_is_recomputed_to_the_same_tokens() -> None:
    bench = Bench(tokens=48, preemption="recompute")
    jobs = [job(i, prompt=8, output=24) for i in (1, 2)]
    for one in jobs:
        bench.engine.submit(one)
    bench.run()
    assert bench.end(2).preemptions > 0
    assert [bench.tokens(one.id) for one in jobs] == [alone(one) for one in jobs]


def test_without_preemption_the_one_that_cannot_grow_dies() -> None:
    bench = Bench(tokens=48, preemption="none")
    for i in (1, 2):
        bench.engine.submit(job(i, prompt=8, output=36))
    bench.run()
    kinds = {bench.end(i).kind for i in (1, 2)}
    assert kinds == {Kind.oom, Kind.finished}


@pytest.mark.parametrize("kv", ["paged", "contiguous"])
def test_after_any_mix_of_ends_all_memory_is_free_again(kv: str) -> None:
    bench = Bench(tokens=120, kv=kv, admission="optimistic")
    free = bench.engine.cache.arena.free_bytes
    for i in range(20):
        bench.engine.submit(job(i, prompt=5 + 6 * i, output=9))
    for _ in range(5):
        bench.engine.step()
    bench.engine.cancel([0, 3, 19, 77])
    bench.run()
    assert bench.engine.cache.arena.free_bytes == free
    assert sum(e.is_end for e in bench.events) == 20


def test_torch_running_out_of_memory_fails_only_the_request_that_caused_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    forward = MODEL.forward

    def short_of_memory(tokens: torch.Tensor, *rest: Any) -> torch.Tensor:
        if len(tokens) > 30:  # a real allocation that this machine cannot give
            torch.empty(1 << 62, dtype=torch.uint8)
        return forward(tokens, *rest)

    monkeypatch.setattr(MODEL, "forward", short_of_memory)
    bench.engine.submit(job(1, prompt=5))
    bench.engine.submit(job(2, prompt=31))
    bench.engine.submit(job(3, prompt=6))
    bench.run()
    assert [bench.end(i).kind for i in (1, 2, 3)] == [Kind.finished, Kind.oom, Kind.finished]
    monkeypatch.undo()
    assert bench.tokens(3) == alone(job(3, prompt=6))


def test_only_memory_errors_count_as_such() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 62, dtype=torch.uint8)
    assert is_memory_error(caught.value)
    assert is_memory_error(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_memory_error(RuntimeError("shape mismatch"))


def test_sampling_at_a_temperature_depends_on_the_seed_alone() -> None:
    a = alone(job(1, temperature=1.0, seed=5, output=20))
    assert a == alone(job(1, temperature=1.0, seed=5, output=20))
    assert a != alone(job(1, temperature=1.0, seed=6, output=20))


def test_a_contiguous_arena_reports_holes_and_a_paged_one_has_none() -> None:
    scores = {}
    for kv in ("contiguous", "paged"):
        bench = Bench(tokens=400, kv=kv)
        for i in range(4):
            bench.engine.submit(job(i, prompt=50, output=30))
        bench.engine.step()
        bench.engine.cancel([0, 2])
        scores[kv] = bench.engine.cache.arena.fragmentation
    assert scores["contiguous"] > 0.3
    assert scores["paged"] == 0.0


def test_a_tuning_profile_bounds_the_batch_it_is_taken_into() -> None:
    bench = Bench(max_num_seqs=100, tokens=8192)
    for i in range(40):
        bench.engine.submit(job(i, kernel_hint="latency_optimized"))
    bench.engine.step()
    assert len(bench.engine.running) == PLANS["latency_optimized"].max_num_seqs


def test_a_tuning_profile_bounds_the_prompt_chunk_of_a_pass() -> None:
    shape = LlamaShape("long", 48, 1, 4, 2, 12, 80, 64, 2048)
    model = Llama(shape, random_weights(shape, 3), "cpu")
    stored = {}
    for hint in ("", "memory_efficient"):
        engine = Engine(model, LiveEngine(max_num_batched_tokens=1024), 1 << 20, lambda e: None)
        engine.submit(Job(1, [1] * 1000, 2, kernel_hint=hint))
        engine.step()
        stored[hint] = engine.running[0].held.stored_tokens
    assert stored == {
        "": 1000,
        "memory_efficient": PLANS["memory_efficient"].max_num_batched_tokens,
    }
