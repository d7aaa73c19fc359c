"""Each of the 21 other keys changes what the router does."""

from typing import Any

from dispatch.fleet import DeviceInfo
from dispatch.graph import TopologyGraph
from dispatch.legacy import LegacyConfig, LegacyRouter, Translated
from dispatch.legacy.policy import legacy_policy
from dispatch.outcomes import Reason
from dispatch.request import Request


def router(groups: list[str] | None = None, **settings: Any) -> LegacyRouter:
    return LegacyRouter(LegacyConfig.from_settings(settings), groups)


def by_model(hint: str, **settings: Any) -> Translated:
    return router(**settings).translate({"x-model-hint": hint})


def by_precision(precision: str, **settings: Any) -> Translated:
    return router(**settings).translate({"x-precision-preference": precision})


def test_model_groups_sends_a_model_hint_to_the_first_group_that_matches() -> None:
    table = "llama-2-7b=small,llama-*=large"
    assert by_model("llama-2-7b", model_groups=table).group == "small"
    assert by_model("llama-2-70b", model_groups=table).group == "large"
    assert by_model("mistral", model_groups=table).group == ""


def test_model_aliases_rename_the_hint_before_the_table_is_read() -> None:
    settings = {"model_groups": "llama-*=large", "model_aliases": "default=llama-2-13b"}
    assert by_model("default", **settings).group == "large"
    assert by_model("default", **settings).model == "llama-2-13b"


def test_fp16_group_takes_fp16_requests() -> None:
    assert by_precision("fp16", fp16_group="g").group == "g"
    assert by_precision("fp16").group == ""


def test_bf16_group_takes_bf16_requests() -> None:
    assert by_precision("BF16", bf16_group="g").group == "g"


def test_fp8_group_takes_fp8_requests() -> None:
    assert by_precision("fp8", fp8_group="g").group == "g"


def test_int4_group_takes_int4_requests() -> None:
    assert by_precision("int4", int4_group="g").group == "g"


def test_default_group_takes_what_no_rule_claims() -> None:
    assert by_precision("", default_group="rest").group == "rest"
    assert by_precision("bf16", default_group="rest").group == "a100-80g"


def test_default_precision_stands_in_for_a_missing_header() -> None:
    assert by_precision("", default_precision="bf16").group == "a100-80g"
    assert by_precision("", default_precision="").precision == ""


def test_long_prompt_tokens_is_where_a_prompt_counts_as_long() -> None:
    settings = {"long_prompt_tokens": 1000, "long_prompt_group": "big"}
    assert router(**settings).translate({}, prompt_tokens=999).group == ""
    assert router(**settings).translate({}, prompt_tokens=1000).group == "big"


def test_long_prompt_group_is_where_long_prompts_go() -> None:
    settings = {"long_prompt_tokens": 10, "long_prompt_group": "elsewhere"}
    assert router(**settings).translate({}, prompt_tokens=10).group == "elsewhere"


def test_missing_group_says_what_becomes_of_a_rule_without_devices() -> None:
    headers = {"x-precision-preference": "bf16"}
    assert router(["default"], missing_group="any").translate(headers).group == ""
    refused = router(["default"], missing_group="reject").translate(headers)
    assert refused.reject == Reason.no_device


def test_timeout_s_is_the_time_out_of_an_attempt() -> None:
    assert router(timeout_s=7).translate({}).timeout_s == 7


def test_timeout_per_token_ms_gives_longer_answers_more_time() -> None:
    settings = {"timeout_s": 7, "timeout_per_token_ms": 10}
    assert router(**settings).translate({}, max_tokens=100).timeout_s == 8
    assert router(**settings).translate({}, max_tokens=200).timeout_s == 9


def test_retries_bounds_the_further_attempts() -> None:
    once = router(retries=1).translate({})
    assert once.may_retry("fault", 0, body_sent=False)
    assert not once.may_retry("fault", 1, body_sent=False)
    assert not router(retries=0).translate({}).may_retry("fault", 0, body_sent=False)


def test_retry_on_names_the_failures_that_may_be_retried() -> None:
    only_oom = router(retries=1, retry_on="oom").translate({})
    assert only_oom.may_retry("oom", 0, body_sent=False)
    assert not only_oom.may_retry("fault", 0, body_sent=False)


def test_retry_non_idempotent_lets_a_sent_generation_be_retried() -> None:
    assert router(retries=1, retry_non_idempotent=True).translate({}).may_retry("fault", 0, True)
    assert not router(retries=1).translate({}).may_retry("fault", 0, True)


def test_kv_mb_per_token_sets_how_much_the_router_books_for_a_request() -> None:
    settings = {"default_group": "a100-40g", "probe_free_memory_gb": 10}
    light = router(**settings, kv_mb_per_token=0.1).translate({}, prompt_tokens=50_000)
    heavy = router(**settings, kv_mb_per_token=0.8).translate({}, prompt_tokens=50_000)
    assert (light.group, heavy.group) == ("a100-40g", "a100-80g")


def test_shed_queue_depth_is_where_the_router_answers_503() -> None:
    assert router(shed_queue_depth=4, probe_queue_depth=4).translate({}).reject
    assert router(shed_queue_depth=5, probe_queue_depth=4).translate({}).reject is None
    assert router(shed_queue_depth=0, probe_queue_depth=4).translate({}).reject is None


def fleet(*weights: float, gpu: str = "a100-sxm4-40g") -> list[DeviceInfo]:
    return [
        DeviceInfo(name, "p", gpu, weight=w) for name, w in zip("abcdefgh", weights, strict=False)
    ]


def picks(
    count: int, *, fail: tuple[int, ...] = (), step_s: float = 1.0, weights: int = 3, **keys: Any
) -> str:
    """Pick *count* times, a pick every *step_s*; the picks numbered in *fail* fail at once."""
    devices = fleet(*[1.0] * weights)
    graph = TopologyGraph(devices)
    policy: Any = legacy_policy(router(**keys), devices)
    seen = ""
    for at in range(count):
        request = Request(at, 0.0, 10, 10)
        device = policy.choose(request, graph, at * step_s).device
        seen += "abcdefgh"[device]
        if at in fail:
            policy.on_failure(request, device, at * step_s, fault=True)
        else:
            policy.on_finish(request, device, at * step_s)
    return seen


def test_max_fails_is_how_many_failures_take_a_device_out() -> None:
    assert picks(6, fail=(0,), max_fails=1) == "abcbcb"
    assert picks(6, fail=(0,), max_fails=2).count("a") == 2
    assert picks(6, fail=(0,), max_fails=0) == "abcabc"


def test_fail_timeout_s_is_how_long_a_device_stays_out() -> None:
    short = picks(12, fail=(0,), fail_timeout_s=2)
    long = picks(12, fail=(0,), fail_timeout_s=60)
    assert "a" in short[3:]
    assert "a" not in long[1:]


def test_worker_processes_sets_how_many_round_robins_run_side_by_side() -> None:
    assert picks(6, worker_processes=1) == "abcabc"
    assert picks(6, worker_processes=3) == "aaabbb"
