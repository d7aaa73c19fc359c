"""Each of the 7 probe-fed keys acts by its last configured value, since the probe is gone."""

from typing import Any

import pytest

from dispatch.errors import InputError
from dispatch.legacy import PROBE_KEYS, LegacyConfig, LegacyRouter
from dispatch.outcomes import Reason


def router(probes: dict[str, Any] | None = None, **settings: Any) -> LegacyRouter:
    return LegacyRouter(LegacyConfig.from_settings(settings), probes=probes)


def test_probe_free_memory_gb_lets_a_large_request_onto_a_fuller_card() -> None:
    # 20,000 tokens at 0.8 MB book 16 GB. The card really has 12 GB left; the key still says 24.
    headers = {"x-precision-preference": "fp16"}
    large = {"prompt_tokens": 19_000, "max_tokens": 1_000}
    stale = router(fp16_group="a100-40g", probe_free_memory_gb=24)
    assert stale.translate(headers, **large).group == "a100-40g"
    true = router(fp16_group="a100-40g", probe_free_memory_gb=12)
    assert true.translate(headers, **large).group == "a100-80g"


def test_probe_queue_depth_sheds_by_a_depth_that_nobody_measures_any_more() -> None:
    assert router(shed_queue_depth=10, probe_queue_depth=9).translate({}).reject is None
    shed = router(shed_queue_depth=10, probe_queue_depth=10).translate({})
    assert shed.reject == Reason.queue_full


def test_probe_retry_budget_caps_the_retries() -> None:
    assert router(retries=5, probe_retry_budget=2).translate({}).retries == 2
    assert router(retries=1, probe_retry_budget=2).translate({}).retries == 1


def test_probe_latency_ms_is_added_to_the_time_out() -> None:
    assert router(timeout_s=10, probe_latency_ms=250).translate({}).timeout_s == 10.25


def test_probe_nvlink_up_switches_the_model_table() -> None:
    settings = {"model_groups": "llama-*=a100-80g"}
    headers = {"x-model-hint": "llama-2-13b"}
    assert router(**settings, probe_nvlink_up=True).translate(headers).group == "a100-80g"
    assert router(**settings, probe_nvlink_up=False).translate(headers).group == ""


def test_probe_drained_group_treats_that_group_as_missing() -> None:
    headers = {"x-precision-preference": "bf16"}
    assert router(probe_drained_group="a100-80g").translate(headers).group == ""
    assert router().translate(headers).group == "a100-80g"


def test_probe_headroom_ratio_shrinks_the_connection_limits() -> None:
    settings = {"a100_40g_max_conns": 10, "probe_headroom_ratio": 0.35}
    assert router(**settings).peers([("a", "a100-sxm4-40g", "g", 1.0)])[0].max_conns == 3


@pytest.mark.parametrize("key", PROBE_KEYS)
def test_a_dead_probe_falls_back_to_the_last_configured_value(key: str) -> None:
    configured = LegacyConfig().model_copy(update={"probe_queue_depth": 7})
    assert LegacyRouter(configured, probes={key: None}).config == configured


def test_a_probe_that_still_answers_overrides_the_configured_value() -> None:
    assert router({"probe_queue_depth": 3}, probe_queue_depth=7).config.probe_queue_depth == 3


def test_a_reading_for_no_probe_key_is_refused() -> None:
    with pytest.raises(InputError, match="no such probe: max_fails"):
        router({"max_fails": 3})
