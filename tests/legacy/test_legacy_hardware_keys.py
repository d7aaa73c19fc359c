"""Each of the 19 keys that name a GPU model changes what the router does."""

from typing import Any

from dispatch.legacy import LegacyConfig, LegacyRouter, Translated
from dispatch.outcomes import Reason


def router(**settings: Any) -> LegacyRouter:
    return LegacyRouter(LegacyConfig.from_settings(settings))


def translated(
    settings: dict[str, Any], precision: str = "", prompt: int = 100, output: int = 100
) -> Translated:
    headers = {"x-precision-preference": precision} if precision else {}
    return router(**settings).translate(headers, prompt_tokens=prompt, max_tokens=output)


def weight(gpu: str, **settings: Any) -> float:
    return router(**settings).peers([("a", gpu, "g", 4.0)])[0].weight


def max_conns(gpu: str, **settings: Any) -> int:
    return router(**settings).peers([("a", gpu, "g", 4.0)])[0].max_conns


def test_v100_group_names_the_group_whose_long_prompts_climb() -> None:
    assert translated({"default_group": "old", "v100_group": "old"}, prompt=3000).group != "old"
    assert translated({"default_group": "old", "v100_group": "v100"}, prompt=3000).group == "old"


def test_a100_40g_group_names_the_group_that_long_v100_prompts_climb_to() -> None:
    settings = {"default_group": "v100", "a100_40g_group": "middle"}
    assert translated(settings, prompt=3000).group == "middle"


def test_a100_80g_group_names_the_top_of_the_ladder() -> None:
    settings = {"default_group": "a100-40g", "a100_80g_group": "top", "kv_mb_per_token": 1e6}
    assert translated(settings).group == "top"


def test_v100_weight_factor_scales_the_static_weight_of_v100s() -> None:
    assert weight("v100-sxm2-16g", v100_weight_factor=0.5) == 2.0
    assert weight("a100-sxm4-40g", v100_weight_factor=0.5) == 4.0


def test_a100_40g_weight_factor_scales_the_static_weight_of_40g_cards() -> None:
    assert weight("a100-sxm4-40g", a100_40g_weight_factor=0.25) == 1.0
    assert weight("a100-sxm4-80g", a100_40g_weight_factor=0.25) == 4.0


def test_a100_80g_weight_factor_scales_the_static_weight_of_80g_cards() -> None:
    assert weight("a100-sxm4-80g", a100_80g_weight_factor=2) == 8.0
    assert weight("h100-sxm5-80g", a100_80g_weight_factor=2) == 4.0


def test_v100_max_conns_limits_what_is_in_flight_on_a_v100() -> None:
    assert max_conns("v100-sxm2-16g", v100_max_conns=3) == 3
    assert max_conns("a100-sxm4-40g", v100_max_conns=3) == 0


def test_a100_40g_max_conns_limits_what_is_in_flight_on_a_40g_card() -> None:
    assert max_conns("a100-sxm4-40g", a100_40g_max_conns=5) == 5
    assert max_conns("a100-sxm4-80g", a100_40g_max_conns=5) == 0


def test_a100_80g_max_conns_limits_what_is_in_flight_on_an_80g_card() -> None:
    assert max_conns("a100-sxm4-80g", a100_80g_max_conns=7) == 7
    assert max_conns("v100-sxm2-16g", a100_80g_max_conns=7) == 0


def test_v100_max_prompt_tokens_sends_longer_prompts_up_the_ladder() -> None:
    settings = {"default_group": "v100", "v100_max_prompt_tokens": 100}
    assert translated(settings, prompt=100).group == "v100"
    assert translated(settings, prompt=101).group == "a100-40g"


def test_a100_40g_max_prompt_tokens_sends_longer_prompts_to_80g_cards() -> None:
    settings = {"default_group": "a100-40g", "a100_40g_max_prompt_tokens": 100}
    assert translated(settings, prompt=100).group == "a100-40g"
    assert translated(settings, prompt=101).group == "a100-80g"


def test_a100_80g_max_prompt_tokens_rejects_longer_prompts() -> None:
    settings = {"default_group": "a100-80g", "a100_80g_max_prompt_tokens": 100}
    assert translated(settings, prompt=100).reject is None
    assert translated(settings, prompt=101).reject == Reason.too_large


def test_v100_bf16_as_converts_refuses_or_passes_on_bf16() -> None:
    settings = {"bf16_group": "v100"}
    assert translated({**settings, "v100_bf16_as": "fp16"}, "bf16").precision == "fp16"
    assert translated({**settings, "v100_bf16_as": "next"}, "bf16").group == "a100-40g"
    assert translated({**settings, "v100_bf16_as": "reject"}, "bf16").reject == Reason.no_device


def test_a100_fp8_as_converts_or_refuses_fp8() -> None:
    assert translated({"a100_fp8_as": "bf16"}, "fp8").precision == "bf16"
    assert translated({"a100_fp8_as": "fp16"}, "fp8").precision == "fp16"
    assert translated({"a100_fp8_as": "reject"}, "fp8").reject == Reason.no_device


def test_v100_int4_as_converts_refuses_or_passes_on_int4() -> None:
    settings = {"int4_group": "v100"}
    assert translated({**settings, "v100_int4_as": "next"}, "int4").group == "a100-40g"
    assert translated({**settings, "v100_int4_as": "fp16"}, "int4").precision == "fp16"
    assert translated({**settings, "v100_int4_as": "reject"}, "int4").reject == Reason.no_device


def test_v100_timeout_factor_stretches_the_time_out_of_the_v100_group() -> None:
    settings = {"default_group": "v100", "timeout_s": 10}
    assert translated({**settings, "v100_timeout_factor": 3}).timeout_s == 30
    assert translated({**settings, "v100_timeout_factor": 1}).timeout_s == 10


def test_a100_40g_timeout_factor_stretches_the_time_out_of_the_40g_group() -> None:
    settings = {"timeout_s": 10, "a100_40g_timeout_factor": 1.5}
    assert translated({**settings, "default_group": "a100-40g"}).timeout_s == 15
    assert translated({**settings, "default_group": "a100-80g"}).timeout_s == 10


def test_v100_stage_plan_names_the_pipeline_that_the_v100_group_implies() -> None:
    settings = {"default_group": "v100", "v100_stage_plan": "three_stage_graph"}
    assert translated(settings).kernel_plan == "three_stage_graph"
    assert translated({**settings, "default_group": "a100-40g"}).kernel_plan == "three_stage"


def test_a100_stage_plan_names_the_pipeline_that_both_a100_groups_imply() -> None:
    settings = {"a100_stage_plan": ""}
    assert translated({**settings, "default_group": "a100-40g"}).kernel_plan == ""
    assert translated({**settings, "default_group": "a100-80g"}).kernel_plan == ""
    assert translated({**settings, "default_group": "v100"}).kernel_plan == "three_stage"
