"""What the gate takes as head and as base in a git repository."""

import subprocess
from pathlib import Path

import pytest

from dispatch.errors import InputError, NotMeasurable
from scenarios.gate import trees


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit(folder: Path, text: str) -> str:
    (folder / "file").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", text)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


def test_on_a_branch_the_base_is_the_merge_base_with_main(repo: Path) -> None:
    fork = commit(repo, "one")
    git(repo, "checkout", "-q", "-b", "work")
    commit(repo, "two")
    git(repo, "checkout", "-q", "main")
    commit(repo, "three")
    git(repo, "checkout", "-q", "work")
    assert trees.base_commit(repo, None) == fork


def test_on_main_itself_the_base_is_the_parent(repo: Path) -> None:
    first = commit(repo, "one")
    commit(repo, "two")
    assert trees.base_commit(repo, None) == first


def test_a_first_commit_has_no_base_and_that_is_not_measurable(repo: Path) -> None:
    commit(repo, "one")
    with pytest.raises(NotMeasurable, match="no parent"):
        trees.base_commit(repo, None)


def test_histories_without_a_common_ancestor_are_not_measurable(repo: Path) -> None:
    commit(repo, "one")
    git(repo, "checkout", "-q", "--orphan", "other")
    commit(repo, "two")
    with pytest.raises(NotMeasurable, match="no merge base"):
        trees.base_commit(repo, "main")


def test_a_base_that_does_not_exist_is_refused_by_name(repo: Path) -> None:
    commit(repo, "one")
    with pytest.raises(InputError, match="nowhere"):
        trees.base_commit(repo, "nowhere")


def test_a_dirty_tree_is_refused_and_names_the_file(repo: Path) -> None:
    commit(repo, "one")
    (repo / "file").write_text("changed")
    with pytest.raises(InputError, match="file"):
        trees.head_tree(repo, allow_dirty=False)
    assert trees.head_tree(repo, allow_dirty=True).dirty


def test_a_folder_that_is_no_repository_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="git"):
        trees.head_tree(tmp_path, allow_dirty=False)


def test_a_worktree_holds_the_base_and_is_gone_afterwards(repo: Path) -> None:
    first = commit(repo, "one")
    commit(repo, "two")
    with trees.worktree(repo, first) as base:
        assert (base.folder / "file").read_text() == "one"
        kept = base.folder
    assert not kept.exists()
    assert len(git(repo, "worktree", "list").splitlines()) == 1
