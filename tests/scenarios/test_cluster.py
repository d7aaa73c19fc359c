"""Cells on a dask cluster: same figures, worker deaths survived, poison told, networks guarded."""

import json
from pathlib import Path

import pytest

from dispatch.errors import InputError
from scenarios.batches import Cluster, _Sent
from scenarios.cluster import check_address, executor
from scenarios.load import load
from scenarios.pool import Completed
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


class _Landed:
    """A future that landed with *status*, whose fetch raises *error*."""

    key = "key"

    def __init__(self, status: str, error: Exception) -> None:
        self.status = status
        self.error = error

    def result(self) -> object:
        raise self.error

    def exception(self) -> Exception:
        return self.error


class _Order:
    def __init__(self, trace: str) -> None:
        self.trace = trace


class _Running:
    status = "running"


def sent(*traces: str, threads: int = 1) -> _Sent:
    """Cells on *traces*, after one that told that a cell takes a tenth of a second."""
    cells = _Sent([_Order(trace) for trace in traces], threads=threads)
    cells.cell_s = 0.1
    assert cells.open()
    return cells


def land(cells: _Sent, batch: tuple[int, ...], future: _Landed, tmp_path: Path) -> list[Completed]:
    cluster = Cluster(client=_Running(), folder=tmp_path, scattered={}, own=1)
    return list(cluster._land(cells, batch, future))


def killed(task: str = "key") -> _Landed:
    return _Landed("error", distributed.scheduler.KilledWorker(task, None, 0))


def test_short_cells_of_one_trace_travel_together() -> None:
    cells = sent(*"aaab" * 4)
    assert cells.take() == (0, 1, 2)
    assert cells.take() == (3,)


def test_no_batch_takes_what_the_other_workers_would_wait_for() -> None:
    assert len(sent(*"a" * 16, threads=2).take()) == 4


def test_a_batch_takes_about_a_second_by_the_cells_before_it() -> None:
    assert len(sent(*"a" * 99).take()) == 10


def test_the_cells_of_a_batch_whose_worker_died_run_alone(tmp_path: Path) -> None:
    cells = sent(*"a" * 16, threads=2)
    batch = cells.take()
    assert land(cells, batch, killed(), tmp_path) == []
    assert [cells.take() for _ in range(5)] == [(0,), (1,), (2,), (3,), (4, 5, 6)]


def test_a_cell_alone_is_given_up_after_five_deaths_of_its_own(tmp_path: Path) -> None:
    cells = sent("a")
    for _ in range(4):
        assert land(cells, cells.take(), killed(), tmp_path) == []
    (done,) = land(cells, cells.take(), killed(), tmp_path)
    assert done.failure is not None
    assert "every worker died" in done.failure.text


def test_a_trace_that_dies_with_its_worker_is_charged_to_no_cell(tmp_path: Path) -> None:
    cells = sent("a")
    assert land(cells, cells.take(), killed("trace"), tmp_path) == []
    assert cells.deaths == [0]


def test_a_result_that_dies_with_its_worker_before_the_fetch_is_sent_again(tmp_path: Path) -> None:
    cells = sent(*"a" * 16, threads=2)
    batch = cells.take()
    lost = _Landed("finished", FutureCancelledError("cell", reason="unknown"))
    assert land(cells, batch, lost, tmp_path) == []
    assert cells.take() == batch


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
