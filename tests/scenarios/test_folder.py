"""A run folder appears whole or not at all."""

from pathlib import Path

import pytest

from dispatch.errors import InputError
from scenarios.folder import MANIFEST, read_manifest, whole


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_is_there_once_the_block_has_ended(tmp_path: Path) -> None:
    with whole(tmp_path / "a" / "run") as place:
        (place / "x").write_text("1")
        assert not (tmp_path / "a" / "run").exists()
    assert entries(tmp_path / "a" / "run") == ["x"]
    assert entries(tmp_path / "a") == ["run"]


def fail(target: Path, error: type[BaseException]) -> None:
    with whole(target) as place:
        (place / "x").write_text("1")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_nothing_is_left_where_the_block_fails(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error):
        fail(tmp_path / "a" / "run", error)
    assert entries(tmp_path) == []


def test_an_existing_folder_is_refused_without_force(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(InputError, match="exists already; choose another -o, or --force"):
        whole(tmp_path / "run").__enter__()


def test_a_folder_that_another_run_wrote_meanwhile_is_left_alone(tmp_path: Path) -> None:
    slow = whole(tmp_path / "run")
    slow.__enter__()
    with whole(tmp_path / "run") as place:
        (place / MANIFEST).write_text("first")
    with pytest.raises(InputError, match="exists already"):
        slow.__exit__(None, None, None)
    assert (tmp_path / "run" / MANIFEST).read_text() == "first"
    assert entries(tmp_path) == ["run"]


def test_force_replaces_a_run_folder(tmp_path: Path) -> None:
    for text in ("old", "new"):
        with whole(tmp_path / "run", force=True) as place:
            (place / MANIFEST).write_text(text)
    assert (tmp_path / "run" / MANIFEST).read_text() == "new"
    assert entries(tmp_path) == ["run"]


def test_force_never_replaces_a_folder_that_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters.txt").write_text("dear")
    with pytest.raises(InputError, match="is no run folder"):
        whole(tmp_path / "home", force=True).__enter__()
    assert entries(tmp_path / "home") == ["letters.txt"]


def test_a_failed_run_under_force_keeps_the_old_one(tmp_path: Path) -> None:
    with whole(tmp_path / "run") as place:
        (place / MANIFEST).write_text("old")
    with pytest.raises(RuntimeError), whole(tmp_path / "run", force=True):
        raise RuntimeError
    assert (tmp_path / "run" / MANIFEST).read_text() == "old"
    assert entries(tmp_path) == ["run"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"manifest_version": 9}'])
def test_a_damaged_manifest_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(InputError, match="manifest"):
        read_manifest(tmp_path)
