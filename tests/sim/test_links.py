"""Transfers share links fairly, lose nothing on the way, and end when they must."""

from hypothesis import given
from hypothesis import strategies as st

from sim.clock import Clock, S
from sim.network import Network, fair_rates

RATES = {"a": 100.0, "b": 50.0, "c": 10.0, "d": 1.0}
paths = st.lists(
    st.lists(st.sampled_from(sorted(RATES)), min_size=1, max_size=3, unique=True).map(tuple),
    min_size=1, max_size=8,
)  # fmt: skip


@given(paths)
def test_no_link_carries_more_than_its_rate_and_every_transfer_meets_a_full_one(found):
    rates = fair_rates(found, RATES)
    load = dict.fromkeys(RATES, 0.0)
    for path, rate in zip(found, rates, strict=True):
        for link in path:
            load[link] += rate
    assert all(load[link] <= RATES[link] * (1 + 1e-9) for link in RATES)
    for path, rate in zip(found, rates, strict=True):
        full = [link for link in path if load[link] >= RATES[link] * (1 - 1e-9)]
        assert full, "work conserving: something holds every transfer back"
        most = [
            max(r for p, r in zip(found, rates, strict=True) if link in p) for link in full
        ]  # fmt: skip
        assert any(rate >= m * (1 - 1e-9) for m in most), "max-min: nobody on it gets more"


def send_all(sends, degraded=()):
    env = Clock()
    network = Network(env)
    for link, rate in RATES.items():
        network.add(link, rate)
    ended = {}
    for number, (at, path, size) in enumerate(sends):
        env.call_at(at, lambda n, p=path, s=size: network.send(
            p, s, lambda v: ended.setdefault(v, env.ns), n), number)  # fmt: skip
    for at, link, factor in degraded:
        env.call_at(at, lambda _, x=link, f=factor: network.degrade(x, f))
    env.run_to(10**16)
    assert not network.transfers
    return ended, network


sends = st.lists(
    st.tuples(
        st.integers(0, 10 * S),
        st.lists(st.sampled_from(sorted(RATES)), min_size=1, max_size=3, unique=True).map(tuple),
        st.floats(0, 5000),
    ),
    min_size=1, max_size=10,
)  # fmt: skip


@given(sends)
def test_every_transfer_ends_no_sooner_than_alone_and_all_bytes_are_counted(found):
    ended, network = send_all(found)
    for number, (at, path, size) in enumerate(found):
        alone_s = size / min(RATES[link] for link in path)
        assert (ended[number] - at) / S >= alone_s * (1 - 1e-9) - 1e-8
    for link in RATES:
        moved = network._by(link, network.env.ns)
        expected = sum(size for _, path, size in found if link in path)
        assert abs(moved - expected) <= 1e-6 * max(1.0, expected)
        assert 0.0 <= network.used_ratio(link, 5 * S, S) <= 1.0


@given(st.lists(st.integers(1, 5000), min_size=2, max_size=8, unique=True))
def test_transfers_that_begin_together_on_one_link_end_in_the_order_of_their_sizes(sizes):
    ended, _ = send_all([(0, ("b",), size) for size in sizes])
    order = sorted(range(len(sizes)), key=lambda i: ended[i])
    assert [sizes[i] for i in order] == sorted(sizes)
    whole_s = sum(sizes) / RATES["b"]
    assert abs(max(ended.values()) / S - whole_s) <= 1e-6 * whole_s + 1e-8


def test_two_equal_transfers_take_twice_as_long_as_one_and_a_third_elsewhere_is_not_held_up():
    ended, _ = send_all([(0, ("a",), 100.0), (0, ("a",), 100.0), (0, ("b",), 50.0)])
    assert [round(ended[i] / S, 6) for i in range(3)] == [2.0, 2.0, 1.0]


def test_a_link_that_degrades_half_way_makes_the_rest_slower_by_just_that_factor():
    ended, _ = send_all([(0, ("a",), 100.0)], degraded=[(S // 2, "a", 4.0)])
    assert round(ended[0] / S, 6) == 2.5


def test_a_link_reports_the_share_of_its_rate_that_was_used_in_the_window():
    _, network = send_all([(0, ("a", "b"), 50.0)])
    assert abs(network.used_ratio("b", S, S) - 1.0) < 1e-6
    assert abs(network.used_ratio("a", S, S) - 0.5) < 1e-6
    assert abs(network.used_ratio("a", 2 * S, 2 * S) - 0.25) < 1e-6
    assert network.used_ratio("a", 10 * S, S) == 0.0
