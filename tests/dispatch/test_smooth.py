"""The ranked form of smooth weighted round robin against the plain scan, pick by pick."""

from collections.abc import Sequence
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.policies.smooth import Peer, Plain, Ranked, Rules, scheduler

rules = st.builds(Rules, st.integers(0, 3), st.sampled_from([0.0, 3.0, 10.0]), st.just(0))
# (what, which peer, seconds that pass): a pick, a retry, a failure, a success, a peer that joins.
steps = st.lists(
    st.tuples(
        st.sampled_from(["pick"] * 6 + ["retry", "fail", "fail", "finish", "leave", "join"]),
        st.integers(0, 7), st.sampled_from([0.0, 0.0, 1.0, 4.0]),
    ),
    max_size=120,
)  # fmt: skip


def state(peer: Peer) -> tuple[float, ...]:
    """All of nginx's own fields."""
    return astuple(peer)[:7]


def fail(scan: Plain, peer: Peer, rule: Rules, now_s: float) -> None:
    """What nginx does when a peer fails, but for lone ones."""
    scan.disturbed(peer)
    peer.fails += 1
    peer.accessed = peer.checked = now_s
    if rule.max_fails:
        peer.effective = max(0.0, peer.effective - peer.weight // rule.max_fails)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), rules, steps)
def test_ranked_picks_and_states_are_those_of_the_scan(
    weights: Sequence[int], rule: Rules, script: Sequence[tuple[str, int, float]]
) -> None:
    fleets = [[Peer(d, float(w), float(w)) for d, w in enumerate(weights)] for _ in range(2)]
    scans: list[Plain] = [Plain(fleets[0], rule), Ranked(fleets[1], rule)]
    gone: list[list[Peer]] = [[], []]
    now_s, busy = 0.0, [0] * len(weights)
    for what, which, passes_s in script:
        now_s += passes_s
        if what in ("pick", "retry"):
            tried = [scans[0].peers[which % len(scans[0].peers)].device] if what == "retry" else []
            picks = [scan.pick(tried, busy, now_s) for scan in scans]
            assert (picks[0] and picks[0].device) == (picks[1] and picks[1].device)
        elif what in ("leave", "join"):
            for scan, away in zip(scans, gone, strict=True):
                scan.settled()
                peers = list(scan.peers)
                if what == "leave" and len(peers) > 1:
                    away.append(peers.pop(which % len(peers)))
                elif what == "join" and away:
                    peers.append(away.pop())
                scan.__init__(peers, rule)  # type: ignore[misc]
        else:
            for scan in scans:
                peer = scan.peers[which % len(scan.peers)]
                if what == "fail" and len(scan.peers) > 1:
                    fail(scan, peer, rule, now_s)
                elif what == "finish" and peer.accessed < peer.checked:
                    peer.fails = 0
        scans[1].settled()
        assert list(map(state, scans[0].peers)) == list(map(state, scans[1].peers))


@pytest.mark.parametrize(("weights", "limit", "kind"), [
    ((1, 1, 5, 5), 0, Ranked), ((1, 1, 1, 1), 3, Plain), ((0.5, 0.5), 0, Plain),
    ((1, 2, 3), 0, Plain), ((1e12, 1e12), 0, Plain),
])  # fmt: skip
def test_the_heap_serves_whole_weights_of_few_kinds(
    weights: Sequence[float], limit: int, kind: type[Plain]
) -> None:
    peers = [Peer(d, w, w) for d, w in enumerate(weights)]
    assert type(scheduler(peers, Rules(1, 10.0, limit))) is kind


def test_stale_entries_do_not_gather() -> None:
    peers = [Peer(d, 1.0, 1.0) for d in range(20)]
    scan, rule = Ranked(peers, Rules(1, 1.0, 0)), Rules(1, 1.0, 0)
    for step in range(2000):
        peer = scan.pick([], [0] * 20, float(step))
        assert peer is not None
        if step % 3 == 0:
            fail(scan, peer, rule, float(step))
        elif peer.accessed < peer.checked:
            peer.fails = 0
    assert sum(len(rank.heap) for rank in scan._ranks.values()) < 60
