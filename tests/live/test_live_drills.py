"""Drills: something goes wrong under load; nothing hangs or leaks, and the rest is unharmed."""

import contextlib
import gc
import json
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from live_help import DoorThread, door, http, until

from dispatch.outcomes import Outcome
from dispatch.request import Request
from live import journals
from live.config import LiveConfig
from live.door.openapi import describe
from live.process import DoorProcess
from live.sequence import Job

TWO = [{"name": "a"}, {"name": "b"}]


def body(**change: Any) -> dict[str, Any]:
    return {"model": "tiny", "prompt": "hello", "max_tokens": 8, **change}


def post(url: str, **change: Any) -> httpx.Response:
    return http.post(f"{url}/v1/completions", json=body(**change), timeout=60)


def settled(thread: DoorThread) -> None:
    """Nothing is in flight, nothing is held in memory, and the books balance."""
    placer = thread.running.placer
    until(lambda: not placer.in_flight, "requests are left over")
    until(
        lambda: all(d.snapshot().used_bytes == 0 for d in placer.devices if d.up),
        "KV memory is left over",
    )
    thread.call(placer.dispatcher.check_books)
    assert thread.call(lambda: placer.graph.n.tolist()) == [0] * len(placer.devices)


def test_a_lost_device_fails_its_requests_and_the_other_goes_on() -> None:
    with door(devices=TWO, policy={"name": "round_robin"}) as thread:
        with ThreadPoolExecutor(6) as pool:
            running = [pool.submit(post, thread.url, max_tokens=600) for _ in range(6)]
            until(lambda: thread.running.placer.in_flight == 6, "not all came in")
            thread.running.placer.devices[0].lose("fell off the bus")
            statuses = sorted(one.result().status_code for one in running)
        assert statuses == [200, 200, 200, 503, 503, 503]
        assert [post(thread.url).status_code for _ in range(4)] == [200] * 4
        health = http.get(f"{thread.url}/healthz").json()
        assert [d["up"] for d in health["devices"]] == [False, True]
        settled(thread)


def test_a_fault_before_the_first_token_is_retried_elsewhere_where_that_is_set() -> None:
    wait = {"retries": 1, "retry_on": ["fault"]}
    with door(devices=TWO, policy={"name": "round_robin"}, wait=wait) as thread:
        thread.running.placer.devices[0].engine.cache.pages = None  # its first pass dies
        assert [post(thread.url).status_code for _ in range(2)] == [200, 200]
        frame = thread.call(lambda: thread.journal.to_pandas("requests"))
        assert list(frame.attempts) == [2, 1]
        assert set(frame.device) == {1}
        settled(thread)


def test_a_device_lost_between_the_choice_and_the_hand_over_is_a_fault_like_any() -> None:
    wait = {"retries": 1, "retry_on": ["fault"]}
    with door(devices=TWO, policy={"name": "round_robin"}, wait=wait) as thread:
        placer = thread.running.placer

        def lose_and_open() -> Any:  # in one turn of the loop: no sample can come in between
            placer.devices[0].lose("gone, but nobody has noticed")
            request = Request(1, placer.now_s(), prompt_tokens=3, max_tokens=4, model="tiny")
            return placer.open(request, Job(1, [1, 2, 3], 4), {}, time.monotonic())

        flow = thread.call(lose_and_open)
        until(lambda: bool(flow.ended), "the flow never ends")
        settled(thread)
        frame = thread.call(lambda: thread.journal.to_pandas("requests"))
        assert (list(frame.attempts), list(frame.device)) == ([2], [1])
        assert list(frame.outcome) == [Outcome.finished]


def test_when_every_device_is_lost_the_answer_is_503_at_once() -> None:
    with door() as thread:
        thread.running.placer.devices[0].lose()
        until(lambda: not thread.running.placer.graph.up[0], "nobody noticed the loss")
        answer = post(thread.url)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_device")
        assert http.get(f"{thread.url}/healthz").status_code == 503


def test_frozen_telemetry_does_not_stop_placement_nor_herd() -> None:
    with door(devices=TWO) as thread:
        post(thread.url)
        for device in thread.running.placer.devices:
            device.freeze_telemetry(True)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: post(thread.url, max_tokens=200), range(8)))
        assert [a.status_code for a in answers] == [200] * 8
        frame = thread.call(lambda: thread.journal.to_pandas("requests"))
        counts = frame.device.value_counts()
        assert counts.min() >= 2  # reservations on top of the frozen sample spread the load
        for device in thread.running.placer.devices:
            device.freeze_telemetry(False)
        settled(thread)


def test_a_slow_reader_is_dropped_and_the_rest_is_served() -> None:
    limits = {"stream_buffer": 64, "send_buffer_bytes": 4096}
    wait = {"deadline_s": 3600}  # what ends the request is the reader alone
    with door(limits=limits, wait=wait, engine={"max_num_seqs": 8}) as thread:
        host, port = thread.url.removeprefix("http://").split(":")
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.connect((host, int(port)))
        data = json.dumps(body(max_tokens=4000, stream=True, n=4, echo=True)).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        raw.sendall(head.encode() + data)  # and never reads
        until(lambda: thread.running.placer.in_flight == 4, "the request never came in")
        assert post(thread.url).status_code == 200
        until(lambda: thread.running.placer.in_flight == 0, "a slow reader is never dropped", 300)
        raw.close()
        settled(thread)
        outcomes = thread.running.placer.recorder.outcomes
        assert (outcomes[Outcome.cancelled], outcomes[Outcome.finished]) == (4, 1)


def test_out_of_memory_under_load_kills_only_whom_it_hits() -> None:
    engine = {"kv": "contiguous", "admission": "optimistic"}
    devices = [{"name": n, "kv_mib": 0.5} for n in "ab"]
    with door(devices=devices, engine=engine, policy={"name": "round_robin"}) as thread:
        with ThreadPoolExecutor(12) as pool:
            statuses = list(
                pool.map(lambda i: post(thread.url, max_tokens=50 + 40 * i).status_code, range(12))
            )
        assert set(statuses) == {200, 503}
        frame = thread.call(lambda: thread.journal.to_pandas("requests"))
        finished = frame[frame.outcome == Outcome.finished]
        assert (finished.output_tokens == finished.max_tokens).all()
        assert len(frame) == 12
        settled(thread)


def test_sigterm_lets_what_runs_finish_and_takes_nothing_new(tmp_path: Path) -> None:
    config = LiveConfig.model_validate({"limits": {"drain_s": 60}})
    with DoorProcess(config, journal=tmp_path) as process:
        answers: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: answers.append(post(process.url, max_tokens=1500)))
        thread.start()
        until(
            lambda: (
                'num_requests_running{device="cpu0"} 1.0' in http.get(f"{process.url}/metrics").text
            ),
            "the request never ran",
        )
        process.process.send_signal(signal.SIGTERM)
        thread.join(60)
        assert process.process.wait(60) == 0
    assert [a.status_code for a in answers] == [200]
    assert answers[0].json()["usage"]["completion_tokens"] == 1500
    rows = journals.load(tmp_path)["requests"]
    assert list(rows.outcome) == [Outcome.finished]


@pytest.fixture(scope="module")
def served() -> Iterator[DoorThread]:
    with door(limits={"max_body_bytes": 20_000, "default_max_tokens": 2}) as thread:
        yield thread


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Values that a JSON schema of the door's description allows, and some that it does not."""
    wrong = st.one_of(
        st.none(), st.booleans(), st.integers(-5, 1 << 70), st.text(max_size=5), st.floats(),
        st.lists(st.integers(-1, 400), max_size=3), st.dictionaries(st.text(max_size=3), st.none()),
    )  # fmt: skip
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    good: list[st.SearchStrategy[Any]] = [values(part) for part in schema.get("anyOf", [])]
    if "enum" in schema:
        good.append(st.sampled_from(schema["enum"]))
    if "integer" in kinds:
        good.append(st.integers(schema.get("minimum", 0), min(schema.get("maximum", 9), 9)))
    if "string" in kinds and "enum" not in schema:
        good.append(st.text(min_size=schema.get("minLength", 0), max_size=8))
    if "boolean" in kinds:
        good.append(st.booleans())
    if "array" in kinds:
        good.append(st.lists(values(schema.get("items", {})), max_size=3))
    return st.one_of(*good, wrong) if good else wrong


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_a_body_says_the_door_answers_as_described(
    served: DoorThread, data: st.DataObject
) -> None:
    description = served.call(lambda: describe("tiny", served.running.placer.config.limits))
    operation = description["paths"]["/v1/completions"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    fields = schema["properties"]
    chosen = data.draw(st.sets(st.sampled_from(sorted(fields))))
    given_body = {name: data.draw(values(fields[name]), label=name) for name in sorted(chosen)}
    content = json.dumps({"model": "tiny", "prompt": "x", **given_body})
    answer = http.post(f"{served.url}/v1/completions", content=content.encode(), timeout=60)
    assert str(answer.status_code) in operation["responses"]
    assert answer.status_code < 500
    if answer.status_code != 200:
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@settings(max_examples=40)
@given(raw=st.binary(max_size=300))
def test_random_bytes_are_a_400_and_leave_the_door_alone(served: DoorThread, raw: bytes) -> None:
    answer = http.post(f"{served.url}/v1/completions", content=raw, timeout=60)
    assert answer.status_code in (400, 404)
    assert post(served.url).status_code == 200
    settled(served)


def test_streams_that_ended_leave_nothing_behind() -> None:
    body = {"model": "tiny", "prompt": "x", "max_tokens": 500, "stream": True}

    def kept() -> Counter[str]:
        gc.collect()
        kinds = [type(one) for one in gc.get_objects()]
        ours = ("live.", "dispatch.")
        return Counter(k.__name__ for k in kinds if str(k.__module__).startswith(ours))

    with door() as thread:

        def leave_streams(count: int) -> None:
            for _ in range(count):
                with http.stream("POST", f"{thread.url}/v1/completions", json=body) as answer:
                    next(answer.iter_lines())
            until(lambda: thread.running.placer.in_flight == 0, "a stream goes on")

        leave_streams(10)
        before = kept()
        leave_streams(30)

        def grown() -> dict[str, int]:
            return {name: n - before[name] for name, n in kept().items() if n >= before[name] + 10}

        # The engine is done with a stream a moment before the server's coroutines are.
        with contextlib.suppress(AssertionError):
            until(lambda: not grown(), "objects stay", seconds=20)
        assert grown() == {}
