"""The journal: rows in, columns out, and what a decision row says."""

import math
from typing import Any

import pytest

from dispatch.journal import BEST, DECISIONS, DEVICES, REQUESTS, SCHEMAS, Journal
from tests.dispatch.core_world import GIB, World, device


def _request_row(request: int, model: str = "m", hint: str = "") -> list[Any]:
    blank: dict[str, Any] = {"float64": math.nan, "str": ""}
    row = {name: blank.get(kind, -1) for name, kind in REQUESTS.items()}
    row |= {"request": request, "model": model, "kernel_hint": hint}
    return list(row.values())


def test_rows_come_back_as_columns_of_their_types() -> None:
    journal = Journal(arm="direct", replicate=3)
    for request, model in enumerate(("llama", "qwen", "llama")):
        journal.request(*_request_row(request, model, "latency_optimized"))
    frame = journal.to_pandas("requests")
    assert list(frame.columns) == ["arm", "replicate", *REQUESTS]
    assert frame["model"].tolist() == ["llama", "qwen", "llama"]
    assert (frame["arm"] == "direct").all()
    assert (frame["replicate"] == 3).all()
    for name, kind in REQUESTS.items():
        assert kind == "str" or str(frame[name].dtype) == kind, name


def test_a_table_without_rows_has_its_columns_all_the_same() -> None:
    for name, schema in SCHEMAS.items():
        assert list(Journal().to_pandas(name).columns) == ["arm", "replicate", *schema]


def test_full_chunks_go_to_the_sink_in_order_and_the_rest_at_the_close() -> None:
    chunks: list[list[int]] = []
    journal = Journal(lambda name, c: chunks.append(c["request"].tolist()), chunk_rows=2)
    for request in range(5):
        journal.request(*_request_row(request))
    assert chunks == [[0, 1], [2, 3]]
    journal.close()
    assert chunks == [[0, 1], [2, 3], [4]]


def test_a_chunk_that_was_handed_on_is_not_overwritten() -> None:
    journal = Journal(chunk_rows=1)
    for request in range(3):
        journal.request(*_request_row(request))
    assert journal.to_pandas("requests")["request"].tolist() == [0, 1, 2]


def test_columns_at_once_come_after_the_rows_so_far() -> None:
    journal = Journal()
    journal.device(*range(len(DEVICES)))
    journal.columns("devices", {name: [7, 8] for name in DEVICES})
    assert journal.to_pandas("devices")["device"].tolist() == [0, 7, 8]


def _decided(policy: str, **given: Any) -> dict[str, Any]:
    journal = Journal()
    fleet = [device(f"d{i}", gpus=2) for i in range(8)]
    world = World(policy, fleet, journal=journal, decision_time=lambda request: 2.5e-5)
    world.memory(*[60.0] * 7, 59.0, source_s=1.0)
    for i in range(8):
        world.graph.observe_ring(i, (9 - i) * 1e-6, 1.2)
        world.graph.observe_pcie(i, 0.25, 1.1)
    world.now = 1.5
    world.dispatcher.submit(world.request(1000, 1000, **given))
    (row,) = journal.to_pandas("decisions").to_dict("records")
    return dict(row)


def test_a_decision_row_says_what_the_graph_said_and_how_old_it_was() -> None:
    row = _decided("topology")
    assert list(row) == ["arm", "replicate", *DECISIONS]
    assert (row["device"], row["reason"], row["candidates"]) == (7, 0, 8)
    assert (row["time_s"], row["duration_s"]) == (1.5, 2.5e-5)
    assert row["need_bytes"] == 2000 * GIB / 1024
    assert row["seen_block_bytes"] == row["seen_free_bytes"] == 59 * GIB
    assert (row["seen_ring_s"], row["seen_pcie_ratio"]) == (2e-6, 0.25)
    assert row["seen_age_s"] == 0.5  # memory is the oldest of what it reads


def test_the_chosen_is_named_first_of_five_though_it_is_not_among_the_largest() -> None:
    row = _decided("topology")
    assert [row[f"best{i}_device"] for i in range(BEST)] == [7, 0, 1, 2, 3]
    assert [row[f"best{i}_score"] / GIB for i in range(BEST)] == [59, 60, 60, 60, 60]


def test_a_refusal_says_why_and_names_no_device() -> None:
    row = _decided("topology", kernel_hint="fast")
    assert (row["device"], row["reason"]) == (-1, 8)
    assert math.isnan(row["need_bytes"])
    assert row["best0_device"] == -1


@pytest.mark.parametrize(
    "policy", ["p2c", "round_robin", "least_kv", "cache_aware", "topology_free"]
)
def test_every_kind_of_policy_writes_a_whole_row(policy: str) -> None:
    row = _decided(policy)
    assert row["best0_device"] == row["device"] >= 0
