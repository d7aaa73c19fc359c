"""The replay client: planned arrivals, prompts that share prefixes, and a journal that adds up."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_help import DoorThread, door

from dispatch.errors import InputError
from dispatch.journal import Journal
from dispatch.outcomes import Outcome
from live.config import LiveConfig
from live.replay.journal import write
from live.replay.local import replay_local
from live.replay.prompts import Prompts
from live.replay.run import Plan, Replay, find_target, replay
from reports.explain import explain
from scenarios.folder import read_manifest
from traces.trace import Trace
from zerolayer.live_replay import Order, carry_out


def trace(arrivals: list[float], prompts: list[int], outputs: list[int], **more: Any) -> Trace:
    return Trace(
        np.array(arrivals, dtype=np.float64),
        np.array(prompts, dtype=np.int32),
        np.array(outputs, dtype=np.int32),
        **more,
    )


def blocks() -> Trace:
    hashes = np.array([7, 8, 7, 9, 5], dtype=np.int64)
    offsets = np.array([0, 2, 4, 5], dtype=np.int64)
    return trace(
        [0, 0, 0], [10, 11, 3], [1, 1, 1],
        block_hashes=hashes, block_offsets=offsets, block_tokens=4,
    )  # fmt: skip


def test_prompts_have_the_right_length_and_share_what_their_hashes_share() -> None:
    made = Prompts(blocks(), 256)
    first, second, third = (made.ids(row) for row in range(3))
    assert [len(p) for p in (first, second, third)] == [10, 11, 3]
    assert first[:4] == second[:4]
    assert first[4:8] != second[4:8]
    assert all(0 <= t < 256 for t in first + second + third)
    assert made.ids(0) == first == Prompts(blocks(), 256).ids(0)


@pytest.fixture(scope="module")
def served() -> Iterator[DoorThread]:
    with door(devices=[{"name": "a"}, {"name": "b"}]) as thread:
        yield thread


def send(served: DoorThread, rows: Trace, **plan: Any) -> Replay:
    async def run() -> Replay:
        target = await find_target(served.url)
        return await replay(rows, target, Plan(lag_limit_s=60, **plan))

    return asyncio.run(run())


def test_a_door_of_ours_is_recognised_with_its_limits(served: DoorThread) -> None:
    target = asyncio.run(find_target(f"{served.url}/v1"))
    assert (target.model, target.ours) == ("tiny", True)
    assert (target.context_tokens, target.vocab) == (4096, 320)


def test_a_server_that_does_not_answer_is_bad_input() -> None:
    with pytest.raises(InputError, match="is it running"):
        asyncio.run(find_target("http://127.0.0.1:1"))


def test_a_model_that_is_not_served_is_bad_input(served: DoorThread) -> None:
    with pytest.raises(InputError, match="it serves tiny"):
        asyncio.run(find_target(served.url, model="gpt"))


def test_outputs_have_the_length_of_the_trace_and_max_tokens_does_not_tell_it(
    served: DoorThread,
) -> None:
    run = send(served, trace([0, 0.02, 0.05], [5, 50, 9], [3, 1, 12]))
    assert [s.output_tokens for s in run.seen] == [3, 1, 12]
    assert run.max_tokens == [1024] * 3
    assert {s.outcome for s in run.seen} == {Outcome.finished}


def test_nothing_waits_for_an_answer_and_latency_counts_from_the_planned_arrival(
    served: DoorThread,
) -> None:
    run = send(served, trace([0.0, 0.0, 0.0, 0.0], [4] * 4, [200] * 4))
    first_end = min(s.end_s for s in run.seen)
    assert all(s.sent_s < first_end for s in run.seen)
    assert all(s.planned_s == 0.0 and s.lag_s > -0.001 for s in run.seen)


def test_a_prompt_beyond_the_context_is_rejected_context_not_oom(served: DoorThread) -> None:
    run = send(served, trace([0, 0], [5000, 5], [1, 1]))
    assert [s.outcome for s in run.seen] == [Outcome.rejected_context, Outcome.finished]


def test_no_success_by_the_deadline_is_a_time_out(served: DoorThread) -> None:
    run = send(served, trace([0], [5], [1000]), deadline_s=0.1)
    assert [s.outcome for s in run.seen] == [Outcome.timed_out]


def test_what_the_drain_leaves_is_in_flight_and_flags_the_run(served: DoorThread) -> None:
    run = send(served, trace([0], [5], [1000]), drain_s=0.05)
    assert [s.outcome for s in run.seen] == [Outcome.in_flight]
    assert "1 requests were still in flight" in run.problems[0]


def test_a_late_client_flags_the_run(served: DoorThread) -> None:
    async def run() -> Replay:
        target = await find_target(served.url)
        return await replay(trace([0, 0], [5, 5], [1, 1]), target, Plan(lag_limit_s=-1))

    assert asyncio.run(run()).summary()["degraded"]


def test_hints_of_the_trace_reach_the_door(served: DoorThread) -> None:
    hints = np.array([0, -1], dtype=np.int32)
    send(served, trace([0, 0], [5, 6], [1, 1], kernel_hint=hints, names=("memory_efficient",)))
    frame = served.call(lambda: served.journal.to_pandas("requests")).iloc[-2:]
    assert sorted(frame.kernel_hint) == ["", "memory_efficient"]


@pytest.mark.parametrize("kind", ["direct", pytest.param("legacy", marks=pytest.mark.slow)])
def test_a_local_replay_joins_what_client_and_server_saw(kind: Any) -> None:
    rows = trace([0, 0.05, 0.1, 0.15], [5, 60, 9, 30], [3, 5, 12, 2])
    config = LiveConfig.model_validate({"devices": [{"name": "a"}, {"name": "b"}]})
    journal = Journal(arm=kind)
    replay_local(rows, config, kind, Plan(lag_limit_s=60), journal)
    frame = journal.to_pandas("requests")
    assert list(frame.request) == [0, 1, 2, 3]
    assert list(frame.output_tokens) == [3, 5, 12, 2]
    assert set(frame.device) <= {0, 1}
    assert (frame.arrival_s <= frame.decision_end_s).all()
    assert (frame.decision_end_s <= frame.started_s).all()
    assert (frame.started_s <= frame.first_token_s).all()
    assert (frame.door_service_s > 0).all()
    decisions = journal.to_pandas("decisions")
    assert sorted(decisions.request) == [0, 1, 2, 3]
    assert len(journal.to_pandas("devices")) >= 2


def test_a_replay_leaves_a_run_folder_that_explain_reads(
    served: DoorThread, tmp_path: Path
) -> None:
    rows = trace([0, 0.02], [5, 50], [3, 2])
    order = Order(rows, Plan(lag_limit_s=60), "remote", None, served.url, "secret", "tiny")
    summary = carry_out(order, tmp_path, lambda done, of: None)
    assert summary["outcomes"] == {"finished": 2}
    assert summary["in_flight_max"] in (1, 2)
    manifest = read_manifest(tmp_path)
    assert manifest["world"] == "live"
    assert "secret" not in (tmp_path / "manifest.json").read_text()
    story = explain(tmp_path, manifest, 1, None)
    assert [(p.arm, p.request["output_tokens"]) for p in story.parts] == [("remote", 2)]


class Foreign(BaseHTTPRequestHandler):
    """An OpenAI-compatible server that knows none of our fields and fails every second request."""

    protocol_version = "HTTP/1.1"
    bodies: list[dict[str, Any]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        found = {"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 100}]}
        self._answer(200, "application/json", json.dumps(found))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.bodies.append(body)
        if len(body["prompt"]) == 13:
            self._answer(500, "text/plain", "broken")
            return
        chunk = {"choices": [{"index": 0, "text": "a", "finish_reason": None}], "usage": None}
        last = {"choices": [], "usage": {"completion_tokens": 7}}
        lines = [f"data: {json.dumps(c)}\n\n" for c in (chunk, chunk, last)]
        self._answer(200, "text/event-stream", "".join(lines) + "data: [DONE]\n\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def foreign() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Foreign)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def against(url: str, rows: Trace, **plan: Any) -> Replay:
    async def run() -> Replay:
        return await replay(rows, await find_target(url), Plan(lag_limit_s=60, **plan))

    return asyncio.run(run())


def test_chunks_of_several_tokens_are_told_since_their_gaps_are_no_gaps_between_tokens() -> None:
    with foreign() as url:
        (note,) = against(url, trace([0], [5], [7])).summary()["notes"]
    assert "3.50 tokens a chunk" in note
    assert "TPOT" in note


def test_one_token_a_chunk_needs_no_note(served: DoorThread) -> None:
    assert send(served, trace([0], [5], [7])).summary()["notes"] == []


def test_a_replay_stops_at_the_error_rate_and_says_so() -> None:
    rows = trace([0] * 60 + [600] * 20, [13] * 80, [1] * 80)  # the rest is ten minutes away
    with foreign() as url:
        run = against(url, rows, max_error_ratio=0.5)
    unsent = [s for s in run.seen if s.sent_s != s.sent_s]
    assert [s.row for s in unsent] == list(range(60, 80))
    assert {s.outcome for s in unsent} == {Outcome.in_flight}
    assert "20 requests were never sent" in run.problems[0]
    assert run.summary()["degraded"]


def test_a_foreign_server_is_replayed_against_by_its_own_rules() -> None:
    rows = trace([0, 0.01], [5, 13], [7, 2])
    with foreign() as url:
        assert not asyncio.run(find_target(url)).ours
        seen = against(url, rows)
    assert [s.outcome for s in seen.seen] == [Outcome.finished, Outcome.failed]
    assert seen.seen[0].output_tokens == 7  # from usage: a chunk need not be a token
    sent = [body for body in Foreign.bodies if len(body["prompt"]) == 5]
    assert sent[0]["max_tokens"] == 7
    assert "output_tokens" not in sent[0]
    assert np.isnan(seen.seen[0].kernel_dispatch_ms)  # not given is not 0
    journal = Journal(arm="remote")
    write(seen, rows, journal)
    assert list(journal.to_pandas("requests").outcome) == [Outcome.finished, Outcome.failed]
