"""The benchmark runs what it says it runs; how fast is for the machine to say."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import itertools

from arms import trace

from zerolayer import peers
from zerolayer import simulations as s


def test_a_timed_shape_accounts_for_every_request_and_writes_them_all():
    offered = trace(np.arange(500) * 0.05, 300, 40)
    run = s.timed(s.Shape("small", 4, "topology", bar_per_s=1e9), lambda: offered, "even")
    assert run.requests == 500
    assert run.iterations > run.events > 500
    assert run.holds is False
    assert run.per_s > 0


def test_a_stream_comes_in_parts_at_its_rate():
    parts = list(s.at_rate(2000.0, 100.0))
    assert len(parts) > 1
    assert abs(sum(len(p) for p in parts) / 200_000 - 1) < 0.02
    assert all(a.arrival_s[-1] <= b.arrival_s[0] for a, b in itertools.pairwise(parts))


def test_a_peer_that_is_not_there_says_how_to_bring_it(monkeypatch):
    for name in ("ZEROLAYER_VIDUR", "ZEROLAYER_SPLITWISE_SIM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    found = peers.run_all(trace([0.0]), lambda _: None)
    assert [p.name for p in found] == ["vidur", "splitwise-sim", "vllm-sr-sim"]
    assert all(p.requests_per_s == 0 and "not found" in p.note for p in found)


def test_a_peer_that_fails_is_told_with_its_own_last_words(monkeypatch, tmp_path):
    (tmp_path / "run.py").write_text("raise SystemExit('no such cluster')")
    (tmp_path / "traces").mkdir()
    monkeypatch.setenv("ZEROLAYER_SPLITWISE_SIM", str(tmp_path))
    found = peers.run_all(trace(np.arange(5.0)), lambda _: None)
    assert "no such cluster" in found[1].note
    assert list((tmp_path / "traces").iterdir()) == []
