"""The legacy path for real: worker processes, JSON-RPC, gRPC, header rules, status map, retries."""

import asyncio
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from live_help import LegacyThread, door, http, until

from dispatch.legacy import LegacyConfig, LegacyRouter
from dispatch.outcomes import Outcome, RootCause
from live.legacy import generate
from live.legacy.envelope import envelope, job_of
from live.sequence import Job

DEVICES = [
    {"name": "small", "group": "a100-40g", "kv_mib": 0.5, "weight": 2},
    {"name": "large", "group": "a100-80g", "kv_mib": 8},
]


@pytest.fixture(scope="module")
def served() -> Iterator[LegacyThread]:
    engine = {"kv": "contiguous", "admission": "optimistic"}
    settings = {"long_prompt_tokens": 1000, "retries": 0}
    with LegacyThread(devices=DEVICES, engine=engine, settings=settings) as thread:
        yield thread


def post(
    served: LegacyThread, headers: dict[str, str] | None = None, **body: Any
) -> httpx.Response:
    content = {"model": "tiny", "prompt": "hello", "max_tokens": 3, **body}
    return http.post(f"{served.url}/v1/completions", json=content, headers=headers, timeout=60)


def rows(served: LegacyThread) -> Any:
    return served.call(lambda: served.journal.to_pandas("requests"))


def test_the_generated_grpc_code_is_what_the_proto_says(tmp_path: Path) -> None:
    def unversioned(path: Path) -> str:
        """The code without the generator's own version, which every release of it moves."""
        return re.sub(r"\d+\.\d+\.\d+|^    \d+,$", "version", path.read_text(), flags=re.MULTILINE)

    generate.generate(tmp_path)
    for name in ("worker_pb2.py", "worker_pb2.pyi", "worker_pb2_grpc.py"):
        made = unversioned(tmp_path / "live" / "legacy" / name)
        assert made == unversioned(generate.HERE / name), f"run python -m {generate.__name__}"


def test_a_json_rpc_envelope_comes_back_as_the_same_job() -> None:
    job = Job(3, [1, 2], 5, output_tokens=4, kernel_hint="memory_efficient")
    assert job_of(envelope(job)) == job


@pytest.mark.parametrize("text", ["{", "{}", '{"jsonrpc": "1.0", "method": "generate"}', "[]"])
def test_a_bad_envelope_is_refused(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        job_of(text)


def test_the_answer_is_the_same_as_through_the_direct_door(served: LegacyThread) -> None:
    with door() as direct:
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 12}
        there = http.post(f"{direct.url}/v1/completions", json=body).json()
    here = post(served, max_tokens=12).json()
    assert here["choices"] == there["choices"]
    assert here["usage"]["kernel_dispatch_time_ms"] > 0
    assert here["usage"]["memory_fragmentation_score"] is not None


def test_the_legacy_door_tells_its_workers_gauges_too(served: LegacyThread) -> None:
    page = http.get(f"{served.url}/metrics").text
    for device in ("small", "large"):
        assert f'zerolayer_device_up{{device="{device}"}} 1.0' in page
        assert f'zerolayer_kv_cache_usage_perc{{device="{device}"}}' in page


def test_static_weights_share_the_requests(served: LegacyThread) -> None:
    before = len(rows(served))
    for _ in range(6):
        assert post(served).status_code == 200
    assert sorted(rows(served).device[before:]) == [0, 0, 0, 0, 1, 1]


def test_live_picks_of_a_group_are_those_of_the_shared_rules(served: LegacyThread) -> None:
    router = LegacyRouter(
        LegacyConfig.from_settings({"long_prompt_tokens": 1000}), {"a100-40g", "a100-80g"}
    )
    groups = [str(device["group"]) for device in DEVICES]
    cases: list[tuple[dict[str, str], str]] = [
        ({"x-precision-preference": "bf16"}, "hi"),
        ({"x-precision-preference": "FP8"}, "hi"),
        ({}, "x" * 1500),
        ({"x-model-hint": "anything"}, "x" * 1500),
    ]
    for headers, prompt in cases:
        wanted = router.translate(headers, prompt_tokens=len(prompt), max_tokens=3).group
        assert post(served, headers, prompt=prompt).status_code == 200
        assert groups[rows(served).device.iloc[-1]] == wanted == "a100-80g"


def test_blind_weights_send_a_large_request_to_its_death_while_another_card_is_free(
    served: LegacyThread,
) -> None:
    statuses = [post(served, prompt="x" * 900, max_tokens=400).status_code for _ in range(3)]
    assert sorted(statuses) == [200, 200, 503]  # one failure puts the card out for a while
    dead = rows(served)
    dead = dead[dead.outcome == Outcome.oom]
    assert set(dead.root_cause) == {RootCause.memory_misjudged}
    assert set(dead.device) == {0}
    assert set(dead.fitting_device) == {1}


def test_a_stream_is_relayed_and_a_client_that_leaves_frees_the_worker(
    served: LegacyThread,
) -> None:
    body = {"model": "tiny", "prompt": "x", "max_tokens": 900, "stream": True}
    with http.stream("POST", f"{served.url}/v1/completions", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines).removeprefix("data: "))["choices"]

    async def freed() -> bool:
        for _ in range(400):
            await asyncio.gather(*(w.describe() for w in served.running.workers.items))
            views = [w.snapshot for w in served.running.workers.items]
            if not served.running.backend.in_flight and all(v.used_bytes == 0 for v in views):
                return True
            await asyncio.sleep(0.02)
        return False

    assert served.wait(freed())


def test_a_worker_killed_in_mid_stream_ends_that_stream_and_the_rest_goes_on() -> None:
    devices = [{"name": "a"}, {"name": "b"}]
    settings = {"retries": 1, "fail_timeout_s": 60}
    with LegacyThread(devices=devices, settings=settings) as thread:
        body = {"model": "tiny", "prompt": "x", "max_tokens": 4000, "stream": True}
        with http.stream("POST", f"{thread.url}/v1/completions", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            thread.running.workers.items[0].process.kill()
            rest = [line for line in lines if line]
        error = json.loads(rest[-1].removeprefix("data: "))["error"]
        assert error["code"] == "device_failed"
        for _ in range(4):  # the dead worker is retried past, then put out
            assert post(thread).status_code == 200
        frame = rows(thread)
        assert list(frame.outcome) == [Outcome.failed] + [Outcome.finished] * 4
        assert thread.running.backend.in_flight == 0


def test_a_deadline_that_passes_is_a_504(served: LegacyThread) -> None:
    settings = {"timeout_s": 0.2}
    with LegacyThread(devices=[{"name": "a"}], settings=settings) as thread:
        answer = post(thread, max_tokens=4000)
        assert answer.status_code == 504
        assert set(rows(thread).outcome) == {Outcome.timed_out}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_a_wholly_silent_worker_is_noticed_and_its_slot_freed(
    stream: bool,
) -> None:
    with LegacyThread(devices=[{"name": "a"}]) as thread:
        backend = thread.running.backend
        (worker,) = thread.running.workers.items
        body = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 4, "stream": stream})
        host, port = thread.url.removeprefix("http://").split(":")
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}"
        os.kill(worker.process.pid, signal.SIGSTOP)
        try:
            with socket.create_connection((host, int(port))) as client:
                client.sendall(f"{head}\r\n\r\n{body}".encode())
                until(lambda: backend.in_flight == 1, "the request did not arrive")
            until(lambda: backend.in_flight == 0, "nobody noticed that the client left")
        finally:
            os.kill(worker.process.pid, signal.SIGCONT)
        assert thread.call(backend.graph.n.tolist) == [0]
        assert list(rows(thread).outcome) == [Outcome.cancelled]
        assert post(thread).status_code == 200


@pytest.mark.parametrize("path", ["direct", "legacy"])
def test_bodies_of_any_size_come_through_intact_at_any_concurrency(path: str) -> None:
    devices = [{"name": "a"}, {"name": "b"}]
    served = door(devices=devices) if path == "direct" else LegacyThread(devices=devices)
    with served as thread:
        for clients in (1, 6):
            prompts = [chr(97 + at) * size for size in (1, 300, 3000) for at in range(clients)]

            def ask(prompt: str, url: str = thread.url) -> Any:
                body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "echo": True}
                return http.post(f"{url}/v1/completions", json=body).json()

            with ThreadPoolExecutor(clients) as pool:
                answers = list(pool.map(ask, prompts))
            for prompt, answer in zip(prompts, answers, strict=True):
                assert answer["choices"][0]["text"].startswith(prompt)
                assert answer["usage"]["prompt_tokens"] == len(prompt)
