"""The direct door over real HTTP: answers, limits, errors, and what a client's leaving frees."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from live_help import DoorThread, door, http, until

from dispatch.outcomes import Outcome

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def served() -> Iterator[DoorThread]:
    limits = {"max_body_bytes": 50_000, "max_header_bytes": 8000}
    with door(devices=[{"name": "a"}, {"name": "b"}], limits=limits) as thread:
        yield thread


@pytest.fixture(scope="module")
def client(served: DoorThread) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as found:
        yield found


def post(served: DoorThread, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return http.post(f"{served.url}/v1/completions", content=content, headers=headers, timeout=30)


def idle(served: DoorThread) -> bool:
    devices = served.running.placer.devices
    return not served.running.placer.in_flight and all(
        d.snapshot().free_bytes == d.engine.cache.size_bytes for d in devices
    )


def test_a_completion_bears_the_two_figures_in_usage(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt="hello", max_tokens=7)
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (5, 7)
    assert answer.usage.kernel_dispatch_time_ms > 0  # type: ignore[attr-defined]
    assert answer.usage.memory_fragmentation_score == 0.0  # type: ignore[attr-defined]
    assert answer.choices[0].finish_reason == "length"


def test_a_stream_gives_the_same_text_and_the_figures_on_its_last_chunk(
    client: openai.OpenAI,
) -> None:
    whole = client.completions.create(model="tiny", prompt="hi", max_tokens=9)
    chunks = list(client.completions.create(model="tiny", prompt="hi", max_tokens=9, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage.kernel_dispatch_time_ms > 0  # type: ignore[union-attr]
    assert chunks[-1].choices[0].finish_reason == "length"


def test_include_usage_adds_a_last_chunk_without_choices(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        client.completions.create(
            model="tiny", prompt="hi", max_tokens=4, stream=True, stream_options=options
        )
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 4


def test_n_and_several_prompts_make_choices_in_order(client: openai.OpenAI) -> None:
    prompts = ["one", "twenty"]
    answer = client.completions.create(model="tiny", prompt=prompts, n=2, max_tokens=3)
    alone = [
        client.completions.create(model="tiny", prompt=p, max_tokens=3).choices[0].text
        for p in prompts
    ]
    assert [c.text for c in answer.choices] == [alone[0]] * 2 + [alone[1]] * 2
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 2 * (3 + 6)


def test_several_choices_stream_side_by_side(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(model="tiny", prompt=["one", "twenty"], max_tokens=3, stream=True)
    )
    assert {c.choices[0].index for c in chunks} == {0, 1}
    assert sum(c.choices[0].finish_reason == "length" for c in chunks) == 2


def test_echo_puts_the_prompt_before_the_text(client: openai.OpenAI) -> None:
    plain = client.completions.create(model="tiny", prompt="hey", max_tokens=3)
    echoed = client.completions.create(model="tiny", prompt="hey", max_tokens=3, echo=True)
    assert echoed.choices[0].text == "hey" + plain.choices[0].text


def test_a_stop_string_ends_the_text_before_it_and_frees_the_device(
    served: DoorThread, client: openai.OpenAI
) -> None:
    plain = client.completions.create(model="tiny", prompt="stop me", max_tokens=40)
    text = plain.choices[0].text
    stop = text[10:12]
    stopped = client.completions.create(model="tiny", prompt="stop me", max_tokens=4000, stop=stop)
    assert stopped.choices[0].text == text[: text.find(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    until(lambda: idle(served), "the device goes on after a stop string")


def test_token_ids_are_a_prompt_too(client: openai.OpenAI) -> None:
    ids = list(b"hello")
    by_ids = client.completions.create(model="tiny", prompt=ids, max_tokens=3)
    by_text = client.completions.create(model="tiny", prompt="hello", max_tokens=3)
    assert by_ids.choices[0].text == by_text.choices[0].text


def test_an_unknown_kernel_hint_is_refused_with_the_three_values(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(
            model="tiny", prompt="x", extra_headers={"x-kernel-hint": "fastest"}
        )
    message = str(caught.value)
    assert caught.value.param == "x-kernel-hint"
    for name in ("latency_optimized", "throughput_optimized", "memory_efficient"):
        assert name in message


def test_a_known_hint_is_echoed(served: DoorThread) -> None:
    body = {"model": "tiny", "prompt": "x", "max_tokens": 1}
    answer = post(served, body, **{"x-kernel-hint": "memory_efficient", "x-request-id": "abc"})
    assert answer.headers["x-kernel-hint"] == "memory_efficient"
    assert answer.headers["x-request-id"] == "abc"


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"max_tokens": 1 << 20}, 400, "max_tokens"),
        ({"max_tokens": 1.5}, 400, "max_tokens"),
        ({"max_tokens": True}, 400, "max_tokens"),
        ({"model": "gpt"}, 404, "model"),
        ({"model": 3}, 400, "model"),
        ({"prompt": ""}, 400, "prompt"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": [1, 100_000]}, 400, "prompt"),
        ({"prompt": [[1], "x"]}, 400, None),
        ({"prompt": None}, 400, "prompt"),
        ({"prompt": "\ud800"}, 400, "prompt"),
        ({"n": 0}, 400, "n"),
        ({"n": 2, "best_of": 1}, 400, "best_of"),
        ({"stop": ["a"] * 5}, 400, "stop"),
        ({"stop": [""]}, 400, "stop"),
        ({"logprobs": 2}, 400, "logprobs"),
        ({"temperature": 3}, 400, "temperature"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
        ({"colour": "red"}, 400, "colour"),
    ],
)
def test_what_does_not_hold_is_refused_by_name(
    served: DoorThread, change: dict[str, Any], status: int, param: str | None
) -> None:
    answer = post(served, {"model": "tiny", "prompt": "x", **change})
    assert answer.status_code == (200 if param is None else status)
    if param is not None:
        assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"nul", b"[" * 20_000, b"\xff\xfe"])
def test_a_malformed_body_is_a_400(served: DoorThread, body: bytes) -> None:
    assert post(served, body).status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/completions", 405), ("POST", "/v1/chat/completions", 404)],
)
def test_a_wrong_path_or_method_is_told_in_the_envelope(
    served: DoorThread, method: str, path: str, status: int
) -> None:
    answer = http.request(method, f"{served.url}{path}")
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == "no_such_route"


def test_a_fault_of_the_door_itself_is_a_500_in_the_envelope_and_is_logged(
    served: DoorThread, caplog: pytest.LogCaptureFixture
) -> None:
    placer = served.running.placer
    recorder, placer.recorder = placer.recorder, None  # type: ignore[assignment]
    try:
        answer = post(served, {"model": "tiny", "prompt": "x", "max_tokens": 1})
    finally:
        placer.recorder = recorder
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "internal_error")
    assert "AttributeError" in caplog.text
    assert post(served, {"model": "tiny", "prompt": "x", "max_tokens": 1}).status_code == 200


def test_an_oversized_body_is_a_413_declared_or_not(served: DoorThread) -> None:
    big = json.dumps({"model": "tiny", "prompt": "x" * 60_000}).encode()
    assert post(served, big).status_code == 413

    def chunks() -> Iterator[bytes]:
        yield from (big[i : i + 10_000] for i in range(0, len(big), 10_000))

    answer = http.post(f"{served.url}/v1/completions", content=chunks())
    assert answer.status_code == 413


def test_oversized_headers_are_a_431(served: DoorThread) -> None:
    answer = post(served, {"model": "tiny", "prompt": "x"}, **{"x-long": "y" * 9000})
    assert answer.status_code in (400, 431)


def test_a_client_that_leaves_a_stream_frees_its_memory(served: DoorThread) -> None:
    body = {"model": "tiny", "prompt": "x", "max_tokens": 4000, "stream": True}
    with http.stream("POST", f"{served.url}/v1/completions", json=body) as answer:
        lines = answer.iter_lines()  # kept: a dropped iterator closes the stream
        next(lines)
        assert served.running.placer.in_flight
    until(lambda: idle(served), "a cancelled stream is still running")
    assert served.running.placer.recorder.outcomes[Outcome.cancelled] >= 1


def test_a_client_that_leaves_while_waiting_frees_its_memory(served: DoorThread) -> None:
    body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 4000}).encode()
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        raw.sendall(head.encode() + body)
        until(lambda: served.running.placer.in_flight > 0, "the request never came in")
    until(lambda: idle(served), "an abandoned request is still running")


def test_models_health_and_metrics_answer(served: DoorThread, client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert http.get(f"{served.url}/healthz").json()["status"] == "ok"
    page = http.get(f"{served.url}/metrics").text
    for name in (
        "zerolayer_num_requests_running{",
        "zerolayer_kv_cache_usage_perc{",
        "zerolayer_time_to_first_token_seconds_bucket",
        "zerolayer_generation_tokens_total",
        "zerolayer_gpu_memory_fragmentation_ratio{",
        "zerolayer_requests_oom_total",
        "zerolayer_sampler_cpu_ratio{",
    ):
        assert name in page


def test_requests_and_decisions_are_in_the_journal(served: DoorThread) -> None:
    post(served, {"model": "tiny", "prompt": "hello", "max_tokens": 3})
    row = served.call(lambda: served.journal.to_pandas("requests")).iloc[-1]
    decisions = served.call(lambda: served.journal.to_pandas("decisions"))
    assert row.outcome == Outcome.finished
    assert (row.prompt_tokens, row.output_tokens) == (5, 3)
    assert row.arrival_s <= row.decision_end_s <= row.started_s <= row.first_token_s <= row.end_s
    assert row.request in set(decisions.request)


def test_an_api_key_is_asked_for_where_one_is_set() -> None:
    from live.config import LiveConfig

    with DoorThread(LiveConfig(), api_key="secret") as thread:
        body = {"model": "tiny", "prompt": "x", "max_tokens": 1}
        assert post(thread, body).status_code == 401
        assert post(thread, body, authorization="Bearer wrong").status_code == 401
        assert post(thread, body, authorization="Bearer secret").status_code == 200


def test_a_full_door_answers_429_with_retry_after() -> None:
    with door(limits={"max_requests": 1}) as thread:
        body = {"model": "tiny", "prompt": "x", "max_tokens": 3000, "stream": True}
        with http.stream("POST", f"{thread.url}/v1/completions", json=body) as answer:
            lines = answer.iter_lines()  # kept: a dropped iterator closes the stream
            next(lines)
            refused = post(thread, {"model": "tiny", "prompt": "x"})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1


def test_out_of_memory_is_a_503_that_may_be_retried_and_the_rest_goes_on() -> None:
    engine = {"kv": "contiguous", "admission": "optimistic"}
    policy = {"name": "round_robin"}
    device = {"name": "a", "kv_mib": 0.5}  # 1,024 tokens of this model
    with door(devices=[device], engine=engine, policy=policy) as thread:
        long = {"model": "tiny", "prompt": "x", "max_tokens": 600, "stream": True}
        with http.stream("POST", f"{thread.url}/v1/completions", json=long) as first:
            lines = first.iter_lines()
            next(lines)
            second = post(thread, {"model": "tiny", "prompt": "y", "max_tokens": 600})
            assert second.status_code == 503
            assert second.json()["error"]["code"] == "gpu_out_of_memory"
            assert "retry-after" in second.headers
            assert "[DONE]" in list(lines)[-2]
        row = thread.call(lambda: thread.journal.to_pandas("requests"))
        assert set(row.outcome) == {Outcome.finished, Outcome.oom}


def test_a_held_request_is_placed_when_there_is_room() -> None:
    engine = {"kv": "contiguous"}
    device = {"name": "a", "kv_mib": 0.5}
    with door(devices=[device], engine=engine) as thread:
        body = {"model": "tiny", "prompt": "x", "max_tokens": 600}
        with http.stream(
            "POST", f"{thread.url}/v1/completions", json={**body, "stream": True}
        ) as first:
            lines = first.iter_lines()
            next(lines)
            time.sleep(0.1)  # two samples, so that the graph knows
            second = post(thread, body)
            assert second.status_code == 200
        assert second.json()["usage"]["completion_tokens"] == 600


def test_a_request_past_its_deadline_is_a_504_and_counts_as_timed_out() -> None:
    with door(wait={"deadline_s": 0.2}) as thread:
        answer = post(thread, {"model": "tiny", "prompt": "x", "max_tokens": 4000})
        assert answer.status_code == 504
        row = thread.call(lambda: thread.journal.to_pandas("requests")).iloc[-1]
        assert row.outcome == Outcome.timed_out


@pytest.mark.parametrize("module", ["live.door.app", "live.serve", "live.bench", "live.main"])
def test_a_door_without_a_device_loads_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
