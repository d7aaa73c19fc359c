"""The prefix cache against a plain list of what each rule says goes first."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.errors import InputError
from dispatch.prefix_cache import RULES, PrefixCache
from traces import synth
from traces.cache import hit_rates

prompts = st.lists(st.lists(st.integers(0, 12), max_size=6, unique=True), max_size=25)


class Plain:
    """The same rules over a dictionary, looked through from end to end each time."""

    def __init__(self, capacity: int | None, rule: str) -> None:
        self.capacity, self.rule = capacity, rule
        self.held: dict[int, dict[str, int]] = {}
        self.now = 0

    def match(self, blocks: list[int]) -> int:
        found = 0
        while found < len(blocks) and blocks[found] in self.held:
            found += 1
        return found

    def touch(self, blocks: list[int]) -> list[int]:
        for depth, block in enumerate(blocks):
            self.now += 1
            uses = self.held.get(block, {"uses": 0})["uses"] + 1
            self.held[block] = {"uses": uses, "at": self.now, "depth": depth}
        gone = []
        while self.capacity is not None and len(self.held) > self.capacity:
            first = min(self.held, key=self.rank)
            del self.held[first]
            gone.append(first)
        return gone

    def rank(self, block: int) -> tuple[int, int]:
        """Return what goes first when it is least."""
        held = self.held[block]
        weight = {"lru": 0, "lfu": held["uses"], "length": -held["depth"]}[self.rule]
        return weight, held["at"]


@pytest.mark.parametrize("rule", RULES)
@given(prompts=prompts, capacity=st.one_of(st.none(), st.integers(0, 12)))
def test_hits_and_evictions_are_those_of_the_plain_cache(
    rule: Any, prompts: list[list[int]], capacity: int | None
) -> None:
    cache, plain = PrefixCache(capacity, rule), Plain(capacity, rule)
    for blocks in prompts:
        assert cache.match(blocks) == plain.match(blocks)
        assert cache.touch(blocks) == plain.touch(blocks)
        assert len(cache) == len(plain.held)
        assert capacity is None or len(cache) <= capacity


@pytest.mark.parametrize("rule", RULES)
def test_memory_of_a_bounded_cache_is_bounded_by_its_capacity(rule: Any) -> None:
    cache = PrefixCache(100, rule)
    gone = 0
    for first in range(0, 50_000, 5):
        gone += len(cache.touch(range(first, first + 5)))
    assert len(cache) == 100
    assert gone == 50_000 - 100


@pytest.mark.parametrize("rule", RULES)
def test_what_is_dropped_or_cleared_is_held_no_more(rule: Any) -> None:
    cache = PrefixCache(10, rule)
    cache.touch([1, 2, 3])
    cache.drop(2)
    cache.drop(99)
    assert cache.match([1, 2, 3]) == 1
    cache.clear()
    assert cache.match([1]) == 0
    assert len(cache) == 0


def test_a_rule_or_capacity_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match=r"known: lru, lfu, length"):
        PrefixCache(5, "fifo")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="0 or more"):
        PrefixCache(-1)


def test_a_larger_cache_never_hits_less_under_lru() -> None:
    chat = synth.generate("chat", {"requests": 3_000}, 1)
    rates = [hit_rates(chat, size).hit_rate_blocks for size in (0, 10, 100, 1_000, 10_000)]
    assert rates == sorted(rates)
    assert rates[0] == 0
    assert hit_rates(chat, None).hit_rate_blocks >= rates[-1]


def test_a_trace_without_blocks_names_the_formats_that_have_them() -> None:
    with pytest.raises(InputError, match=r"no prefix blocks.*Mooncake"):
        hit_rates(synth.generate("poisson", {"requests": 9}, 1), None)
