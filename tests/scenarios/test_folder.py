"""A run folder appears whole or not at all."""

import errno
import signal
import subprocess
import sys
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


def test_a_folder_that_appeared_meanwhile_is_left_alone(tmp_path: Path) -> None:
    slow = whole(tmp_path / "run")
    slow.__enter__()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / MANIFEST).write_text("first")
    with pytest.raises(InputError, match="exists already"):
        slow.__exit__(None, None, None)
    assert (tmp_path / "run" / MANIFEST).read_text() == "first"
    assert entries(tmp_path) == ["run"]


def test_a_second_run_into_one_folder_is_refused_at_once_and_spoils_nothing(tmp_path: Path) -> None:
    with whole(tmp_path / "run") as place:
        (place / MANIFEST).write_text("first")
        with pytest.raises(InputError, match="another zerolayer is writing it now"):
            whole(tmp_path / "run").__enter__()
    assert (tmp_path / "run" / MANIFEST).read_text() == "first"
    assert entries(tmp_path) == ["run"]


LEAVES = """
import os, signal, sys
from pathlib import Path
from scenarios.folder import whole
claim = whole(Path(sys.argv[1]))
place = claim.__enter__()
(place / "parts").mkdir()
(place / "parts" / "rows").write_text("half")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_is_cleared_away_by_the_next(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES, str(tmp_path / "run")], check=False)
    assert done.returncode == -signal.SIGKILL
    assert entries(tmp_path) == [".run.partial"]
    with whole(tmp_path / "run") as place:
        (place / "x").write_text("1")
    assert entries(tmp_path) == ["run"]
    assert entries(tmp_path / "run") == ["x"]


def test_a_link_in_the_place_of_the_scratch_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters.txt").write_text("dear")
    (tmp_path / ".run.partial").symlink_to(tmp_path / "home")
    with pytest.raises(InputError, match="cannot be made"):
        whole(tmp_path / "run").__enter__()
    assert entries(tmp_path / "home") == ["letters.txt"]


def test_a_disk_that_is_full_is_told_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run: no space left on device; .*choose another -o"):
        full(tmp_path / "run")
    assert entries(tmp_path) == []


def full(target: Path) -> None:
    with whole(target):
        raise OSError(errno.ENOSPC, "Error writing bytes to file")


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
