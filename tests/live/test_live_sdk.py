"""``AutoTuneSession`` against a real door, and against a server that knows none of the figures."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest
from live_help import DoorThread, door, until

from live.sdk import AsyncAutoTuneSession, AutoTuneSession, TuningProfileError


@pytest.fixture(scope="module")
def served() -> Iterator[DoorThread]:
    with door() as thread:
        yield thread


@pytest.fixture
def session(served: DoorThread) -> Iterator[AutoTuneSession]:
    with AutoTuneSession(f"{served.url}/v1", "tiny") as found:
        yield found


def hints(served: DoorThread) -> list[str]:
    frame = served.call(lambda: served.journal.to_pandas("requests"))
    return list(frame.kernel_hint)


def test_complete_gives_text_usage_and_the_two_figures(session: AutoTuneSession) -> None:
    answer = session.complete("hello", max_tokens=4)
    assert (answer.prompt_tokens, answer.completion_tokens) == (5, 4)
    assert answer.kernel_dispatch_time_ms is not None
    assert answer.kernel_dispatch_time_ms > 0
    assert answer.memory_fragmentation_score == 0.0
    assert (answer.finish_reason, answer.retries) == ("length", 0)
    assert answer.request_id


def test_the_profile_goes_out_as_the_hint_header_and_can_be_switched(
    served: DoorThread, session: AutoTuneSession
) -> None:
    before = len(hints(served))
    session.complete("x", max_tokens=1)
    session.switch("memory_efficient")
    session.complete("x", max_tokens=1)
    assert hints(served)[before:] == ["latency_optimized", "memory_efficient"]
    assert session.profile == "memory_efficient"


def test_an_unknown_profile_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(TuningProfileError, match="throughput_optimized"):
        AutoTuneSession("http://127.0.0.1:1/v1", "m", "fast")  # type: ignore[arg-type]


def test_a_stream_ends_with_the_same_result(session: AutoTuneSession) -> None:
    whole = session.complete("hello", max_tokens=6)
    with session.stream("hello", max_tokens=6) as stream:
        text = "".join(stream)
    assert text == stream.result.text == whole.text
    assert stream.result.completion_tokens == 6
    assert stream.result.kernel_dispatch_time_ms is not None


def test_leaving_a_stream_early_stops_the_server(
    served: DoorThread, session: AutoTuneSession
) -> None:
    with session.stream("hello", max_tokens=4000) as stream:
        for _ in stream:
            break
    until(lambda: not served.running.placer.in_flight, "the server goes on")


def test_the_asynchronous_session_does_the_same(served: DoorThread) -> None:
    async def run() -> tuple[str, str]:
        async with AsyncAutoTuneSession(f"{served.url}/v1", "tiny") as session:
            whole = await session.complete("hello", max_tokens=6)
            async with session.stream("hello", max_tokens=6) as stream:
                text = "".join([part async for part in stream])
            async with await session.stream("hello", max_tokens=6) as awaited:
                assert text == "".join([part async for part in awaited])
            assert stream.result.memory_fragmentation_score == 0.0
            return whole.text, text

    whole, text = asyncio.run(run())
    assert whole == text


def test_leaving_an_asynchronous_stream_early_stops_the_server(served: DoorThread) -> None:
    async def run() -> None:
        async with AsyncAutoTuneSession(f"{served.url}/v1", "tiny") as session:
            async with session.stream("hello", max_tokens=4000) as stream:
                async for _ in stream:
                    break
            assert stream.result.text

    asyncio.run(run())
    until(lambda: not served.running.placer.in_flight, "the server goes on")


def test_errors_are_those_of_openai(session: AutoTuneSession) -> None:
    with pytest.raises(openai.BadRequestError):
        session.complete("hello", max_tokens=0)


class Plain(BaseHTTPRequestHandler):
    """A server that fails once, then answers without any of our fields."""

    failures = 1

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if type(self).failures:
            type(self).failures -= 1
            self.send_response(503)
            self.send_header("retry-after", "0")
            self.end_headers()
            return
        choice = {"index": 0, "text": "ok", "finish_reason": "stop", "logprobs": None}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        body = {"id": "x", "object": "text_completion", "created": 0, "model": "m"}
        data = json.dumps({**body, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        pass


def test_a_server_without_the_figures_gives_none_and_retries_are_told() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with AutoTuneSession(f"http://127.0.0.1:{server.server_port}/v1", "m") as session:
            answer = session.complete("x")
    finally:
        server.shutdown()
        server.server_close()
    assert answer.text == "ok"
    assert answer.kernel_dispatch_time_ms is None
    assert answer.memory_fragmentation_score is None
    assert answer.retries == 1
