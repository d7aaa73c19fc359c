"""A router's own log: read by row, brought together with the trace, replayed as an arm."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import reports.evidence
from dispatch.errors import InputError
from reports import logged
from reports.tables import read_run
from scenarios import history
from scenarios.load import load
from scenarios.reference import ROUTER, with_oracle, with_router_log
from scenarios.run import run
from scenarios.verify import verify
from tests.scenarios.small import small
from tests.strategies import mutated
from traces import router_log

NAMES = ("a-0", "a-1", "b-0")
GOOD = b"time,request,backend\n1.5,3,a-0\n0.5,2,b-0\n2023-11-16T18:15:46Z,2,a-1\n"


def write(folder: Path, text: bytes | str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_csv_and_json_lines_say_the_same(tmp_path: Path) -> None:
    rows = [{"time": 1, "request": 3, "backend": "a-0"}, {"time": 0.5, "request": 2, "backend": 2}]
    lines = "\n".join(map(json.dumps, rows))
    one = router_log.read(write(tmp_path, "time,request,backend\n1,3,a-0\n0.5,2,2\n"), NAMES)
    other = router_log.read(write(tmp_path, lines, "log.jsonl"), NAMES)
    for name in ("device", "request", "time_ns"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_the_first_decision_in_time_counts_and_retries_do_not(tmp_path: Path) -> None:
    log = router_log.read(write(tmp_path, GOOD), NAMES)
    trace = history.load(load(small(tmp_path, limit=5)))
    assert router_log.align(log, trace).tolist() == [-1, -1, 2, 0, -1, -1]


@pytest.mark.parametrize(
    ("text", "place", "found"),
    [
        ("request,backend\n1,a-0\n2,c-9\n", "line 3", "is no device of the fleet"),
        ("request,backend\n1,a0\n", "line 2", "did you mean a-0"),
        ("request,backend\n1,\n", "line 2", "backend is missing"),
        ("request,backend\n0,a-0\n", "line 2", "no line of a trace file"),
        ("request,backend\n1,7\n", "line 2", "numbers run from 0 to 2"),
        ("request,backend\n,a-0\n", "line 2", "neither request nor time"),
        ("time,backend\nsoon,a-0\n", "line 2", "time"),
        ("request,backend\n1,a-0,x\n", "line 2", "3 fields"),
        ('{"request": 1, "backend": "a-0"}\n{"request": 2\n', "line 2", "no JSON"),
        ("request,time,backend\n1,,a-0\n2,3,a-0\n", "log.csv", "time is missing in 1 row"),
        ("", "log.csv", "is empty"),
        ("request,backend\n", "log.csv", "holds no decision"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_its_line(tmp_path: Path, text: str, place: str, found: str) -> None:
    with pytest.raises(InputError) as raised:
        router_log.read(write(tmp_path, text), NAMES)
    assert place in raised.value.problems[0].place
    assert found in str(raised.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(data=mutated(GOOD))
def test_a_damaged_log_is_read_or_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path, data)
    log, places = None, []
    try:
        log = router_log.read(path, NAMES)
    except InputError as error:
        places = [problem.place for problem in error.problems]
    assert (log is None) == bool(places)
    assert all(place.startswith(str(path)) for place in places)
    if log is not None:
        assert ((log.device >= 0) & (log.device < len(NAMES))).all()
        assert log.request is not None or log.time_ns is not None


@given(devices=st.lists(st.integers(-1, 300), max_size=50))
def test_choices_come_out_of_their_packing_as_they_went_in(devices: list[int]) -> None:
    packed = router_log.pack(np.array(devices, np.int16))
    assert router_log.unpack(packed).tolist() == devices


def test_a_log_of_times_alone_goes_by_their_order(tmp_path: Path) -> None:
    trace = history.load(load(small(tmp_path, limit=3)))
    log = router_log.read(write(tmp_path, "time,backend\n9,a-0\n7,b-0\n8,a-1\n"), NAMES)
    assert router_log.align(log, trace).tolist() == [-1, 2, 1, 0]
    short = router_log.read(write(tmp_path, "time,backend\n9,a-0\n"), NAMES)
    with pytest.raises(InputError, match="holds 1 decision and the trace 3 requests"):
        router_log.align(short, trace)


def test_a_log_of_another_trace_is_refused(tmp_path: Path) -> None:
    trace = history.load(load(small(tmp_path, limit=3)))
    log = router_log.read(write(tmp_path, "request,backend\n77,a-0\n"), NAMES)
    with pytest.raises(InputError, match="no request of it is in the trace"):
        router_log.align(log, trace)


def test_a_trace_that_repeats_its_requests_is_refused(tmp_path: Path) -> None:
    trace = history.load(load(small(tmp_path, limit=3)))
    twice = replace(trace, source_row=np.array([1, 2, 2]))
    log = router_log.read(write(tmp_path, "request,backend\n1,a-0\n"), NAMES)
    with pytest.raises(InputError, match=r"set trace\.scale to 1"):
        router_log.align(log, twice)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run whose log sends every request but the last ten to device 1."""
    folder = tmp_path_factory.mktemp("log")
    text = "request,backend\n" + "".join(f"{n},a-1\n" for n in range(1, 141))
    log = write(folder, text)
    scenario = with_oracle(with_router_log(load(small(folder)), log))
    done = run(scenario, folder / "run", jobs=1, quiet=True, finish=reports.evidence.write)
    log.unlink()
    return folder / "run", dict(done.manifest)


def test_the_arm_of_a_log_places_as_the_log_says(replayed: tuple[Path, dict[str, Any]]) -> None:
    table = pq.read_table(replayed[0] / "decisions.parquet").to_pandas()
    rows = table[(table.arm == ROUTER) & (table.replicate == 0) & (table.attempt == 0)]
    on_record = rows[rows.request < 140]
    assert len(on_record) > 100
    assert (on_record.device == 1).all()


def test_the_report_says_how_far_the_log_reached_and_sets_every_arm_beside_it(
    replayed: tuple[Path, dict[str, Any]],
) -> None:
    found = logged.analyse(read_run(*replayed))
    assert found is not None
    assert found.coverage == pytest.approx(140 / 150)
    assert 0.8 < found.followed < 1.0
    assert [b.arm for b in found.beside] == ["legacy", "direct", "oracle"]
    text = (replayed[0] / "report.md").read_text("utf-8")
    assert "## The router's own log, beside every arm" in text
    assert "93.3 % of the trace's requests" in text


def test_a_folder_with_a_log_verifies_where_the_log_is_gone(
    replayed: tuple[Path, dict[str, Any]],
) -> None:
    found = verify(replayed[0], jobs=1, quiet=True)
    assert found.good
    assert found.other_bytes == ()
