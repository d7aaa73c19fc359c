"""Policies by their formulas, on numbers worked out by hand."""

import math

import pytest

from dispatch.outcomes import Reason
from dispatch.request import Request
from tests.dispatch.core_world import World, device, devices


def _choice(world: World, **given: object) -> tuple[int, list[float]]:
    request = world.request(**given)  # type: ignore[arg-type]
    choice = world.policy.choose(request, world.graph, world.now)
    return choice.device, [round(float(s), 6) for s in choice.scores]


def _loaded(world: World, *n: int) -> World:
    for i, count in enumerate(n):
        for _ in range(count):
            world.graph.take(world.request(100, 100), i, 0.0, 0)
    return world


def _owns(world: World, at: int, *blocks: int) -> None:
    request = Request(10_000, 0.0, 512 * len(blocks), 1, block_hashes=blocks)
    world.policy.index.insert(request, at, world.graph)


def test_round_robin_keeps_one_counter_for_each_eligible_set() -> None:
    fleet = [device(n, model=m) for n, m in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"))]
    world = World("round_robin", fleet)
    picks = [world.place(model=m) for m in "xyxyxy"]
    assert picks == [0, 2, 1, 3, 0, 2]


def test_weighted_random_follows_the_weights() -> None:
    world = World("weighted_random", devices(3, (6, 3, 1)))
    for _ in range(1000):
        world.place()
    assert [round(n, -2) for n in world.loads()] == [600, 300, 100]


def test_a_draw_depends_on_the_request_not_on_those_before_it() -> None:
    one, other = World("random", 8), World("random", 8)
    for _ in range(5):
        one.place()
    requests = [Request(i, 0.0, 1, 1) for i in (100, 101, 102)]
    picks = [[w.dispatcher.submit(r).device for r in requests] for w in (one, other)]
    assert picks[0] == picks[1]


def test_the_better_of_two_distinct_draws_wins_and_a_tie_takes_the_first() -> None:
    world = _loaded(World("p2c", 2), 1, 0)
    assert all(_choice(world)[0] == 1 for _ in range(20))
    world = World("p2c", 2)
    drawn = set()
    for _ in range(20):
        request = world.request()
        pair = world.policy.two(request, (0, 1))
        assert pair[0] != pair[1]
        drawn.add(pair[0])
        assert world.policy.choose(request, world.graph, 0.0).device == pair[0]
    assert drawn == {0, 1}


def test_weighted_two_choices_compare_load_by_weight() -> None:
    world = _loaded(World("weighted_p2c", devices(2, (4, 1))), 3, 1)
    assert _choice(world)[0] == 0  # 0.75 against 1


def test_least_work_counts_prompt_and_output_and_can_divide_by_speed() -> None:
    fleet = [device("a", speed_tokens_per_s=100), device("b", speed_tokens_per_s=10)]
    world = World("least_work", fleet)
    world.graph.take(Request(900, 0.0, 500, 100), 0, 0.0, 0)
    world.graph.take(Request(901, 0.0, 100, 50), 1, 0.0, 0)
    assert _choice(world) == (1, [150, 600])
    fast = World("least_work", fleet, {"by_speed": True})
    fast.graph.take(Request(900, 0.0, 500, 100), 0, 0.0, 0)
    fast.graph.take(Request(901, 0.0, 100, 50), 1, 0.0, 0)
    assert _choice(fast) == (0, [6, 15])


def test_the_credit_of_a_cached_prefix_is_taken_off_the_work() -> None:
    world = World("cache_aware", 2)
    _owns(world, 1, 1, 2)
    world.place(1024, 10, block_hashes=(1, 2))
    assert (world.graph.prompt_tokens[1], world.graph.output_tokens[1]) == (0, 10)


def test_least_kv_takes_the_lowest_use() -> None:
    world = World("least_kv", 3)
    for i, k in enumerate((0.5, 0.2, 0.4)):
        world.graph.observe_kv(i, k, 100, 1.0)
    assert _choice(world) == (1, [0.2, 0.4, 0.5])


def test_llumnix_takes_the_most_steps_left() -> None:
    world = World("llumnix", 3)
    for i, (blocks, busy) in enumerate(((100, 10), (90, 5), (300, 40))):
        world.graph.observe_kv(i, 0.5, blocks, 1.0)
        world.graph.observe_queue(i, 0, busy, 1.0)
    assert _choice(world) == (1, [-18, -10, -7.5])


def test_vllm_weighs_a_waiting_request_four_times_a_running_one() -> None:
    world = World("vllm_dp", 2)
    world.graph.observe_queue(0, 2, 1, 1.0)
    world.graph.observe_queue(1, 1, 6, 1.0)
    assert _choice(world) == (0, [9, 10])


def test_smg_least_load_is_the_expected_wait_plus_kv_pressure() -> None:
    world = World("smg_least_load", 2, {"by_speed": False})
    for i, (queued, kv) in enumerate(((2, 0.5), (1, 0.9))):
        world.graph.observe_queue(i, queued, 0, 0.0)
        world.graph.observe_kv(i, kv, 100, 0.0)
    expected = [1024 / 2000 + 0.15 * 0.5 / 0.5 + 1024 / 2000, 1024 / 2000 + 0.15 * 0.9 / 0.1]
    assert _choice(world)[1] == pytest.approx(expected)
    world.now = 1.0
    world.place(1000, 1)  # goes to the first, whose credit counts until the next poll
    assert _choice(world)[1][1] == pytest.approx(expected[1]) or math.isclose(
        _choice(world)[1][0], expected[0] + 1000 / 2000, rel_tol=1e-6
    )


@pytest.mark.parametrize(
    ("defaults", "n", "pick"),
    [
        ("cli", (65, 0), 1),  # 65 > 64 and 65 > 1.5 * 0: out of balance
        ("cli", (64, 0), 0),  # within: the cache decides
        ("struct", (33, 0), 1),
        ("struct", (32, 0), 0),
        ("cli", (300, 230), 0),  # 70 apart, but less than one and a half times
        ("struct", (300, 230), 1),  # more than 1.1 times
    ],
)
def test_both_default_sets_of_cache_aware(defaults: str, n: tuple[int, int], pick: int) -> None:
    world = _loaded(World("cache_aware", 2, {"defaults": defaults}), *n)
    _owns(world, 0, 1, 2)
    assert _choice(world, prompt=1024, block_hashes=(1, 2))[0] == pick


def test_a_match_at_the_threshold_is_not_above_it() -> None:
    for threshold, pick in ((0.5, 1), (0.49, 0)):
        world = _loaded(World("cache_aware", 2, {"cache_threshold": threshold}), 3, 0)
        _owns(world, 0, 1)
        assert _choice(world, prompt=1024, block_hashes=(1, 9))[0] == pick


@pytest.mark.parametrize(
    ("params", "n", "pick"),
    [
        ({}, (8, 0, 0), 1),  # 8 > mean 2.67 + 3.77: too loaded for its match
        ({"sigmas": 2.0}, (8, 0, 0), 0),
        ({"spread": 7.0, "sigmas": 2.0}, (8, 0, 0), 1),  # out of balance
    ],
)
def test_aibrix_goes_by_match_within_mean_and_sigma(
    params: dict[str, float], n: tuple[int, ...], pick: int
) -> None:
    world = _loaded(World("aibrix_prefix", 3, params), *n)
    _owns(world, 0, 1, 2)
    chosen = _choice(world, prompt=1024, block_hashes=(1, 2))[0]
    assert (chosen == 0) == (pick == 0)


def test_dynamo_credits_overlap_against_prefill_and_counts_decode() -> None:
    world = World("dynamo_kv", 2)
    _owns(world, 0, 1)
    world.graph.take(Request(900, 0.0, 320, 1), 0, 0.0, 0)  # 20 blocks of prefill and of decode
    # a: 20 + 64 - 32 + 20 = 72; b: 0 + 64 + 0
    assert _choice(world, prompt=1024, block_hashes=(1, 2)) == (1, [64, 72])


def test_dynamo_s_lmetric_multiplies() -> None:
    world = World("dynamo_kv", 2, {"cost": "lmetric"})
    world.graph.take(Request(900, 0.0, 320, 1), 0, 0.0, 0)
    assert _choice(world, prompt=1024)[1] == [64, 84 * 21]


def test_dynamo_s_temperature_spreads_by_cost() -> None:
    world = World("dynamo_kv", 2, {"temperature": 1.0})
    world.graph.take(Request(900, 0.0, 320, 1), 0, 0.0, 0)
    picks = [_choice(world, prompt=1024)[0] for _ in range(400)]
    assert sum(picks) / 400 == pytest.approx(1 / (1 + math.exp(-1)), abs=0.06)


def test_llmd_adds_queue_kv_and_prefix() -> None:
    world = World("llmd", 3)
    _owns(world, 2, 1, 2)
    for i, (queued, kv) in enumerate(((0, 0.5), (5, 0.1), (10, 0.9))):
        world.graph.observe_queue(i, queued, 0, 1.0)
        world.graph.observe_kv(i, kv, 100, 1.0)
    # a: 2 + 1 + 0; b: 1 + 1.8; c: 0 + 0.2 + 3
    assert _choice(world, prompt=1024, block_hashes=(1, 2)) == (2, [-3.2, -3.0, -2.8])


def test_llmd_s_load_aware_scorer_reaches_half_at_most() -> None:
    world = World("llmd", 2, {"profile": "load_aware"})
    world.graph.observe_queue(0, 64, 0, 1.0)
    world.graph.observe_queue(1, 500, 0, 1.0)
    assert _choice(world) == (0, [-0.25, 0])


def test_llmd_s_baseline_breaks_affinity_when_it_costs_more_than_18_s() -> None:
    for tokens, pick in ((15928 * 18, 0), (15928 * 18 + 16, 1)):
        world = World("llmd", 2, {"profile": "optimized"})
        _owns(world, 0, 1, 2)
        world.graph.take(Request(900, 0.0, tokens, 1), 0, 0.0, 0)
        assert _choice(world, prompt=1024, block_hashes=(1, 2))[0] == pick


def test_mooncake_adds_transfer_queue_and_prefill() -> None:
    fleet = devices(2, speed_tokens_per_s=1000.0, kv_bytes_per_token=1e6)
    world = World("mooncake", fleet, {"transfer_bytes_per_s": 1e9})
    _owns(world, 0, 1, 2, 3)
    world.graph.take(Request(900, 0.0, 3000, 1), 0, 0.0, 0)
    # a: 3 s queue + 0.512 s prefill; b: 1.536 s transfer + 0.512 s
    got = _choice(world, prompt=2048, block_hashes=(1, 2, 3, 9))
    assert got == (1, [2.048, 3.512])


def test_mooncake_rejects_what_would_miss_its_slo() -> None:
    fleet = devices(1, speed_tokens_per_s=1000.0)
    world = World("mooncake", fleet, {"ttft_slo_s": 2.0})
    assert world.dispatcher.submit(world.request(2001, 1)).reason == Reason.slo
    assert world.place(1999, 1) == 0
    assert World("mooncake", fleet, {"tbt_slo_s": 0.01}).place() == -1


@pytest.mark.parametrize(
    ("shared", "n", "pick"),
    [
        (3, (1, 0), 1),  # exploring: the load decides; 3 of 8 blocks are too few
        (5, (1, 1), 0),  # exploiting
        (5, (3, 1), 1),  # the owner's load is more than twice the least
    ],
)
def test_preble_exploits_a_long_prefix_unless_its_owner_is_too_loaded(
    shared: int, n: tuple[int, int], pick: int
) -> None:
    world = _loaded(World("preble", devices(2, speed_tokens_per_s=1e4)), *n)
    _owns(world, 0, *range(shared))
    blocks = (*range(shared), *range(100, 108 - shared))
    assert _choice(world, prompt=4096, block_hashes=blocks)[0] == pick


def test_preble_forgets_what_it_sent_before_its_window() -> None:
    world = World("preble", devices(2, speed_tokens_per_s=10.0), {"window_s": 60.0})
    assert world.place(1000, 1) in (0, 1)
    world.dispatcher.finished(world.last)
    sent = world.graph.placed.tolist().index(1)
    assert _choice(world)[0] == 1 - sent
    world.now = 61.0
    assert _choice(world)[1] == [0, 0]


def test_peak_ewma_takes_a_slow_answer_in_at_once() -> None:
    for peak, value in ((True, 9.0), (False, 1.0 + 8.0 * (1 - math.exp(-1)))):
        world = World("latency_ewma", 1, {"peak": peak})
        for begin, end in ((0.0, 1.0), (2.0, 11.0)):
            world.now = begin
            world.place()
            world.now = end
            world.dispatcher.finished(world.last)
        assert world.policy.score(world.graph, 0) == pytest.approx(value)


def test_the_oracle_goes_by_the_true_output() -> None:
    truth = {1: 5000, 2: 10, 3: 10}
    world = World("oracle", devices(2, speed_tokens_per_s=100.0))
    world.policy.output_tokens = lambda request: truth[request.id]
    assert [world.place(100, 1000) for _ in range(3)] == [0, 1, 1]


def test_an_oracle_that_nobody_tells_the_future_says_so() -> None:
    with pytest.raises(Exception, match="nobody tells it the future"):
        World("oracle", 1).place()


def test_the_always_busiest_piles_up() -> None:
    world = World("always_busiest", 3)
    for _ in range(9):
        world.place()
    assert world.loads() == [9, 0, 0]


def test_prefix_hash_keeps_a_head_together_up_to_its_bound() -> None:
    world = World("prefix_hash", 4)
    homes = set()
    for number in range(4):
        homes.add(world.place(512, 1, block_hashes=(7, number)))
        world.dispatcher.finished(world.last)
    assert len(homes) == 1


def test_ray_believes_a_queue_length_for_ten_seconds() -> None:
    world = World("ray_pow2", 2)
    world.graph.observe_queue(0, 5, 5, 1.0)
    world.graph.observe_queue(1, 1, 1, 1.0)
    world.now = 2.0
    assert _choice(world)[0] == 1
    world.graph.observe_queue(1, 50, 50, 3.0)
    world.now = 11.0
    assert _choice(world)[0] == 1
    world.now = 12.5
    assert _choice(world)[0] == 0
