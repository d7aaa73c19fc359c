"""A few rows of every format, written for these tests: three requests, the same in each.

At 0, 0.25 and 3.1 s: prompts of 700, 1,500 and 60 tokens, answers of 40, 9 and 200.
"""

import json
from typing import Any


def lines(*records: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


_TIMES = (0.0, 0.25, 3.1)
_SIZES = ((700, 40), (1500, 9), (60, 200))
_DAY = "2030-05-06T10:00:0"
_EPOCH_S = 1904378400  # 2030-05-07T10:00:00Z
_ROWS = tuple((t, *size) for t, size in zip(_TIMES, _SIZES, strict=True))
_CLOCK = ("0.000", "0.250", "3.100")


def _otlp(attributes: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": k, "value": {"intValue": str(v)} if isinstance(v, int) else {"stringValue": v}}
        for k, v in attributes.items()
    ]


def _span(number: int, start_s: float, took_s: float, attributes: dict[str, Any]) -> dict[str, Any]:
    start = _EPOCH_S * 10**9 + round(start_s * 1e9)
    return {
        "name": "chat m", "traceId": f"t{number}", "spanId": f"s{number}",
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + round(took_s * 1e9)),
        "attributes": attributes,
    }  # fmt: skip


def _envoy(number: int, second: str, prompt: int, output: int) -> dict[str, Any]:
    return {
        "start_time": f"2030-05-06T10:00:0{second}Z", "method": "POST", "response_code": "200",
        "response_flags": "-", "duration": "1500", "bytes_received": str(prompt * 4),
        "bytes_sent": str(output * 140), "x-request-id": f"e{number}",
        "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": str(prompt),
        "gen_ai.usage.output_tokens": str(output), "session.id": "-",
    }  # fmt: skip


def _litellm(number: int, second: str, prompt: int, output: int) -> dict[str, Any]:
    return {
        "request_id": f"l{number}", "call_type": "acompletion", "startTime": f"{_DAY}{second}",
        "completionStartTime": None, "endTime": f"{_DAY}9.000", "model": "m",
        "prompt_tokens": prompt, "completion_tokens": output, "cache_hit": "False",
        "session_id": f"u{number}", "status": "success",
    }  # fmt: skip


def _sglang(number: int, at_s: float, prompt: int, output: int) -> tuple[dict[str, Any], ...]:
    """Return the two events of one request; each takes 5 s."""
    clock = "2030-05-06T10:00:{:0>9.6f}"
    limit = {"sampling_params": {"max_new_tokens": 512}}
    meta = {"prompt_tokens": prompt, "completion_tokens": output, "e2e_latency": 5.0,
            "finish_reason": {"type": "stop"}}  # fmt: skip
    return (
        {"timestamp": clock.format(at_s), "event": "request.received", "rid": f"r{number}",
         "obj": limit},
        {"timestamp": clock.format(at_s + 5), "event": "request.finished", "rid": f"r{number}",
         "obj": limit, "out": {"meta_info": meta}},
    )  # fmt: skip


_EVENTS = [event for i, row in enumerate(_ROWS) for event in _sglang(i, *row)]
_USAGE = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
_OLD_USAGE = ("gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens")


def _spans(names: tuple[str, str], listed: bool = False) -> list[dict[str, Any]]:
    spans = []
    for i, (at, prompt, output) in enumerate(_ROWS):
        has = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m",
               names[0]: prompt, names[1]: output}  # fmt: skip
        spans.append(_span(i, at, 2.0, _otlp(has) if listed else has))  # type: ignore[arg-type]
    return spans


def _csv(head: str, *rows: str) -> bytes:
    return "\n".join((head, *rows, "")).encode()


SAMPLES: dict[str, bytes] = {
    "azure": _csv(
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        *(f"2030-05-06 10:00:0{s}0000,{p},{o}"
          for s, (_, p, o) in zip(_CLOCK, _ROWS, strict=True)),
    ),
    "azure-2024": _csv(
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        *(f"2030-05-06 10:00:0{s}000+00:00,{p},{o}"
          for s, (_, p, o) in zip(_CLOCK, _ROWS, strict=True)),
    ),
    "burstgpt": _csv(
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type",
        *(f"{t},,1,ChatGPT,{p},{o},{p + o},API log" for t, p, o in _ROWS),
    ),
    "burstgpt-6": _csv(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        *(f"{t},GPT-4,{p},{o},{p + o},API log" for t, p, o in _ROWS),
    ),
    "vidur": _csv(
        "arrived_at,num_prefill_tokens,num_decode_tokens", *(f"{t},{p},{o}" for t, p, o in _ROWS)
    ),
    "splitwise-sim": _csv(
        "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size",
        *(f"{i},2,0,{t},1,{p},{o}" for i, (t, p, o) in enumerate(_ROWS)),
    ),
    "lmbench": _csv(
        "prompt_tokens,generation_tokens,ttft,generation_time,launch_time,finish_time",
        *(f"{p},{o},0.2,1.0,{_EPOCH_S + t},{_EPOCH_S + t + 2}" for t, p, o in _ROWS),
    ),
    "mooncake": lines(
        *({"timestamp": round(t * 1000), "input_length": p, "output_length": o,
           "hash_ids": list(range(-(-p // 512)))} for t, p, o in _ROWS)
    ),
    "guidellm": lines(
        *({"timestamp": t, "input_length": p, "output_length": o} for t, p, o in _ROWS)
    ),
    "bailian": lines(
        *({"chat_id": i, "parent_chat_id": -1, "timestamp": t, "input_length": p,
           "output_length": o, "type": "text", "turn": 1,
           "hash_ids": [100 * i + k for k in range(-(-p // 16))]}
          for i, (t, p, o) in enumerate(_ROWS))
    ),
    "ragpulse": lines(
        *({"timestamp": str(t), "input_length": p, "output_length": o, "session_id": f"s{t}",
           "hash_ids": {"sys_prompt": [1, 2], "passages_ids": [9], "history": [],
                        "web_search": [], "user_input": [i]}}
          for i, (t, p, o) in enumerate(_ROWS))
    ),
    "aiperf": lines(
        *({"session_id": f"a{i}", "timestamp": round(t * 1000), "input_length": p,
           "output_length": o} for i, (t, p, o) in enumerate(_ROWS))
    ),
    "llmservingsim": lines(
        *({"input_toks": p, "output_toks": o, "arrival_time_ns": round(t * 1e9)}
          for t, p, o in _ROWS)
    ),
    "llmservingsim-run": lines(
        *({"request_id": f"b{i}", "input_toks": p, "output_toks": o,
           "arrival_time": _EPOCH_S + t, "queued_ts": 50.0, "first_token_ts": 50.5,
           "last_token_ts": 51.0} for i, (t, p, o) in enumerate(_ROWS))
    ),
    "envoy": lines(*(_envoy(i, s, p, o) for i, (s, (_, p, o)) in
                     enumerate(zip(_CLOCK, _ROWS, strict=True)))),
    "litellm": lines(*(_litellm(i, s, p, o) for i, (s, (_, p, o)) in
                       enumerate(zip(_CLOCK, _ROWS, strict=True)))),
    "sglang-log": lines(*sorted(_EVENTS, key=lambda event: str(event["timestamp"]))),
    "otel": lines(*_spans(_USAGE)),
    "otel-old": lines(*_spans(_OLD_USAGE)),
    "otel-otlp": lines(
        {"resourceSpans": [{"scopeSpans": [{"spans": _spans(_USAGE, listed=True)}]}]}
    ),
    "nginx": lines(
        *({"msec": f"{_EPOCH_S + t + 2:.3f}", "request_time": "2.000", "status": "200",
           "request_method": "POST", "request_length": str(p * 5), "bytes_sent": str(o * 130),
           "upstream_header_time": "0.200", "upstream_response_time": "2.000",
           "upstream_status": "200", "request_id": f"n{i}"} for i, (t, p, o) in enumerate(_ROWS))
    ),
    "vllm-log": "".join(
        f"INFO 05-06 10:00:0{int(t)} [logger.py:41] Received request cmpl-{i}: params: "
        f"SamplingParams(n=1, max_tokens={o}), prompt_token_ids: {list(range(p))}, lora_request: "
        "None.\n" for i, (t, p, o) in enumerate(_ROWS)
    ).encode(),
    "vllm-bench": lines(
        {"date": "x", "model_id": "m", "request_rate": 2.0, "burstiness": 1.0, "completed": 3,
         "failed": 0, "total_input_tokens": 2260, "total_output_tokens": 249,
         "input_lens": [p for _, p, _ in _ROWS], "output_lens": [o for *_, o in _ROWS],
         "ttfts": [0.1, 0.1, 0.1], "errors": ["", "", ""]}
    ),
    "weka": lines(
        {"id": "w", "requests": [{"t": t, "in": p, "out": o, "hash_ids": [1, 2][: p // 64]}
                                 for t, p, o in _ROWS]}
    ),
    "columns": _csv(
        "arrival_s,input_tokens,output_tokens", *(f"{t},{p},{o}" for t, p, o in _ROWS)
    ),
    "lengths": _csv("num_prefill_tokens,num_decode_tokens", *(f"{p},{o}" for _, p, o in _ROWS)),
}  # fmt: skip
