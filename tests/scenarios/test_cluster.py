"""Cells on a dask cluster: same figures, worker deaths survived, poison told, networks guarded."""

import json
from pathlib import Path

import pytest

from dispatch.errors import InputError
from scenarios.cluster import check_address, executor
from scenarios.load import load
from scenarios.store import Store
from scenarios.sweep import Sweep, cells_of
from tests.scenarios.small import small

pytest.importorskip("distributed")


@pytest.mark.slow
def test_a_cluster_says_the_same_as_this_process(tmp_path: Path) -> None:
    cells = cells_of(load(small(tmp_path)))
    found = []
    for name, address in (("here", None), ("there", "local:2")):
        with (
            executor(address) as make,
            Sweep(1, store=Store(tmp_path / name), make_executor=make, quiet=True) as sweep,
        ):
            found.append([dict(o.figures) for o in sweep.run(cells)])
    assert json.dumps(found[0], sort_keys=True) == json.dumps(found[1], sort_keys=True)


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
