"""A run from scenario to folder."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dispatch.errors import InputError
from scenarios.load import load
from scenarios.manifest import file_hash
from scenarios.run import run
from tests.scenarios.small import small


def go(folder: Path, name: str = "run", *overrides: str, **options: Any) -> Path:
    run(load(small(folder), overrides), folder / name, quiet=True, **options)
    return folder / name


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return go(tmp_path_factory.mktemp("made"), jobs=2)


def manifest(place: Path) -> Any:
    return json.loads((place / "manifest.json").read_text())


def test_a_run_folder_holds_tables_and_a_manifest_that_hashes_them(made: Path) -> None:
    files = manifest(made)["files"]
    assert sorted(files) == ["decisions.parquet", "devices.parquet", "requests.parquet"]
    assert all(file_hash(made / name) == digest for name, digest in files.items())


def test_every_arrival_is_accounted_for_in_every_arm(made: Path) -> None:
    for about in manifest(made)["arms"].values():
        for facts in about["facts"]:
            assert facts["offered"] == sum(facts["outcomes"].values())
            assert facts["offered"] > 100


def test_rows_stand_in_the_order_of_arms_and_replicates(made: Path) -> None:
    table = pq.read_table(made / "requests.parquet", columns=["arm", "replicate"]).to_pylist()
    order = list(dict.fromkeys((row["arm"], row["replicate"]) for row in table))
    assert order == [("legacy", 0), ("legacy", 1), ("direct", 0), ("direct", 1)]


def test_arms_of_a_replicate_are_offered_the_same_requests(made: Path) -> None:
    frame = pq.read_table(made / "requests.parquet").to_pandas()
    columns = ["request", "arrival_s", "prompt_tokens", "max_tokens"]
    for replicate in (0, 1):
        legacy, direct = (
            frame[(frame.arm == arm) & (frame.replicate == replicate)]
            .sort_values("request")[columns]
            .reset_index(drop=True)
            for arm in ("legacy", "direct")
        )
        assert legacy.equals(direct)


def test_replicates_differ(made: Path) -> None:
    frame = pq.read_table(made / "requests.parquet").to_pandas()
    first, second = (frame[frame.replicate == r].arrival_s.tolist() for r in (0, 1))
    assert first != second


def test_devices_of_the_manifest_are_those_of_the_journal(made: Path) -> None:
    for about in manifest(made)["arms"].values():
        named = [device["name"] for device in about["devices"]]
        assert named == ["a-0", "a-1", "b-0"]
        assert [device["device"] for device in about["devices"]] == [0, 1, 2]
        assert [d["name"] for d in about["facts"][0]["devices"]] == named


def test_the_manifest_says_what_is_needed_to_run_it_again(made: Path) -> None:
    said = manifest(made)
    assert {"scenario", "trace", "seed", "code", "packages", "machine", "argv"} <= set(said)
    assert said["trace"]["rows"] == 150
    assert said["code"]["sha256"]


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_tables_do_not_hang_on_the_number_of_workers(
    tmp_path: Path, made: Path, jobs: int
) -> None:
    assert manifest(go(tmp_path, jobs=jobs))["files"] == manifest(made)["files"]


def test_what_finish_writes_is_hashed_too(tmp_path: Path) -> None:
    def finish(place: Path, about: Any) -> str:
        (place / "note.txt").write_text(about["scenario"]["name"])
        return "done"

    scenario = load(small(tmp_path), ["replicates=1"])
    result = run(scenario, tmp_path / "run", jobs=1, quiet=True, finish=finish)
    assert result.outcome == "done"
    assert "note.txt" in manifest(tmp_path / "run")["files"]


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def finish(place: Path, about: Any) -> None:
        raise RuntimeError("the report failed")

    path = small(tmp_path)
    with pytest.raises(RuntimeError):
        run(load(path, ["replicates=1"]), tmp_path / "run", jobs=1, quiet=True, finish=finish)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_an_error_in_a_worker_is_told_as_bad_input(tmp_path: Path) -> None:
    wrong = ["arms.direct.door.decision_us=none", "arms.direct.door.decision_calibration=no.toml"]
    with pytest.raises(InputError, match=r"no\.toml"):
        go(tmp_path, "run", *wrong, jobs=2)
    assert not (tmp_path / "run").exists()


def test_a_run_without_a_target_keeps_nothing(tmp_path: Path) -> None:
    result = run(load(small(tmp_path), ["replicates=1"]), None, jobs=1, quiet=True)
    assert result.folder is None
    assert result.manifest["arms"]["direct"]["facts"][0]["offered"] == 150
    assert len(list(tmp_path.iterdir())) == 1
