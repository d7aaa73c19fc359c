"""Running a folder again, here or on a machine where the trace lies elsewhere."""

import json
import shutil
from pathlib import Path

import pytest

from dispatch.errors import InputError
from scenarios.load import load
from scenarios.run import run
from scenarios.verify import verify
from tests.scenarios.small import small


def rows(count: int, output: int) -> str:
    lines = [
        f"2023-11-16 18:15:{n // 2:02d}.{5 * (n % 2)}000000,{100 + n},{output}"
        for n in range(count)
    ]
    return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *lines, ""])


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a run's folder and where its trace lies now."""
    folder = tmp_path_factory.mktemp("verify")
    trace = folder / "log.csv"
    trace.write_text(rows(60, 20))
    settings = [f"trace.source={trace}", "trace.limit=none", "replicates=1"]
    run(load(small(folder), settings), folder / "run", jobs=1, quiet=True)
    return folder / "run", trace.rename(folder / "elsewhere.csv")


def test_a_run_verifies_with_its_trace_at_another_place(moved: tuple[Path, Path]) -> None:
    found = verify(moved[0], trace=str(moved[1]), jobs=1, quiet=True)
    assert found.good
    assert found.other_bytes == ()


def test_the_folder_of_a_plan_is_no_run_to_verify(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"manifest_version": 1, "scenario": {}}))
    with pytest.raises(InputError, match="is no run of arms"):
        verify(tmp_path, jobs=1, quiet=True)


@pytest.mark.parametrize("scenario", [None, -1, {"schema_version": 9}])
def test_a_manifest_whose_scenario_is_none_is_told(
    moved: tuple[Path, Path], tmp_path: Path, scenario: object
) -> None:
    stated = json.loads((moved[0] / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(stated | {"scenario": scenario}))
    found = verify(tmp_path, jobs=1, quiet=True)
    assert not found.good
    assert any(text.startswith("manifest.json") and "scenario" in text for text in found.damaged)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 100_000, '{"manifest_version": 1, "arms": {}}']
)
def test_a_damaged_manifest_in_a_run_folder_is_damage_and_no_wrong_use(
    moved: tuple[Path, Path], tmp_path: Path, text: str
) -> None:
    (tmp_path / "requests.parquet").write_bytes((moved[0] / "requests.parquet").read_bytes())
    (tmp_path / "manifest.json").write_text(text)
    found = verify(tmp_path, jobs=1, quiet=True)
    assert not found.good
    assert "manifest.json" in found.damaged[0]


def test_a_damaged_summary_is_damage_and_no_wrong_use(
    moved: tuple[Path, Path], tmp_path: Path
) -> None:
    place = tmp_path / "run"
    shutil.copytree(moved[0], place)
    (place / "summary.json").write_text("{")
    stated = json.loads((place / "manifest.json").read_text())
    stated["files"]["summary.json"] = "0" * 64
    (place / "manifest.json").write_text(json.dumps(stated))
    found = verify(place, trace=str(moved[1]), jobs=1, quiet=True)
    assert found.damaged == ("summary.json is not the file that the manifest names",)


def test_another_trace_is_refused_by_its_hash(moved: tuple[Path, Path], tmp_path: Path) -> None:
    other = tmp_path / "log.csv"
    other.write_text(rows(60, 21))
    with pytest.raises(InputError, match="has sha256"):
        verify(moved[0], trace=str(other), jobs=1, quiet=True)


def test_a_trace_that_is_gone_is_bad_input(moved: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match=r"log\.csv"):
        verify(moved[0], jobs=1, quiet=True)


def test_a_file_that_was_changed_since_is_told(moved: tuple[Path, Path]) -> None:
    table = moved[0] / "devices.parquet"
    before = table.read_bytes()
    table.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    try:
        found = verify(moved[0], trace=str(moved[1]), jobs=1, quiet=True)
    finally:
        table.write_bytes(before)
    assert not found.good
    assert found.damaged == ("devices.parquet is not the file that the manifest names",)
