"""Cells on a dask cluster: same figures, worker deaths survived, poison told, networks guarded."""

import json
from pathlib import Path

import pytest

from dispatch.errors import InputError
from scenarios.cluster import Cluster, check_address, executor
from scenarios.load import load
from scenarios.store import Store
from scenarios.sweep import Outcome, Sweep, cells_of
from tests.scenarios.hosts import hosts
from tests.scenarios.pool_work import Poison
from tests.scenarios.small import small

distributed = pytest.importorskip("distributed")
FutureCancelledError = distributed.client.FutureCancelledError


@pytest.mark.slow
def test_a_cluster_says_the_same_as_this_process(tmp_path: Path) -> None:
    cells = cells_of(load(small(tmp_path)))
    found = []
    for name, address in (("here", None), ("there", "local:2")):
        with (
            executor(address) as make,
            Sweep(1, store=Store(tmp_path / name), make_executor=make, quiet=True) as sweep,
        ):
            outcomes = {}
            growing = cells[:1]
            for place, outcome in sweep.as_completed(growing):
                outcomes[place] = dict(outcome.figures)
                growing += cells[len(growing) : len(growing) + 2]  # as a search asks for more
            found.append([outcomes[place] for place in range(len(cells))])
    assert json.dumps(found[0], sort_keys=True) == json.dumps(found[1], sort_keys=True)


@pytest.mark.slow
def test_a_host_that_is_cut_off_midway_changes_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZEROLAYER_CLUSTER_INSECURE", "1")
    cells = cells_of(load(small(tmp_path), ["replicates=6"]))
    with Sweep(1, store=Store(tmp_path / "here"), quiet=True) as sweep:
        expected = [dict(o.figures) for o in sweep.run(cells)]
    done: list[str] = []
    with hosts("a", "b") as apart, executor(apart.address) as make:
        assert make is not None
        make(tmp_path).client.wait_for_workers(2, timeout=60)  # type: ignore[attr-defined]

        def note(outcome: Outcome) -> str:
            done.append(outcome.failure)
            if len(done) == 3:
                apart.cut("b")
            return ""

        with Sweep(1, store=Store(tmp_path / "there"), make_executor=make, quiet=True) as sweep:
            found = [dict(o.figures) for o in sweep.run(cells, note=note)]
    assert len(done) == len(cells)
    assert json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


class _LostWhileFetched:
    """A future whose worker dies between the word that it is finished and the fetch."""

    status = "finished"

    def result(self) -> object:
        raise FutureCancelledError("cell", reason="unknown")


def test_a_result_that_dies_with_its_worker_before_the_fetch_is_sent_again(tmp_path: Path) -> None:
    cluster = Cluster(client=None, folder=tmp_path, scattered={})
    assert cluster._completed(4, _LostWhileFetched(), distributed) is None


@pytest.mark.slow
def test_a_cell_that_kills_every_worker_costs_one_row(tmp_path: Path) -> None:
    with executor("local:2") as make:
        assert make is not None
        (tmp_path / "t").mkdir()
        done = list(make(tmp_path).as_completed([Poison("t"), Poison("t")]))
    assert sorted(d.index for d in done) == [0, 1]
    assert all(d.failure is not None and "every worker died" in d.failure.text for d in done)


@pytest.mark.parametrize("address", ["tcp://10.1.2.3:8786", "tcp://scheduler:8786"])
def test_plain_tcp_to_another_host_is_refused_unless_told(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="plain TCP"):
        check_address(address)
    monkeypatch.setenv("ZEROLAYER_CLUSTER_INSECURE", "1")
    check_address(address)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://localhost:1", "tls://far:8786"])
def test_loopback_and_tls_are_allowed(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize("address", ["10.1.2.3:8786", "http://x", "local", "tcp://"])
def test_what_is_no_address_is_told(address: str) -> None:
    with pytest.raises(InputError, match="is no address"):
        check_address(address)
